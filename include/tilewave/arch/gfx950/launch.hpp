// SPDX-License-Identifier: MIT
// This file has the one __global__ of the room.
#pragma once

#include "tilewave/arch/gfx9/launch.hpp"

#if defined(__HIP__)

namespace tilewave::gfx950 {

#if defined(__gfx950__)
inline constexpr bool this_pass = true;
#else
inline constexpr bool this_pass = false;
#endif

template <class K>
__global__ void __launch_bounds__(K::block_threads, K::waves_per_simd) entry(const typename K::Args args) {
  gfx9::run<K>(args);
}

struct Launch : gfx9::Launch<this_pass> {
  template <class K>
  static Status launch(LaunchShape shape, const typename K::Args& args, hipStream_t stream) {
    return queue<const typename K::Args>(&entry<K>, gfx950_facts, shape, args, stream);
  }
};

}  // namespace tilewave::gfx950

#endif
