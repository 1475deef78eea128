// SPDX-License-Identifier: MIT
// How an embedding is computed: changes the speed only.
#pragma once

#include "tilewave/ops/embedding/spec.hpp"
#include "tilewave/tile/row_tiles.hpp"

namespace tilewave {

using EmbeddingPolicy = RowPolicy;

/// The policies that entries of a spec are built for: tiles of few accesses a lane, and one for any alignment. Hopper
/// has 48 KB an SM under way with two accesses of 48 waves, whatever the width of a row.
constexpr RowPolicies embedding_policies(ArchId arch, const EmbeddingSpec& s) {
  RowPolicies all;
  all.list[all.count++] = {.lanes = 64, .rows = 4, .chunks = 1, .waves_per_simd = 8};
  if (facts_of(arch).family == Family::hopper) {
    all.list[all.count++] = {.lanes = 64, .rows = 4, .chunks = 2, .waves_per_simd = 12};
  } else {
    all.list[all.count++] = {.lanes = 128, .rows = 2, .chunks = 1, .waves_per_simd = 8};
    all.list[all.count++] = {.lanes = 256, .chunks = 2, .waves_per_simd = 8};
  }
  all.list[all.count++] = {.lanes = 256, .chunks = 8, .vec = size_of(s.x), .span = 8, .waves_per_simd = 8};
  return all;
}

}  // namespace tilewave
