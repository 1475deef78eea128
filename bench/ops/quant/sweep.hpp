// SPDX-License-Identifier: MIT
// The sweep of bench_quant: which configs, in which order. The order is part of the CSV contract.
#pragma once

#include <algorithm>
#include <vector>

#include "bench/ops/quant/op.hpp"

namespace tilewave::bench {

/// Per-token fp8 and i8 on the shapes of the performance goals and of decode; f16 to i8, as FlyDSL's
/// tests/kernels/test_quant.py; per-group and per-tensor scales; the hidden sizes of gpt-oss (2880), Llama 3 and 4 (4096,
/// 5120, 8192, 16384), DeepSeek-R1 and Kimi-K2 (7168); f32; the way back; MX formats. A config that comes up twice is one row.
inline std::vector<QuantCase> QuantOp::default_sweep(ArchId arch) {
  struct Extent {
    std::int32_t rows, columns;
  };
  using enum Scaling;
  const DType fp8 = facts_of(arch).fp8, bf16 = DType::bf16;
  std::vector<QuantCase> cases;
  const auto add = [&](Extent e, DType x, DType out, Scaling scale, bool given = false) {
    const QuantCase c{arch, {x, out, scale}, e.columns, e.rows, e.rows, given};
    if (std::find(cases.begin(), cases.end(), c) == cases.end()) cases.push_back(c);
  };
  constexpr Extent extents[] = {{32768, 8192}, {8192, 8192}, {4096, 8192}, {2048, 8192},
                                {4096, 4096},  {128, 8192},  {32, 5120}};
  for (const DType codes : {fp8, DType::i8})
    for (const Extent e : extents) add(e, bf16, codes, per_token);
  for (const std::int32_t rows : {4096, 2048, 8192}) add({rows, 8192}, DType::f16, DType::i8, per_token);
  for (const Extent e : extents) add(e, bf16, fp8, per_group);
  for (const bool given : {false, true})
    for (const Extent e : extents) add(e, bf16, fp8, per_tensor, given);
  for (const Scaling scale : {per_token, per_group})
    for (const std::int32_t columns : {2880, 4096, 5120, 7168, 8192, 16384}) add({4096, columns}, bf16, fp8, scale);
  constexpr Extent e{4096, 4096};
  add(e, DType::f32, fp8, per_token);
  add(e, DType::f16, fp8, per_token);
  add(e, bf16, DType::i8, per_group);
  add(e, bf16, DType::i8, per_tensor);
  for (const DType codes : {fp8, DType::i8})
    for (const Scaling scale : {per_token, per_tensor, per_group}) add({8192, 8192}, codes, bf16, scale, true);
  for (const DType out : {DType::f16, DType::f32}) add(e, fp8, out, per_token, true);
  if (facts_of(arch).mx) {
    for (const DType codes : {DType::fp4_e2m1, fp8, DType::fp6_e2m3})
      for (const std::int32_t rows : {32768, 4096, 128}) add({rows, 8192}, bf16, codes, mx);
    for (const MxRounding rounding : {MxRounding::floor, MxRounding::nearest}) {
      add({128, 4096}, bf16, fp8, mx);
      cases.back().mx_rounding = rounding;
    }
  }
  return cases;
}

/// What goes into the layers as fp8 of each token: hidden states, attention's output, the feed-forward's activation.
inline std::vector<QuantCase> QuantOp::model_cases(ArchId arch, const ModelStep& step) {
  std::vector<QuantCase> cases;
  for (const int batch : step.batch) {
    for (const int columns : {step.share.hidden, step.share.q_heads * step.share.head_size, step.share.intermediate}) {
      const QuantCase c{arch, {DType::bf16, facts_of(arch).fp8, Scaling::per_token}, columns, batch, batch, false};
      if (std::find(cases.begin(), cases.end(), c) == cases.end()) cases.push_back(c);
    }
  }
  return cases;
}

}  // namespace tilewave::bench
