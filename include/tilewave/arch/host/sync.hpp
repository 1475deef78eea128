// SPDX-License-Identifier: MIT
// The barriers of block and cluster, and the scheduling fence.
#pragma once

#include "tilewave/core/config.hpp"

#if !TILEWAVE_ON_GPU_COMPILER

#include "tilewave/arch/backend.hpp"
#include "tilewave/arch/host/lanes.hpp"
#include "tilewave/arch/host/schedule.hpp"

namespace tilewave::host {

struct Sync {
  /// Waits for all lanes of the block. Lanes of one wave must call it from the same line: on hardware the wave arrives
  /// once, not once per branch.
  static void barrier(Where where = {}) { block_barrier(*current_lane, where); }
  static void wave_barrier(Where where = {}) { (void)detail::vote_any(false, where); }
  /// These are the two halves of a barrier for all lanes of the cluster.
  static void cluster_arrive() { arrive_in_cluster(*current_lane); }
  static void cluster_arrive_relaxed() { cluster_arrive(); }
  static void cluster_wait(Where where = {}) { wait_for_cluster(*current_lane, where); }

  /// Mailboxes count. collect is a barrier of the cluster after which the count must be right, since hardware would
  /// wait for ever.
  template <int count>
  static void open(Mailbox* boxes) {
    const Lane& self = *current_lane;
    if (self.wave->index == 0 && self.index == 0) {
      for (int i = 0; i < count; ++i) boxes[i].state = 0;
    }
    cluster_arrive();
  }
  static void collect(Mailbox& box, int posts, int phase, Where where = {}) {
    cluster_arrive();
    cluster_wait(where);
    const std::uint64_t found = __atomic_load_n(&box.state, __ATOMIC_RELAXED);
    if (found != static_cast<std::uint64_t>(posts) * (static_cast<std::uint64_t>(phase) + 1)) {
      fail(*current_lane, "collect of %d posts in phase %d at %s:%d: %llu came in all", posts, phase, where.base_name(),
           where.line, static_cast<unsigned long long>(found));
    }
  }
  /// Kernels run one after the other, but a lane of a kernel that waits itself is held to the rules as if it had begun
  /// before the kernel in front of it: it may not touch device memory before it has waited, and no block may let the
  /// next kernel begin before.
  static void launch_next(Where where = {}) {
    Lane& self = *current_lane;
    if (self.early != Early::over)
      fail(self, "launch_next before wait_for_previous at %s:%d", where.base_name(), where.line);
  }
  static void wait_for_previous() {
    current_lane->early = Early::over;
    __atomic_store_n(&current_lane->wave->block->waited, true, __ATOMIC_RELAXED);  // every lane of the block says it
  }
  static void promised_reads(bool begin) {
    Lane& self = *current_lane;
    if (self.early != Early::over) self.early = begin ? Early::no_store : Early::no_access;
  }
  /// This only orders instructions, so nothing is done here.
  static void sched_fence() {}
};

}  // namespace tilewave::host

#endif  // !TILEWAVE_ON_GPU_COMPILER
