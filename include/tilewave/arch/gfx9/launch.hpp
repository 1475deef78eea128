// SPDX-License-Identifier: MIT
// Launches of the CDNA rooms. Each room's own file has its __global__, whose name says for which chip its code is, and
// a flag that is true in the compiler's pass for that chip. In a fat binary every pass sees the kernels of every room,
// and only a room's own pass instantiates the body.
#pragma once

#include "tilewave/arch/backend.hpp"
#include "tilewave/core/hip.hpp"
#include "tilewave/core/status.hpp"

#if defined(__HIP__)

namespace tilewave::gfx9 {

/// Returns a kernel's only argument where the hardware put it. A by-value parameter is copied into SGPRs at entry and
/// then spilled; through this reference each value is loaded where it is used.
template <class Args>
TILEWAVE_DEVICE const Args& kernarg(const Args&) {
  return *(const Args*)__builtin_amdgcn_kernarg_segment_ptr();
}

/// Runs the body of a room's __global__.
template <class K>
TILEWAVE_DEVICE void run(const typename K::Args& args) {
  if constexpr (K::Room::is_this_pass) {
    __shared__ typename K::Shared shared;
    K::run(kernarg(args), shared);
  } else {
    __builtin_trap();
  }
}

template <bool this_pass>
struct Launch {
  static constexpr bool is_this_pass = this_pass;
  static constexpr bool emulated = false;

  /// Queues `entry` on the stream. Failures are a status, launch_failed or bad_extent, instead of an exception; an
  /// empty grid is ok.
  template <class Args>
  static Status queue(void (*entry)(Args), const ArchFacts& facts, LaunchShape shape, const Args& args,
                      hipStream_t stream) {
    if (Status s = check_launch(shape, facts); !s.ok()) return s;
    if (shape.grid == 0) return {};
    // <<<>>> with hipGetLastError would report an error that the caller left behind.
    void* arguments[] = {const_cast<void*>(static_cast<const void*>(&args))};
    const hipError_t error =
        hipLaunchKernel(reinterpret_cast<const void*>(entry), dim3(static_cast<unsigned>(shape.grid)),
                        dim3(static_cast<unsigned>(shape.block)), arguments, 0, stream);
    if (error != hipSuccess) return {StatusCode::launch_failed, hipGetErrorString(error)};
    return {};
  }
};

}  // namespace tilewave::gfx9

#endif
