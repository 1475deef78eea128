// SPDX-License-Identifier: MIT
// The block barrier and the scheduling fence.
#pragma once

#include "tilewave/core/config.hpp"

#if !TILEWAVE_ON_GPU_COMPILER

#include <cstdint>

#include "tilewave/arch/host/schedule.hpp"

namespace tilewave::host {

struct Sync {
  /// Waits for all lanes of the block. Lanes of one wave must call it from the same line: on hardware the wave arrives
  /// once, not once per branch.
  static void barrier(Where where = {}) { block_barrier(*current_lane, where); }
  /// Only an instruction order; nothing to do here.
  static void sched_fence() {}
  static std::uint32_t opaque(std::uint32_t word) { return word; }
};

}  // namespace tilewave::host

#endif  // !TILEWAVE_ON_GPU_COMPILER
