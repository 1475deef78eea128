// SPDX-License-Identifier: MIT
// What stands beside weights of four bits in bench_gemm: the product that an engine would call without them, of 16-bit
// weights that hold the same values. Rows of fp8 become bf16, too.
#pragma once

#include <utility>

#include "bench/ops/gemm/tensors.hpp"
#include "tilewave/reference/gemm.hpp"

namespace tilewave::bench {

/// The operands of a four-bit config as bf16 or f16, rounded, and the problem that multiplies them.
struct WidenedOperands {
  TwinBuffer a, b;  // `a` is empty where A's rows are 16-bit already
  GemmProblem problem;
};

/// Widens the operands of `host`, a problem of one product whose tensors are on the host. The result is on the device,
/// and has the device's tensors of `device` for the rest.
inline WidenedOperands widened_operands(const GemmProblem& host, const GemmProblem& device, int threads) {
  const GemmSpec& s = host.spec;
  const DType type = s.a == DType::f16 ? DType::f16 : DType::bf16;
  const std::int64_t m = host.m, n = host.n, k = host.k;
  WidenedOperands widened;
  widened.b = TwinBuffer(static_cast<std::size_t>(n * k) * size_of(type));
  reference::parallel_for(n, threads, [&](std::int64_t row) {
    for (std::int64_t at = 0; at < k; ++at) {
      const std::int64_t scale = at / s.scale_k * host.b_scale_k_stride + row;
      const double value = s.weights == GemmWeights::fragments ? reference::fragment_value(host.b, row, at, k)
                                                               : reference::four_bit_value(s.b, host.b, row, at, k);
      const double weight = (value - (s.zero_points ? host.b_zero[scale] : 0)) *
                            reference::element(s.group_scale(), host.b_group_scale, scale);
      set_element(type, widened.b.host(), row * k + at, static_cast<float>(weight));
    }
  });
  widened.b.upload();
  GemmSpec spec{.a = type, .b = type, .out = s.out};
  spec.activation = s.activation, spec.gated = s.gated, spec.out_scale = s.out_scale;
  GemmProblem& p = widened.problem = device;
  p.spec = spec;
  p.b = widened.b.device(), p.b_stride = k;
  p.a_scale = nullptr, p.b_group_scale = nullptr, p.b_zero = nullptr;
  if (!is_fp8(s.a)) return widened;
  widened.a = TwinBuffer(static_cast<std::size_t>(m * k) * size_of(type));
  reference::parallel_for(m, threads, [&](std::int64_t row) {
    for (std::int64_t at = 0; at < k; ++at) {
      const double value = reference::element(s.a, host.a, row * host.a_stride + at) * host.a_scale[row];
      set_element(type, widened.a.host(), row * k + at, static_cast<float>(value));
    }
  });
  widened.a.upload();
  p.a = widened.a.device(), p.a_stride = k;
  return widened;
}

}  // namespace tilewave::bench
