// SPDX-License-Identifier: MIT
// The policy says how experts' results are reduced. It changes only the speed.
#pragma once

#include "tilewave/ops/moe_reduce/spec.hpp"
#include "tilewave/tile/row_tiles.hpp"

namespace tilewave {

using MoeReducePolicy = RowPolicy;

/// Returns the slots whose rows a lane has in flight together: eight accesses in all.
constexpr int moe_reduce_batch(const MoeReducePolicy& p, DType x) { return p.wide(x) ? 8 / p.chunks : 2; }

/// Returns the same for problems whose topk is no larger. sm90's 80 registers a lane do not hold both loops without a
/// spill.
constexpr int moe_reduce_few(ArchId arch, const MoeReducePolicy& p, DType x) {
  const int batch = moe_reduce_batch(p, x);
  return batch < 4 || arch == ArchId::sm90 ? batch : 4;
}

/// Returns the policies that entries of a spec are built for: tiles of one access for each lane and slot, on sm90 also
/// tiles of more accesses where slots are few, and one for any alignment.
constexpr RowPolicies moe_reduce_policies(ArchId arch, const MoeReduceSpec& s) {
  RowPolicies all;
  // A table adds a latency before that of the rows: three blocks of an SM hide more of it than two.
  const int waves = per_arch(arch, 4, 4, 6);
  if (facts_of(arch).family == Family::hopper) {
    all.add({.lanes = 128, .rows = 2, .chunks = 4, .waves_per_simd = 6});
    all.add({.lanes = 128, .rows = 2, .chunks = 2, .waves_per_simd = 6});
  }
  for (const int lanes : {64, 128, 256}) {
    all.add({.lanes = lanes, .rows = 256 / lanes, .chunks = 1, .waves_per_simd = waves});
  }
  all.add({.lanes = 256, .chunks = 8, .vec = size_of(s.x), .span = 8, .waves_per_simd = 4});
  return all;
}

}  // namespace tilewave
