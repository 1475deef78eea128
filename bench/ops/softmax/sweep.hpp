// SPDX-License-Identifier: MIT
// The sweep of bench_softmax: which configs, in which order. The order is part of the CSV contract.
#pragma once

#include <vector>

#include "bench/ops/softmax/op.hpp"

namespace tilewave::bench {

/// The shapes of the performance goals, vocabularies included; those of FlyDSL's tests/kernels/test_softmax.py; a log
/// softmax; the causal scores of 256 sequences of 16 queries each.
inline std::vector<SoftmaxCase> SoftmaxOp::default_sweep(ArchId arch) {
  std::vector<SoftmaxCase> cases;
  const auto add = [&](SoftmaxKind kind, DType x, std::int32_t rows, std::int32_t columns, std::int32_t queries = 0) {
    cases.push_back({arch, {kind, x}, columns, rows, rows, queries});
  };
  using enum SoftmaxKind;
  add(softmax, DType::bf16, 32768, 8192);
  add(softmax, DType::bf16, 8192, 8192);
  add(softmax, DType::bf16, 4096, 4096);
  add(softmax, DType::bf16, 1024, 131072);
  add(softmax, DType::bf16, 256, 262144);
  add(softmax, DType::f32, 64, 256);
  add(softmax, DType::f32, 128, 1024);
  add(softmax, DType::f16, 32, 128);
  add(softmax, DType::f32, 64, 2000);
  add(softmax, DType::bf16, 16, 512);
  add(softmax, DType::bf16, 1024, 8192);
  add(log_softmax, DType::bf16, 4096, 4096);
  add(softmax, DType::bf16, 4096, 4096, 16);
  return cases;
}

/// Over the vocabulary, for sampling.
inline std::vector<SoftmaxCase> SoftmaxOp::model_cases(ArchId arch, const ModelStep& step) {
  std::vector<SoftmaxCase> cases;
  for (const int batch : step.batch) cases.push_back({arch, {}, step.share.vocabulary, batch, batch});
  return cases;
}

}  // namespace tilewave::bench
