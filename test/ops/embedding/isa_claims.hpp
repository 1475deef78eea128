// SPDX-License-Identifier: MIT
// The properties that the compiled code of embeddings must have, for the gate of test/isa.
#pragma once

#include "test/isa/row_claims.hpp"
#include "tilewave/ops/embedding/registry.hpp"

namespace tilewave::test {

template <ArchId arch>
ordered_json row_claims(const EmbeddingSpec& s, const RowPolicy& p) {
  const RowUse use{.exchanges = 0, .values = 0, .scalar_loads = 2};  // an id has two words
  return row_claims<arch>(use, s.x, s.x, Scaling::none, p);
}

}  // namespace tilewave::test
