// SPDX-License-Identifier: MIT
// The barriers of block and cluster, and the scheduling fence.
#pragma once

#include "tilewave/core/config.hpp"

#if !TILEWAVE_ON_GPU_COMPILER

#include "tilewave/arch/host/schedule.hpp"

namespace tilewave::host {

struct Sync {
  /// Waits for all lanes of the block. Lanes of one wave must call it from the same line: on hardware the wave arrives
  /// once, not once per branch.
  static void barrier(Where where = {}) { block_barrier(*current_lane, where); }
  /// The two halves of the same for all lanes of the cluster.
  static void cluster_arrive() { arrive_in_cluster(*current_lane); }
  static void cluster_wait(Where where = {}) { wait_for_cluster(*current_lane, where); }
  /// Kernels run one after the other.
  static void launch_next() {}
  static void wait_for_previous() {}
  /// Only an instruction order; nothing to do here.
  static void sched_fence() {}
};

}  // namespace tilewave::host

#endif  // !TILEWAVE_ON_GPU_COMPILER
