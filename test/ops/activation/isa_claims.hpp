// SPDX-License-Identifier: MIT
// The properties that the compiled code of activations must have, for the gate of test/isa.
#pragma once

#include "test/isa/row_claims.hpp"
#include "tilewave/ops/activation/registry.hpp"

namespace tilewave::test {

template <ArchId arch>
ordered_json row_claims(const ActivationSpec& s, const RowPolicy& p) {
  const RowUse use{.inputs = s.gated() ? 2 : 1, .exchanges = 0, .values = 0};
  return row_claims<arch>(use, s.x, s.out, s.scale, p);
}

}  // namespace tilewave::test
