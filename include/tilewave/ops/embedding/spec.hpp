// SPDX-License-Identifier: MIT
// What an embedding computes: changing any of it changes the answer.
#pragma once

#include <string>

#include "tilewave/core/dtype.hpp"

namespace tilewave {

/// out[t] = table[ids[t] - vocab_start] scale, one type throughout; with a scale of 1 to the bit, else by way of f32.
struct EmbeddingSpec {
  DType x = DType::bf16;  // of the table: f32, f16 or bf16

  friend constexpr bool operator==(const EmbeddingSpec&, const EmbeddingSpec&) = default;
};

/// `embedding.bf16`.
inline std::string name_of(const EmbeddingSpec& s) { return "embedding." + std::string(name_of(s.x)); }

}  // namespace tilewave
