// SPDX-License-Identifier: MIT
// The strides of a problem as kernels of few rows take them.
#pragma once

#include "tilewave/core/status.hpp"
#include "tilewave/ops/gemm/problem.hpp"
#include "tilewave/tile/element.hpp"

namespace tilewave::detail {

/// The strides that kernels of few rows take, which must fit 32 bits. Where a stride counts only one row or layer, any
/// value is allowed, and 0 stands here.
struct GemmFewRowsStrides {
  // In elements, but a, b and their layers in units of 16 bytes, and code_layer in strips.
  std::int64_t a, b = 0, scale, out, residual;
  std::int64_t code_layer = 0, b_layer = 0, a_layer, scale_layer, out_layer, residual_layer, bias_layer, a_scale_layer;

  explicit GemmFewRowsStrides(const GemmProblem& p) {
    const auto if_counted = [](std::int64_t count, std::int64_t stride) { return count > 1 ? stride : 0; };
    const auto row_stride = [&](std::int64_t stride) { return if_counted(p.m, stride); };
    const auto layer_stride = [&](std::int64_t stride) { return if_counted(p.batch, stride); };
    const int unit = elements_of_unit(p.spec.a);
    a = row_stride(p.a_stride) / unit, a_layer = layer_stride(p.a_batch_stride) / unit;
    scale = p.spec.four_bit() ? if_counted(p.k / p.spec.scale_k, p.b_scale_k_stride) : 0;
    scale_layer = layer_stride(p.b_scale_batch_stride);
    out = row_stride(p.out_stride), out_layer = layer_stride(p.out_batch_stride);
    residual = row_stride(p.residual_stride), residual_layer = layer_stride(p.residual_batch_stride);
    if (p.spec.four_bit()) {
      code_layer = p.k > 0 ? layer_stride(p.b_batch_stride) / gemm_strip_elements(p) : 0;
    } else {
      b = if_counted(p.n, p.b_stride) / unit, b_layer = layer_stride(p.b_batch_stride) / unit;
    }
    bias_layer = layer_stride(p.bias_batch_stride), a_scale_layer = layer_stride(p.a_scale_batch_stride);
  }
  Status check() const {
    for (const std::int64_t stride : {a, b, scale, out, residual, code_layer, b_layer, a_layer, scale_layer, out_layer,
                                      residual_layer, bias_layer, a_scale_layer}) {
      if (stride != static_cast<std::int32_t>(stride))
        return {StatusCode::bad_stride, "few rows: a stride of 2^31 elements, strips or 16 bytes of an operand"};
    }
    return {};
  }
};

}  // namespace tilewave::detail
