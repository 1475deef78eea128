// SPDX-License-Identifier: MIT
// Host side of a launch, shared by both CDNA rooms: geometry is checked before the kernel is queued.
#pragma once

#include "tilewave/arch/backend.hpp"
#include "tilewave/core/hip.hpp"
#include "tilewave/core/status.hpp"

#if defined(__HIP__)

namespace tilewave::gfx9 {

/// A kernel's only argument where the hardware put it. A by-value parameter is copied into SGPRs at entry and then
/// spilled; through this reference each value is loaded where it is used.
template <class Args>
TILEWAVE_DEVICE const Args& kernarg(const Args&) {
  return *(const Args*)__builtin_amdgcn_kernarg_segment_ptr();
}

template <class Args>
Status launch(void (*entry)(Args), const ArchFacts& facts, LaunchShape shape, const Args& args, hipStream_t stream) {
  if (Status s = check_launch(shape, facts); !s.ok()) return s;
  if (shape.grid == 0) return {};
  // Not <<<>>> and hipGetLastError, which would report an error the caller left behind.
  void* arguments[] = {const_cast<void*>(static_cast<const void*>(&args))};
  const hipError_t error =
      hipLaunchKernel(reinterpret_cast<const void*>(entry), dim3(static_cast<unsigned>(shape.grid)),
                      dim3(static_cast<unsigned>(shape.block)), arguments, 0, stream);
  if (error != hipSuccess) return {StatusCode::launch_failed, hipGetErrorString(error)};
  return {};
}

}  // namespace tilewave::gfx9

#endif
