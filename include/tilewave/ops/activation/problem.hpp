// SPDX-License-Identifier: MIT
// One call of an activation over rows: raw pointers, extents, int64 element strides.
#pragma once

#include "tilewave/core/status.hpp"
#include "tilewave/ops/activation/spec.hpp"

namespace tilewave {

/// `columns` are those of out. A NaN stays NaN, also where swigluoai clamps; see ActivationOf of infinities, and
/// QuantProblem of what is quantised.
struct ActivationProblem {
  ActivationSpec spec{};

  // tensors on the device; rows as RowStrides says, columns contiguous
  const void* x = nullptr;  // [rows, columns]; halves: the gates; interleaved: [rows, 2 columns], gates in even columns
  const void* up = nullptr;  // halves: [rows, columns] with up_strides; null: the columns of x's rows behind the gates
  void* out = nullptr;    // [rows, columns]; plain and not interleaved: may be x's or up's columns, with their strides
  void* scale = nullptr;  // see RowOutputArgs

  float alpha = 1.702f, limit = 7.0f;  // of swigluoai; limit may be infinite

  std::int32_t rows = 0, columns = 0;
  std::int32_t inner_rows = 1;  // see RowStrides
  RowStrides x_strides{}, up_strides{}, out_strides{};
  std::int64_t scale_stride = 0;                 // per_group, mx: between the scales of two rows
  std::int64_t scale_group_stride = 1;           // per_group: of two groups of columns; scales may be [groups, rows]
  ScaleLayout scale_layout = ScaleLayout::rows;  // of mx
  MxRounding mx_rounding = MxRounding::up;       // of mx
};

}  // namespace tilewave
