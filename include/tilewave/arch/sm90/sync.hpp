// SPDX-License-Identifier: MIT
#pragma once

#include "tilewave/core/config.hpp"

#if defined(__CUDACC__)

namespace tilewave::sm90 {

struct Sync {
  TILEWAVE_DEVICE static void barrier() { __syncthreads(); }
  /// Arrival releases and the wait acquires, by default.
  TILEWAVE_DEVICE static void cluster_arrive() { asm volatile("barrier.cluster.arrive.aligned;" ::: "memory"); }
  TILEWAVE_DEVICE static void cluster_wait() { asm volatile("barrier.cluster.wait.aligned;" ::: "memory"); }
  /// The volatile loads and mmas already hold their order in the compiler.
  TILEWAVE_DEVICE static void sched_fence() {}
};

}  // namespace tilewave::sm90

#endif
