// SPDX-License-Identifier: MIT
// The sweep of bench_attention_combine: which configs it has, in which order. The order is part of the CSV contract.
#pragma once

#include <vector>

#include "bench/ops/attention_combine/op.hpp"

namespace tilewave::bench {

/// Rows are sequences x heads of decode, 1 x 64 and 64 x 32, with as many partials as splitting makes. Then come the
/// two halves of a shared prefix, in the type of the model, with as many rows as a prefill has.
inline std::vector<AttentionCombineCase> AttentionCombineOp::default_sweep(ArchId arch) {
  std::vector<AttentionCombineCase> cases;
  const auto add = [&](DType x, DType out, std::int32_t rows, std::int32_t columns, std::int32_t partials) {
    cases.push_back({arch, {x, out}, columns, rows, rows, partials});
  };
  for (const int columns : {64, 128, 256}) {
    add(DType::f32, DType::bf16, 64, columns, 16);
    add(DType::f32, DType::bf16, 2048, columns, 8);
  }
  add(DType::f32, DType::f16, 64, 128, 128);
  add(DType::f32, DType::f32, 2048, 512, 4);
  add(DType::bf16, DType::bf16, 131072, 128, 2);
  add(DType::f16, DType::f16, 131072, 128, 2);
  add(DType::bf16, DType::f32, 2048, 80, 3);
  return cases;
}

/// Partials of contexts that are cut into eight.
inline std::vector<AttentionCombineCase> AttentionCombineOp::model_cases(ArchId arch, const ModelStep& step) {
  std::vector<AttentionCombineCase> cases;
  for (const int batch : step.batch) {
    const int rows = batch * step.share.q_heads;
    const Latent& latent = step.share.latent;
    cases.push_back({arch, {}, latent.any() ? latent.kv : step.share.head_size, rows, rows, 8});
  }
  return cases;
}

}  // namespace tilewave::bench
