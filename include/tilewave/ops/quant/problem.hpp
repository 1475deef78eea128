// SPDX-License-Identifier: MIT
// The problem describes one call of a quantisation or a dequantisation: raw pointers, extents, and int64 strides in
// elements.
#pragma once

#include <cstddef>

#include "tilewave/core/status.hpp"
#include "tilewave/ops/quant/spec.hpp"

namespace tilewave {

/// NaN and infinities. A NaN does not count for a scale; its own code is NaN in fp8 and 0 in i8, and its neighbours'
/// codes are as without it. An infinity makes its scale infinite, all finite codes under that scale 0, and its own code
/// NaN (i8: 0); dequantised, all of them are NaN. Under mx scales either makes the scale of its 32 values NaN, and
/// their codes mean nothing. Under a given scale, an infinity becomes the largest code.
struct QuantProblem {
  QuantSpec spec{};

  // tensors on the device; rows as RowStrides says, columns contiguous; no output overlaps another tensor
  const void* x = nullptr;       // [rows, columns]
  const void* smooth = nullptr;  // quantise: optional [columns], of x's type: multiplies x first
  void* out = nullptr;           // [rows, columns]
  // see RowOutputArgs; a scale that is given to quantise is positive and normal; dequantise: given
  void* scale = nullptr;

  bool find_scale = false;    // quantise per_tensor: the scale is an output, amax of the tensor / largest code
  void* workspace = nullptr;  // quant_workspace_size() bytes if that is not 0, with any contents
  std::size_t workspace_bytes = 0;

  std::int32_t rows = 0, columns = 0;
  std::int32_t inner_rows = 1;  // see RowStrides
  RowStrides x_strides{}, out_strides{};
  std::int64_t scale_stride = 0;                 // per_group, mx: from the scales of one row to the next
  std::int64_t scale_group_stride = 1;           // per_group: between groups of columns; scales may be [groups, rows]
  ScaleLayout scale_layout = ScaleLayout::rows;  // mx only
  MxRounding mx_rounding = MxRounding::up;       // mx only
};

}  // namespace tilewave
