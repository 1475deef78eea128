// SPDX-License-Identifier: MIT
// The problem describes one call of a vector addition: raw pointers and a count.
#pragma once

#include "tilewave/core/status.hpp"
#include "tilewave/ops/vec_add/spec.hpp"

namespace tilewave {

struct VecAddProblem {
  VecAddSpec spec{};

  // contiguous tensors on the device, aligned to their elements; 16-byte accesses need addresses that agree modulo 16
  const void* a = nullptr;  // [count]
  const void* b = nullptr;  // [count]; may be a
  void* out = nullptr;      // [count]; may be a or b, but must not overlap them otherwise

  std::int64_t count = 0;
};

}  // namespace tilewave
