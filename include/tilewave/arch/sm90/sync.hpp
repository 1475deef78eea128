// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>

#include "tilewave/core/config.hpp"

#if defined(__CUDACC__)

namespace tilewave::sm90 {

struct Sync {
  TILEWAVE_DEVICE static void barrier() { __syncthreads(); }
  /// The volatile loads and mmas already hold their order in the compiler.
  TILEWAVE_DEVICE static void sched_fence() {}
  TILEWAVE_DEVICE static std::uint32_t opaque(std::uint32_t word) {
    asm("" : "+r"(word));
    return word;
  }
};

}  // namespace tilewave::sm90

#endif
