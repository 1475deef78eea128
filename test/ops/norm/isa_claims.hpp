// SPDX-License-Identifier: MIT
// The properties that the compiled code of norms must have, for the gate of test/isa.
#pragma once

#include "test/isa/row_claims.hpp"
#include "tilewave/ops/norm/registry.hpp"

namespace tilewave::test {

template <ArchId arch>
ordered_json row_claims(const NormSpec& s, const RowPolicy& p) {
  // Layers reduce the sum and the squares.
  const RowUse use{.inputs = 2, .row_outputs = 2, .values = s.kind == NormKind::layer ? 2 : 1, .scalar_stores = 2};
  return row_claims<arch>(use, s.x, s.out, s.scale, p);
}

}  // namespace tilewave::test
