// SPDX-License-Identifier: MIT
// Runs one kernel launch: sets waves up as the hardware and the ABI do, then executes block after block.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "sim/machine/wave.hpp"
#include "sim/programs/code_object.hpp"

namespace tilewave::sim {

struct Launch {
  std::string symbol;  // kernel descriptor, `name.kd`
  std::array<std::uint32_t, 3> grid_blocks{1, 1, 1};
  std::array<std::uint32_t, 3> block{64, 1, 1};  // work-items
  std::uint32_t dynamic_lds_bytes = 0;
  std::vector<std::uint8_t> kernarg;
};

struct MachineOptions {
  int threads = 1;                                    // blocks run on this many
  bool reverse = false;                               // blocks, and waves between barriers, from last to first
  bool checks = true;                                 // waits, LDS races, registers beyond the allocation
  bool races = true;                                  // of `checks`: LDS races, which know no order but barriers
  std::uint64_t max_wave_instructions = 200'000'000;  // per wave, so that an endless loop ends
};

/// Execute a launch. Errors name the instruction: address, text, block and wave.
Counts run_launch(const CodeObject& object, const Launch& launch, Memory& memory, const MachineOptions& options);

}  // namespace tilewave::sim
