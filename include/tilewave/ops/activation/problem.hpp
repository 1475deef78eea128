// SPDX-License-Identifier: MIT
// The problem describes one call of an activation over rows: raw pointers, extents, and int64 strides in elements.
#pragma once

#include "tilewave/core/status.hpp"
#include "tilewave/ops/activation/spec.hpp"

namespace tilewave {

/// `columns` are the columns of out. A NaN stays NaN, also where swigluoai clamps. ActivationOf says what infinities
/// become, and QuantProblem what becomes of values that are quantised.
struct ActivationProblem {
  ActivationSpec spec{};

  // tensors on the device; rows as RowStrides says, columns contiguous
  const void* x = nullptr;  // [rows, columns]; halves: the gates; interleaved: [rows, 2 columns], gates in even columns
  const void* up = nullptr;  // halves: [rows, columns] with up_strides; null: the columns behind the gates in x's rows
  void* out = nullptr;    // [rows, columns]; plain and not interleaved: may be x's or up's columns, with their strides
  void* scale = nullptr;  // see RowOutputArgs

  float alpha = 1.702f, limit = 7.0f;  // for swigluoai; limit may be infinite

  std::int32_t rows = 0, columns = 0;
  std::int32_t inner_rows = 1;  // see RowStrides
  RowStrides x_strides{}, up_strides{}, out_strides{};
  std::int64_t scale_stride = 0;                 // per_group, mx: from the scales of one row to the next
  std::int64_t scale_group_stride = 1;           // per_group: between groups of columns; scales may be [groups, rows]
  ScaleLayout scale_layout = ScaleLayout::rows;  // mx only
  MxRounding mx_rounding = MxRounding::up;       // mx only
};

}  // namespace tilewave
