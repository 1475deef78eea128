// SPDX-License-Identifier: MIT
// The sweep of bench_sampling: which configs, in which order. The order is part of the CSV contract.
#pragma once

#include <vector>

#include "bench/ops/sampling/op.hpp"

namespace tilewave::bench {

/// Vocabularies of Llama 2 and 3, Qwen 3 and GPT-OSS with no filter; then the filters, alone and together, the largest
/// logit, and the other types.
inline std::vector<SamplingCase> SamplingOp::default_sweep(ArchId arch) {
  std::vector<SamplingCase> cases;
  const auto add = [&](DType x, std::int32_t rows, std::int32_t columns) -> SamplingCase& {
    return cases.emplace_back(SamplingCase{arch, {x}, columns, rows, rows});
  };
  for (const int columns : {32000, 128256, 151936, 201088}) {
    for (const int rows : {1, 16, 64, 256}) add(DType::bf16, rows, columns);
  }
  const auto filtered = [&](int top_k, int top_p, int min_p) {
    SamplingCase& c = add(DType::bf16, 64, 128256);
    c.top_k = top_k;
    c.top_p = top_p;
    c.min_p = min_p;
  };
  filtered(50, 100, 0);
  filtered(0, 90, 0);
  filtered(0, 100, 5);
  filtered(50, 90, 5);
  add(DType::bf16, 64, 128256).temperature = 0;
  add(DType::f16, 64, 128256);
  add(DType::f32, 64, 128256);
  SamplingCase& small = add(DType::bf16, 8, 1024);
  small.top_k = 20;
  small.top_p = 80;
  return cases;
}

inline std::vector<SamplingCase> SamplingOp::model_cases(ArchId arch, const ModelStep& step) {
  std::vector<SamplingCase> cases;
  for (const int batch : step.batch) cases.push_back({arch, {}, step.share.vocabulary, batch, batch});
  return cases;
}

}  // namespace tilewave::bench
