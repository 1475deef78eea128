// SPDX-License-Identifier: MIT
// The properties that the compiled code of choices of experts must have, for the gate of test/isa.
#pragma once

#include "test/isa/row_claims.hpp"
#include "tilewave/ops/topk_gating/registry.hpp"

namespace tilewave::test {

/// Sorted keys of 64 bits pass between lanes in two moves each, for every doubling of them.
template <ArchId arch>
ordered_json row_claims(const TopkGatingSpec& s, const TopkGatingPolicy& p) {
  const int turns = ceil_div(p.keep, min_of(p.lanes, 16));
  ordered_json claims = row_claims<arch>(RowUse{.row_outputs = 0}, s.x, s.x, Scaling::none, p);
  const int code = size_of(s.x) == 2 ? 2 : 1;  // keys of 32 bits have code of their own
  constexpr int choice = 4 + 4 + 4;            // weight, index, and slot * tokens + token
  int doublings = 0;
  while (p.lanes >> (doublings + 1) != 0) ++doublings;
  claims["wide_stores"] = 0;
  claims["dpp"] = 2 * p.keep * doublings;
  claims["barriers"] = 3;                              // of groups of experts
  claims["narrow_load_bytes"] = turns * size_of(s.x);  // logits of what was chosen by another score
  claims["narrow_store_bytes"] = code * choice * turns;
  claims["lds_bytes"] = 8 * p.rows * p.lanes * p.chunks;
  return claims;
}

}  // namespace tilewave::test
