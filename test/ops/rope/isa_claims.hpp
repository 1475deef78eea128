// SPDX-License-Identifier: MIT
// The properties that the compiled code of rotary position embeddings must have, for the gate of test/isa.
#pragma once

#include "test/isa/row_claims.hpp"
#include "tilewave/ops/rope/registry.hpp"

namespace tilewave::test {

template <ArchId arch>
ordered_json row_claims(const RopeSpec& s, const RowPolicy& p) {
  const RowUse use{.exchanges = 0, .values = 0, .scalar_loads = 2};  // both words of a position
  ordered_json claims = row_claims<arch>(use, s.x, s.x, Scaling::none, p);
  const int columns = p.vec / size_of(s.x) * (kernel_spec(s).full_table ? 2 : 1);
  claims["wide_loads"] = p.chunks + 2 * columns * size_of(s.table) / 16;  // of heads, then of cos and sin
  return claims;
}

}  // namespace tilewave::test
