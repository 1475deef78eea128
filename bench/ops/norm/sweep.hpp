// SPDX-License-Identifier: MIT
// The sweep of bench_norm: which configs, in which order. The order is part of the CSV contract.
#pragma once

#include <algorithm>
#include <vector>

#include "bench/ops/norm/op.hpp"

namespace tilewave::bench {

/// Plain, with a residual and with per-token fp8 on the shapes of the performance goals; rmsnorm over the hidden sizes of
/// Qwen3 (q/k norm, 128), DeepSeek-R1 and Kimi-K2 (512, 1536, 7168), gpt-oss (2880), Llama 3 and 4; the other types and
/// outputs on one shape. A config that comes up twice is one row.
inline std::vector<NormCase> NormOp::default_sweep(ArchId arch) {
  struct Extent {
    std::int32_t rows, columns;
  };
  const DType fp8 = facts_of(arch).fp8;
  std::vector<NormCase> cases;
  const auto add = [&](NormKind kind, DType x, Extent e, DType out, Scaling scale, bool residual) {
    const NormCase c{arch, {kind, x, x, out, scale}, e.columns, e.rows, e.rows, residual};
    if (std::find(cases.begin(), cases.end(), c) == cases.end()) cases.push_back(c);
  };
  for (const NormKind kind : {NormKind::rms, NormKind::layer})
    for (const Extent e : {Extent{32768, 8192}, Extent{8192, 8192}, Extent{4096, 4096}, Extent{16384, 2048},
                           Extent{128, 8192}, Extent{32, 5120}}) {
      add(kind, DType::bf16, e, DType::bf16, Scaling::none, false);
      add(kind, DType::bf16, e, DType::bf16, Scaling::none, true);
      add(kind, DType::bf16, e, fp8, Scaling::per_token, false);
    }
  for (const std::int32_t columns : {128, 512, 1536, 2880, 4096, 5120, 7168, 8192, 16384}) {
    add(NormKind::rms, DType::bf16, {4096, columns}, DType::bf16, Scaling::none, false);
  }
  constexpr Extent e{4096, 4096};
  for (const NormKind kind : {NormKind::rms, NormKind::layer}) {
    for (const DType x : {DType::f16, DType::f32}) add(kind, x, e, x, Scaling::none, false);
    for (const Scaling scale : {Scaling::per_tensor, Scaling::per_group}) {
      add(kind, DType::bf16, e, fp8, scale, false);
    }
    for (const Scaling scale : {Scaling::per_token, Scaling::per_tensor}) {
      add(kind, DType::bf16, e, DType::i8, scale, false);
    }
  }
  if (facts_of(arch).mx) {
    for (const DType codes : {DType::fp4_e2m1, fp8})
      for (const bool residual : {false, true}) add(NormKind::rms, DType::bf16, e, codes, Scaling::mx, residual);
  }
  return cases;
}

/// With the residual, as bf16 and as the fp8 of the layer that follows.
inline std::vector<NormCase> NormOp::model_cases(ArchId arch, const ModelStep& step) {
  std::vector<NormCase> cases;
  for (const int batch : step.batch) {
    const NormSpec plain{};
    const NormSpec codes{.out = facts_of(arch).fp8, .scale = Scaling::per_token};
    for (const NormSpec& spec : {plain, codes}) cases.push_back({arch, spec, step.share.hidden, batch, batch, true});
  }
  return cases;
}

}  // namespace tilewave::bench
