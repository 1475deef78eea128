// SPDX-License-Identifier: MIT
// --model-time gives the time that a call would take on an AMD chip by the simulator's clock (docs/reference/clock.md),
// on the emulated device. The call's launches are recorded instead of run, and the same kernels, compiled for the chip,
// are timed on the call's tensors.
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

/// The time of all launches of a call. The bound is that of the longest launch, the error that of sampling, and the
/// clock the mean over clk.
struct ModelledTime {
  double us = std::numeric_limits<double>::quiet_NaN(), error = us, clk = us, mhz = us;
  std::string bound = "none", chip = "none";

  bool known() const { return bound != "none"; }
};

class ModelClock {
 public:
  virtual ~ModelClock() = default;
  /// Throws, with the reason, if the call returns a bad Status, or if a kernel cannot be compiled or timed.
  virtual ModelledTime time(const std::function<Status()>& call) = 0;
};

/// The options of this process. Launches are timed and not run: configs are complete, and large tensors hold zeros.
struct ModelOptions {
  bool on = false;
  std::string chip;  // "": the architecture's chip_modelled()
  std::uint64_t instructions = 4'000'000;
  std::string trace;  // folder for the files that rocprofv3 would have written for each launch; "": none
};
inline ModelOptions model_time;

/// Returns the chip whose times and ceilings a modelled row has.
inline std::string chip_modelled(ArchId arch) {
  if (!model_time.chip.empty()) return model_time.chip;
  return arch == ArchId::gfx950 ? "MI355X" : "MI300X";
}

/// Makes a clock for an architecture; throws std::invalid_argument. Programs linked with model_time.cpp have it.
inline std::unique_ptr<ModelClock> (*make_model_clock)(ArchId arch, const std::string& chip) = nullptr;

inline std::unique_ptr<ModelClock> model_clock(ArchId arch) {
  if (make_model_clock == nullptr) {
    throw std::invalid_argument(
        "--model-time needs a build of the host preset, configured with clang-22, llvm-22, libamdhip64-dev, libcli11-dev and "
        "nlohmann-json3-dev at hand; tools/quickstart bench_X --model-time installs them");
  }
  return make_model_clock(arch, chip_modelled(arch));
}

/// True if configs are cut to a size that the emulated device runs in a moment.
inline bool cuts_configs() { return emulated_device && !model_time.on; }

/// True if a tensor of this many bytes gets its contents: modelled reads need pages, not values.
inline bool fills(std::size_t bytes) { return !model_time.on || bytes <= std::size_t{1} << 24; }

}  // namespace tilewave::bench
