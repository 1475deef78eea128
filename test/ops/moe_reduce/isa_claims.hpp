// SPDX-License-Identifier: MIT
// The properties that the compiled code of reductions of experts' results must have, for the gate of test/isa.
#pragma once

#include "test/isa/row_claims.hpp"
#include "tilewave/ops/moe_reduce/registry.hpp"

namespace tilewave::test {

template <ArchId arch>
ordered_json row_claims(const MoeReduceSpec& s, const RowPolicy& p) {
  const int batch = moe_reduce_batch(p, s.x), few = moe_reduce_few(arch, p, s.x);
  // A slot's weight, place, expert and mask; the rows of a batch, those of the one for few slots, and the residual's.
  const int slots = batch + (few < batch ? few : 0);
  const RowUse use{.inputs = slots + 1, .exchanges = 0, .values = 0, .scalar_loads = 4 * slots};
  ordered_json claims = row_claims<arch>(use, s.x, s.x, Scaling::none, p);
  if (p.vec == 16) claims["bytes_in_flight"] = batch * p.chunks * p.vec;
  return claims;
}

}  // namespace tilewave::test
