// SPDX-License-Identifier: MIT
// One call of a quantisation or a dequantisation: raw pointers, extents, int64 element strides.
#pragma once

#include <cstddef>

#include "tilewave/core/status.hpp"
#include "tilewave/ops/quant/spec.hpp"

namespace tilewave {

/// What is not a number, and what is not finite. A NaN does not count for a scale; its own code is NaN in fp8 and 0 in
/// i8, its neighbours' are as without it. An infinity makes its scale infinite, all finite codes under that scale 0 and
/// its own NaN (i8: 0): dequantised, all of them are NaN. Under mx scales either makes the scale of its 32 values NaN,
/// whose codes mean nothing. Under a scale that is given, an infinity is the largest code.
struct QuantProblem {
  QuantSpec spec{};

  // tensors on the device; rows as RowStrides says, columns contiguous; none that is written overlaps another
  const void* x = nullptr;       // [rows, columns]
  const void* smooth = nullptr;  // quantise: optional [columns], of x's type: multiplies x first
  void* out = nullptr;           // [rows, columns]
  void* scale = nullptr;         // see RowOutputArgs. Given to quantise: positive and normal. dequantise: given

  bool find_scale = false;    // quantise per_tensor: the scale is an output, amax of the tensor / largest code
  void* workspace = nullptr;  // quant_workspace_size() bytes where it is not 0, contents irrelevant
  std::size_t workspace_bytes = 0;

  std::int32_t rows = 0, columns = 0;
  std::int32_t inner_rows = 1;  // see RowStrides
  RowStrides x_strides{}, out_strides{};
  std::int64_t scale_stride = 0;                 // per_group, mx: between the scales of two rows
  std::int64_t scale_group_stride = 1;           // per_group: of two groups of columns; scales may be [groups, rows]
  ScaleLayout scale_layout = ScaleLayout::rows;  // of mx
  MxRounding mx_rounding = MxRounding::up;       // of mx
};

}  // namespace tilewave
