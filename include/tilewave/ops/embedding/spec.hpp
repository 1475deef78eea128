// SPDX-License-Identifier: MIT
// The spec says what an embedding computes. Changing it changes the answer.
#pragma once

#include <string>

#include "tilewave/core/dtype.hpp"

namespace tilewave {

/// out[t] = table[ids[t] - vocab_start] scale, with one type throughout. A scale of 1 copies bits; others multiply in
/// f32.
struct EmbeddingSpec {
  DType x = DType::bf16;  // type of the table: f32, f16 or bf16

  friend constexpr bool operator==(const EmbeddingSpec&, const EmbeddingSpec&) = default;
};

/// The name is like `embedding.bf16`.
inline std::string name_of(const EmbeddingSpec& s) { return "embedding." + std::string(name_of(s.x)); }

}  // namespace tilewave
