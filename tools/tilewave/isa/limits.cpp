// SPDX-License-Identifier: MIT
#include "tools/tilewave/isa/limits.hpp"

#include <algorithm>

#include "tilewave/arch/facts.hpp"

namespace tilewave::tool {

namespace {

int up(int value, int step) { return (value + step - 1) / step * step; }
int down(int value, int step) { return value / step * step; }

}  // namespace

Waves waves_of(const KernelNeeds& kernel, const std::string& arch, int extra_lds) {
  const bool cuda = arch == "sm90";
  const ArchFacts* const known = facts_named(arch);
  const ArchFacts& facts = known != nullptr ? *known : gfx942_facts;
  const int most = facts.max_waves_per_simd;
  Waves w;
  w.limits.push_back({"hardware", most, most, 0, 0});
  const auto add = [&](Limit limit, auto at_most) {
    limit.waves = std::min(limit.waves, most);
    if (limit.waves < most) limit.wanted = limit.waves + 1, limit.at_most = at_most(limit.wanted);
    if (limit.at_most <= 0) limit.at_most = limit.wanted = 0;
    w.limits.push_back(std::move(limit));
  };
  const int file = facts.register_file_lanes, granule = facts.register_granule;
  add({"registers", kernel.allocated, file / std::max(1, kernel.allocated)},
      [&](int waves) { return down(file / waves, granule); });
  if (!cuda) {
    constexpr int sgpr_file = 800, sgpr_granule = 16;  // of a SIMD: LLVM, AMDGPU getTotalNumSGPRs
    const int sgprs = up(std::max(1, kernel.sgprs), sgpr_granule);
    add({"SGPRs", sgprs, sgpr_file / sgprs}, [&](int waves) { return down(sgpr_file / waves, sgpr_granule); });
  }
  if (const int lds = kernel.lds_bytes + extra_lds; lds > 0) {
    // CUDA C++ Programming Guide, technical specifications: 228 KiB of an SM.
    const int step = facts.lds_granule;
    const int all = facts.lds_bytes + (cuda ? 1024 : 0), simds = facts.simds_per_cu;
    const int waves_of_block = std::max(1, kernel.block_lanes / facts.wave_lanes);
    add({"LDS", up(lds, step), all / up(lds, step) * waves_of_block / simds}, [&](int waves) {
      const int blocks = (waves * simds + waves_of_block - 1) / waves_of_block;
      return down(all / blocks, step);
    });
  }
  std::stable_sort(w.limits.begin(), w.limits.end(), [](const Limit& a, const Limit& b) { return a.waves < b.waves; });
  w.per_simd = w.limits.front().waves;
  return w;
}

}  // namespace tilewave::tool
