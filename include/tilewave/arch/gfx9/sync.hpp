// SPDX-License-Identifier: MIT
#pragma once

#include "tilewave/arch/backend.hpp"

#if defined(__HIP__)

namespace tilewave::gfx9 {

struct Sync {
  /// The fences keep LDS accesses of the compiler and of the wave on their side of s_barrier.
  TILEWAVE_DEVICE static void barrier() {
    __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
    __builtin_amdgcn_s_barrier();
    __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
  }
  /// LDS serves a wave in order, so only the compiler must keep the order.
  TILEWAVE_DEVICE static void wave_barrier() {
    __builtin_amdgcn_fence(__ATOMIC_RELEASE, "wavefront");
    __builtin_amdgcn_wave_barrier();
    __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "wavefront");
  }
  /// CDNA has no clusters: each block is a cluster of its own.
  TILEWAVE_DEVICE static void cluster_arrive() {}
  TILEWAVE_DEVICE static void cluster_arrive_relaxed() {}
  TILEWAVE_DEVICE static void cluster_wait() { barrier(); }
  template <int count>
  TILEWAVE_DEVICE static void open(Mailbox*) {}
  TILEWAVE_DEVICE static void post(Mailbox&, float* shared, int, float value) { *shared = value; }
  TILEWAVE_DEVICE static void collect(Mailbox&, int, int) { barrier(); }
  /// Kernels of a stream run one after the other, so there is nothing to do.
  TILEWAVE_DEVICE static void launch_next() {}
  TILEWAVE_DEVICE static void wait_for_previous() {}
  TILEWAVE_DEVICE static void promised_reads(bool) {}
  TILEWAVE_DEVICE static void sched_fence() { __builtin_amdgcn_sched_barrier(0); }
};

}  // namespace tilewave::gfx9

#endif
