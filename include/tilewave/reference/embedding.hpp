// SPDX-License-Identifier: MIT
// Embeddings in double. They are the oracle of tests and benchmarks.
#pragma once

#include "tilewave/ops/embedding/problem.hpp"
#include "tilewave/reference/rows.hpp"

namespace tilewave::reference {

/// Returns an element of a row of an embedding whose tensors are on the host.
inline double embedded(const EmbeddingProblem& p, std::int32_t row, std::int32_t column) {
  const std::int64_t id = p.id_type == IndexType::i64 ? static_cast<const std::int64_t*>(p.ids)[row]
                                                      : static_cast<const std::int32_t*>(p.ids)[row];
  if (id < p.vocab_start || id - p.vocab_start >= p.vocab_rows) return 0;
  return p.scale * element(p.spec.x, p.table, (id - p.vocab_start) * p.table_stride + column);
}

}  // namespace tilewave::reference
