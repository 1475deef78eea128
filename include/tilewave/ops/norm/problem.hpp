// SPDX-License-Identifier: MIT
// The problem describes one call of a normalisation: raw pointers, extents, and int64 strides in elements.
#pragma once

#include "tilewave/core/status.hpp"
#include "tilewave/ops/norm/spec.hpp"

namespace tilewave {

/// A row is NaN throughout, rstd too, if it has a NaN or an infinity, or if its squares add up to more than f32 holds
/// (|x| from about 1e19). i8 codes are 0 then, with scale 1. eps + the mean square must be a normal f32; otherwise rstd
/// may be infinite. A layer of one value is 0 to the bit. In place, out may be x or residual. residual_out may be the
/// other one, or either of them where out is neither. Strides must be the same. Outputs overlap nothing else. Strides
/// of absent tensors are 0.
struct NormProblem {
  NormSpec spec{};

  // tensors on the device; rows as RowStrides says, columns contiguous
  const void* x = nullptr;         // [rows, columns]
  const void* weight = nullptr;    // [columns]
  const void* bias = nullptr;      // optional [columns], of the weight's type
  const void* residual = nullptr;  // optional [rows, columns]: x + residual, rounded to x's type, is normalised
  void* residual_out = nullptr;    // [rows, columns], with residual: receives that sum
  // optional [columns], of x's type, with a scale: multiplies the values before they are quantised
  const void* smooth = nullptr;
  void* out = nullptr;    // [rows, columns]
  void* scale = nullptr;  // see RowOutputArgs
  float* mean = nullptr;  // optional [rows], layer only
  float* rstd = nullptr;  // optional [rows]: 1 / sqrt(... + eps)

  float eps = 1e-5f;

  std::int32_t rows = 0, columns = 0;
  std::int32_t inner_rows = 1;  // see RowStrides
  RowStrides x_strides{}, residual_strides{}, residual_out_strides{}, out_strides{};
  std::int64_t scale_stride = 0;                 // per_group, mx: from the scales of one row to the next
  std::int64_t scale_group_stride = 1;           // per_group: between groups of columns; scales may be [groups, rows]
  ScaleLayout scale_layout = ScaleLayout::rows;  // mx only
  MxRounding mx_rounding = MxRounding::up;       // mx only
};

}  // namespace tilewave
