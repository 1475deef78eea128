// SPDX-License-Identifier: MIT
// The one __global__ of this room.
#pragma once

#include "tilewave/arch/gfx9/launch.hpp"

#if defined(__HIP__)

namespace tilewave::gfx950 {

// In a fat binary every pass sees every room's kernels; only its own pass instantiates the body.
#if defined(__gfx950__)
inline constexpr bool this_pass = true;
#else
inline constexpr bool this_pass = false;
#endif

template <class K>
__global__ void __launch_bounds__(K::block_threads, K::waves_per_simd) entry(const typename K::Args args) {
  if constexpr (K::Room::is_this_pass) {
    __shared__ typename K::Shared shared;
    K::run(gfx9::kernarg(args), shared);
  } else {
    __builtin_trap();
  }
}

struct Launch {
  static constexpr bool is_this_pass = this_pass;
  static constexpr bool emulated = false;

  /// Queue kernel K on the stream: status launch_failed or bad_extent instead of an exception; an empty grid is ok.
  template <class K>
  static Status launch(LaunchShape shape, const typename K::Args& args, hipStream_t stream) {
    return gfx9::launch<const typename K::Args>(&entry<K>, gfx950_facts, shape, args, stream);
  }
};

}  // namespace tilewave::gfx950

#endif
