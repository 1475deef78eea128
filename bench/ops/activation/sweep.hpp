// SPDX-License-Identifier: MIT
// The sweep of bench_activation: which configs, in which order. The order is part of the CSV contract.
#pragma once

#include <algorithm>
#include <vector>

#include "bench/ops/activation/op.hpp"

namespace tilewave::bench {

/// The feed-forward layers of Llama 3 8B and 70B, DeepSeek-V3's experts (16384 tokens x 8 of 2048 columns), GPT-OSS's and
/// Gemma 2's, at prefill and decode; then each function, type and output once.
inline std::vector<ActivationCase> ActivationOp::default_sweep(ArchId arch) {
  using enum ActivationKind;
  using enum Gating;
  const DType fp8 = facts_of(arch).fp8, bf16 = DType::bf16;
  std::vector<ActivationCase> cases;
  const auto add = [&](ActivationSpec spec, std::int32_t rows, std::int32_t columns) {
    cases.push_back({arch, spec, columns, rows, rows});
  };
  const ActivationSpec silu_and_mul{}, token{silu, halves, bf16, fp8, Scaling::per_token},
      group{silu, halves, bf16, fp8, Scaling::per_group}, tensor{silu, halves, bf16, fp8, Scaling::per_tensor},
      oss{swigluoai, interleaved, bf16, bf16};
  for (const ActivationSpec& spec : {silu_and_mul, token, group}) {
    for (const std::int32_t rows : {1, 16, 64, 4096, 16384}) add(spec, rows, 14336);
    add(spec, 4096, 28672);
    add(spec, 131072, 2048);
  }
  add(tensor, 4096, 14336);
  for (const std::int32_t rows : {4, 256, 16384}) add(oss, rows, 2880);
  add({swigluoai, interleaved, bf16, fp8, Scaling::per_token}, 16384, 2880);
  add({gelu_tanh, halves, bf16, bf16}, 4096, 14336);
  add({gelu, plain, bf16, bf16}, 8192, 16384);
  add({relu2, plain, bf16, bf16}, 8192, 18432);
  add({silu, halves, DType::f16, DType::f16}, 4096, 11008);
  add({gelu, halves, DType::f32, DType::f32}, 4096, 4096);
  add({relu, plain, DType::f16, DType::i8, Scaling::per_tensor}, 64, 1021);
  if (facts_of(arch).mx) {
    for (const DType codes : {DType::fp4_e2m1, fp8})
      for (const std::int32_t rows : {16, 4096}) add({silu, halves, bf16, codes, Scaling::mx}, rows, 14336);
    add({swigluoai, interleaved, bf16, DType::fp4_e2m1, Scaling::mx}, 16384, 2880);
  }
  return cases;
}

/// Of the feed-forward layer, plain and as fp8 of each token.
inline std::vector<ActivationCase> ActivationOp::model_cases(ArchId arch, const ModelStep& step) {
  std::vector<ActivationCase> cases;
  for (const int batch : step.batch) {
    const int columns = step.share.intermediate;
    cases.push_back({arch, {}, columns, batch, batch});
    const ActivationSpec token{.out = facts_of(arch).fp8, .scale = Scaling::per_token};
    cases.push_back({arch, token, columns, batch, batch});
  }
  return cases;
}

}  // namespace tilewave::bench
