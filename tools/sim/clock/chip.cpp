// SPDX-License-Identifier: MIT
#include "sim/clock/chip.hpp"

#include <algorithm>
#include <iterator>

namespace tilewave::sim {
namespace {

constexpr ArchClock clocks[] = {
    {.transcendental = 16,
     .packed_result = 4,
     .packed_after_matrix = 8,
     .wide_misaligned = 1,
     .lds_banks = 32,
     .lds_bytes = 64 * 1024,
     .lds_granule = 512,
     .lds_port = 64,
     .lds_conflict = 1.6,
     .lds_latency_narrow = 52,
     .lds_latency_wide = 64},
    {.transcendental = 8,
     .packed_result = 8,
     .packed_after_matrix = 0,
     .wide_misaligned = 0,
     .lds_banks = 64,
     .lds_bytes = 160 * 1024,
     .lds_granule = 1280,
     .lds_port = 128,
     .lds_conflict = 2.2,
     .lds_latency_narrow = 52,
     .lds_latency_wide = 56},
};

constexpr Chip chips[] = {
    {"MI300X", Arch::gfx942, 8, 38, 2100, 0.7, 5.4, 4.0, 1.83, 1.2, 2.0},
    {"MI300A", Arch::gfx942, 6, 38, 2100, 0.7, 5.4, 4.0, 1.83, 1.2, 2.0},
    {"MI308X", Arch::gfx942, 8, 10, 1850, 1.3, 0, 4.0, 1.83, 1.2, 2.0},
    {"MI325X", Arch::gfx942, 8, 38, 2100, 0.7, 5.4, 4.6, 1.83, 1.2, 2.0},
    {"MI355X", Arch::gfx950, 8, 32, 2400, 2.1, 0.8, 6.0, 1.42, 1.2, 2.0},
    {"MI350X", Arch::gfx950, 8, 32, 2200, 2.1, 0.8, 6.0, 1.42, 1.2, 2.0},
};

}  // namespace

const ArchClock& arch_clock(Arch arch) { return clocks[arch == Arch::gfx950]; }

const Chip& chip_named(std::string_view name, Arch arch) {
  const auto found = std::find_if(std::begin(chips), std::end(chips), [&](const Chip& chip) {
    return name.empty() ? chip.arch == arch : chip.name == name;
  });
  if (found == std::end(chips))
    throw Error("no chip " + std::string(name) + ": MI300X, MI300A, MI308X, MI325X, MI350X, MI355X");
  if (found->arch != arch) throw Error("the code is not for " + std::string(name));
  return *found;
}

}  // namespace tilewave::sim
