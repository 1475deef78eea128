// SPDX-License-Identifier: MIT
// The sweep of bench_rope: which configs, in which order. The order is part of the CSV contract.
#pragma once

#include <vector>

#include "bench/ops/rope/op.hpp"

namespace tilewave::bench {

/// Tokens of decode and of prefill with the heads of Llama-3 8B, 70B and 405B, Qwen3-235B and GPT-OSS; then pairs of
/// neighbours, a partial rotation, a full table, and the other types.
inline std::vector<RopeCase> RopeOp::default_sweep(ArchId arch) {
  std::vector<RopeCase> cases;
  const auto add = [&](RopeSpec spec, std::int32_t tokens, int q_heads, int k_heads, int head_size, int rotary) {
    cases.push_back({arch, spec, q_heads, k_heads, head_size, rotary, tokens, tokens, (q_heads + k_heads) * head_size});
  };
  constexpr RopeSpec plain{DType::bf16, DType::f32};
  for (const int tokens : {1, 16, 64, 256, 4096}) add(plain, tokens, 32, 8, 128, 128);
  for (const int tokens : {1, 64, 4096}) {
    add(plain, tokens, 64, 8, 128, 128);
    add(plain, tokens, 128, 8, 128, 128);
    add(plain, tokens, 64, 4, 128, 128);
    add(plain, tokens, 64, 8, 64, 64);
  }
  add({DType::bf16, DType::bf16, RopePairs::neighbours}, 256, 32, 8, 128, 128);
  add({DType::bf16, DType::bf16, RopePairs::neighbours, true}, 256, 32, 8, 128, 64);
  add({DType::bf16, DType::bf16, RopePairs::halves, true}, 256, 32, 8, 128, 64);
  add({DType::f16, DType::f16}, 256, 32, 8, 128, 128);
  add({DType::f32, DType::f32}, 256, 32, 8, 128, 128);
  return cases;
}

/// A token of each sequence.
inline std::vector<RopeCase> RopeOp::model_cases(ArchId arch, const ModelStep& step) {
  std::vector<RopeCase> cases;
  const Model& m = step.share;
  for (const int batch : step.batch) {
    const RopeSpec spec{DType::bf16, DType::f32};
    const int size = m.latent.any() ? m.latent.rope : m.head_size;
    cases.push_back({arch, spec, m.q_heads, m.kv_heads, size, size, batch, batch, (m.q_heads + m.kv_heads) * size});
  }
  return cases;
}

}  // namespace tilewave::bench
