// SPDX-License-Identifier: MIT
// The properties that the compiled code of quantisation and back must have, for the gate of test/isa.
#pragma once

#include "test/isa/row_claims.hpp"
#include "tilewave/ops/quant/registry.hpp"

namespace tilewave::test {

template <ArchId arch>
ordered_json row_claims(const QuantSpec& s, const RowPolicy& p) {
  RowUse use{.exchanges = 0, .values = 0};
  if (s.kind() == QuantKind::dequantise) use.scalar_loads = s.scale == Scaling::per_group ? p.chunks : 1;
  return row_claims<arch>(use, s.x, s.out, s.output().scale, p);
}

}  // namespace tilewave::test
