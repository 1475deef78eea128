// SPDX-License-Identifier: MIT
// --model-time: on the emulated device, what a call would take on an AMD chip by the simulator's clock (docs/reference/clock.md).
// The call's launches are not run but seen, and the same kernels, compiled for the chip, are timed on the call's tensors.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <stdexcept>
#include <string>

#include "bench/harness/device.hpp"
#include "tilewave/core/status.hpp"

namespace tilewave::bench {

/// Of all launches of a call; the bound is that of the longest, the error that of sampling, the clock the mean over clk.
struct ModelledTime {
  double us = std::numeric_limits<double>::quiet_NaN(), error = us, clk = us, mhz = us;
  std::string bound = "none", chip = "none";

  bool known() const { return bound != "none"; }
};

class ModelClock {
 public:
  virtual ~ModelClock() = default;
  /// Throws, with the reason, if the call answers with a bad Status or a kernel cannot be compiled or timed.
  virtual ModelledTime time(const std::function<Status()>& call) = 0;
};

/// Of this process. Launches are timed, not run: configs are whole, and large tensors hold zeros.
struct ModelOptions {
  bool on = false;
  std::string chip;  // "": chip_modelled() of the architecture
  std::uint64_t instructions = 4'000'000;
  std::string trace;  // folder for what rocprofv3 would have written of each launch; "": none
};
inline ModelOptions model_time;

/// The chip whose times and whose ceilings a modelled row has.
inline std::string chip_modelled(ArchId arch) {
  if (!model_time.chip.empty()) return model_time.chip;
  return arch == ArchId::gfx950 ? "MI355X" : "MI300X";
}

/// A clock for an architecture; throws std::invalid_argument. Programs linked with model_time.cpp have it.
inline std::unique_ptr<ModelClock> (*make_model_clock)(ArchId arch, const std::string& chip) = nullptr;

inline std::unique_ptr<ModelClock> model_clock(ArchId arch) {
  if (make_model_clock == nullptr) {
    throw std::invalid_argument(
        "--model-time needs a build of the host preset, configured with clang-22, llvm-22, libamdhip64-dev, libcli11-dev and "
        "nlohmann-json3-dev at hand; tools/quickstart bench_X --model-time installs them");
  }
  return make_model_clock(arch, chip_modelled(arch));
}

/// Whether configs are cut to what the emulated device runs in a moment.
inline bool cuts_configs() { return emulated_device && !model_time.on; }

/// Whether a tensor of so many bytes gets its contents: reading what is modelled takes pages, not values.
inline bool fills(std::size_t bytes) { return !model_time.on || bytes <= std::size_t{1} << 24; }

}  // namespace tilewave::bench
