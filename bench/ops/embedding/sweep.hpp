// SPDX-License-Identifier: MIT
// The sweep of bench_embedding: which configs, in which order. The order is part of the CSV contract.
#pragma once

#include <vector>

#include "bench/ops/embedding/op.hpp"

namespace tilewave::bench {

/// Llama 3 8B and 70B, GPT-OSS, DeepSeek-V3's hidden size, at decode and prefill; Gemma's scale; f16; f32.
inline std::vector<EmbeddingCase> EmbeddingOp::default_sweep(ArchId arch) {
  std::vector<EmbeddingCase> cases;
  const auto add = [&](DType x, std::int32_t rows, std::int32_t columns, std::int32_t vocab,
                       IndexType id_type = IndexType::i64, bool scaled = false) {
    cases.push_back({arch, {x}, columns, rows, rows, vocab, id_type, scaled});
  };
  const DType bf16 = DType::bf16;
  for (const int rows : {1, 64, 4096, 16384}) add(bf16, rows, 4096, 128256);
  for (const int rows : {64, 16384}) add(bf16, rows, 8192, 128256);
  add(bf16, 16384, 2880, 201088, IndexType::i32);
  add(bf16, 16384, 7168, 129280, IndexType::i32);
  add(bf16, 8192, 2880, 64000, IndexType::i64, true);
  add(DType::f16, 4096, 4096, 32768, IndexType::i32);
  add(DType::f32, 64, 1021, 4096, IndexType::i32, true);
  return cases;
}

/// Of a step's tokens, of one GPU's part of the vocabulary.
inline std::vector<EmbeddingCase> EmbeddingOp::model_cases(ArchId arch, const ModelStep& step) {
  std::vector<EmbeddingCase> cases;
  for (const int batch : step.batch) {
    cases.push_back({arch, {}, step.share.hidden, batch, batch, step.share.vocabulary_share(), IndexType::i64, false});
  }
  return cases;
}

}  // namespace tilewave::bench
