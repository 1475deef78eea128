// SPDX-License-Identifier: MIT
// How experts' results are reduced: changes the speed only.
#pragma once

#include "tilewave/ops/moe_reduce/spec.hpp"
#include "tilewave/tile/row_tiles.hpp"

namespace tilewave {

using MoeReducePolicy = RowPolicy;

/// Slots whose rows a lane has in flight together.
constexpr int moe_reduce_batch(const MoeReducePolicy& p, DType x) { return p.wide(x) ? 8 : 2; }

/// The policies that entries of a spec are built for: tiles of one access a lane and slot, and one for any alignment.
constexpr RowPolicies moe_reduce_policies(ArchId, const MoeReduceSpec& s) {
  RowPolicies all;
  for (const int lanes : {64, 128, 256}) {
    all.list[all.count++] = {.lanes = lanes, .rows = 256 / lanes, .chunks = 1, .waves_per_simd = 4};
  }
  all.list[all.count++] = {.lanes = 256, .chunks = 8, .vec = size_of(s.x), .span = 8, .waves_per_simd = 4};
  return all;
}

}  // namespace tilewave
