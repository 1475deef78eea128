// SPDX-License-Identifier: MIT
// One call of a combine: raw pointers, extents, and strides in elements.
#pragma once

#include <cstdint>

#include "tilewave/core/status.hpp"
#include "tilewave/ops/attention_combine/spec.hpp"

namespace tilewave {

/// Strides of the partials, in elements.
struct PartialStrides {
  std::int64_t partial = 0, row = 0, head = 0;
};
/// Strides of what they are combined to, in elements.
struct CombinedStrides {
  std::int64_t row = 0, head = 0;
};

/// A partial with lse -inf has no weight, and its x may be anything, NaN included. If no partial has weight, out is 0
/// and lse is -inf. NaN or +inf in an lse, or NaN in an x that has weight, makes the row NaN. No output overlaps
/// another tensor, since a row may be written while another row of its block is still read.
struct AttentionCombineProblem {
  AttentionCombineSpec spec{};

  // tensors on the device
  const void* x = nullptr;       // [partials, rows, heads, head_size], last dimension contiguous
  const float* x_lse = nullptr;  // [partials, rows, heads], natural log
  void* out = nullptr;           // [rows, heads, head_size], last dimension contiguous
  float* lse = nullptr;          // optional [rows, heads], natural log

  std::int32_t partials = 0;  // 1 to max_partials
  std::int32_t rows = 0, heads = 0;
  std::int32_t head_size = 0;  // 1 to 512

  PartialStrides x_strides{}, x_lse_strides{};
  CombinedStrides out_strides{}, lse_strides{};
};

}  // namespace tilewave
