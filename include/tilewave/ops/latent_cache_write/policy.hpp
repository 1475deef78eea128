// SPDX-License-Identifier: MIT
// A policy says how rows are written into a latent cache. It changes only the speed.
#pragma once

#include "tilewave/ops/latent_cache_write/spec.hpp"
#include "tilewave/tile/row_policy.hpp"

namespace tilewave {

/// 64 lanes have a token, a unit of eight latent dimensions each, and eight of them one of the rotated dimensions.
/// Eight lanes have a head of q. Few tokens spread over more blocks if those are small.
using LatentCacheWritePolicy = RowPolicy;

constexpr std::array<LatentCacheWritePolicy, 2> latent_cache_write_policies(ArchId arch, const LatentCacheWriteSpec&) {
  LatentCacheWritePolicy many{.lanes = 64, .rows = 4, .chunks = 1, .waves_per_simd = per_arch(arch, 8, 8, 12)};
  LatentCacheWritePolicy few = many;
  few.rows = 1, few.waves_per_simd = per_arch(arch, 4, 4, 8);
  return {many, few};
}

}  // namespace tilewave
