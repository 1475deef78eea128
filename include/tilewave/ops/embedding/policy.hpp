// SPDX-License-Identifier: MIT
// The policy says how an embedding is computed. It changes only the speed.
#pragma once

#include "tilewave/ops/embedding/spec.hpp"
#include "tilewave/tile/row_tiles.hpp"

namespace tilewave {

using EmbeddingPolicy = RowPolicy;

/// Returns the policies that entries of a spec are built for: tiles of few accesses a lane, and one for any alignment.
/// With two accesses of 48 waves Hopper has 48 KB in flight on an SM, whatever the width of a row.
constexpr RowPolicies embedding_policies(ArchId arch, const EmbeddingSpec& s) {
  RowPolicies all;
  all.add({.lanes = 64, .rows = 4, .chunks = 1, .waves_per_simd = 8});
  if (facts_of(arch).family == Family::hopper) {
    all.add({.lanes = 64, .rows = 4, .chunks = 2, .waves_per_simd = 12});
  } else {
    all.add({.lanes = 128, .rows = 2, .chunks = 1, .waves_per_simd = 8});
    all.add({.lanes = 256, .chunks = 2, .waves_per_simd = 8});
  }
  all.add({.lanes = 256, .chunks = 8, .vec = size_of(s.x), .span = 8, .waves_per_simd = 8});
  return all;
}

}  // namespace tilewave
