// SPDX-License-Identifier: MIT
// The properties that the compiled code of softmaxes must have, for the gate of test/isa.
#pragma once

#include "test/isa/row_claims.hpp"
#include "tilewave/ops/softmax/registry.hpp"

namespace tilewave::test {

template <ArchId arch>
ordered_json row_claims(const SoftmaxSpec& s, const RowPolicy& p) {
  const RowUse use{.values = 2, .scalar_loads = 1, .scalar_stores = 1};  // maximum and sum together
  return row_claims<arch>(use, s.x, s.x, Scaling::none, p);
}

}  // namespace tilewave::test
