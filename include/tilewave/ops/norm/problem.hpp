// SPDX-License-Identifier: MIT
// One call of a normalisation: raw pointers, extents, int64 element strides.
#pragma once

#include "tilewave/core/status.hpp"
#include "tilewave/ops/norm/spec.hpp"

namespace tilewave {

struct NormProblem {
  NormSpec spec{};

  // tensors on the device; rows as RowStrides says, columns contiguous
  const void* x = nullptr;         // [rows, columns]
  const void* weight = nullptr;    // [columns]
  const void* bias = nullptr;      // optional [columns], of the weight's type
  const void* residual = nullptr;  // optional [rows, columns]: x + residual, rounded to x's type, is what is normalised
  void* residual_out = nullptr;    // [rows, columns], with residual: that sum; may be residual or x itself
  const void* smooth = nullptr;    // optional [columns], of x's type: multiplies the result before it is quantised
  void* out = nullptr;             // [rows, columns]
  float* scale = nullptr;          // see RowOutputArgs
  float* mean = nullptr;           // optional [rows], layer only
  float* rstd = nullptr;           // optional [rows]: 1 / sqrt(... + eps)

  float eps = 1e-5f;

  std::int32_t rows = 0, columns = 0;
  std::int32_t inner_rows = 1;  // see RowStrides
  RowStrides x_strides{}, residual_strides{}, residual_out_strides{}, out_strides{};
  std::int64_t scale_stride = 0;  // per_group: between the scales of two rows
};

}  // namespace tilewave
