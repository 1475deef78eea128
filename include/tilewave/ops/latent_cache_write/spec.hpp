// SPDX-License-Identifier: MIT
// A spec says what is written into a cache of latent attention. Changing a field changes the answer.
#pragma once

#include <string>

#include "tilewave/attention/latent_cache.hpp"
#include "tilewave/ops/rope/spec.hpp"

namespace tilewave {

/// Rows of new tokens go where mla_decode of the same kv, layout and head_size reads them: head_size - 64 latent
/// dimensions, which have passed their norm, and 64 of another tensor, which are rotated by the token's position. The
/// same launch may rotate the 64 last dimensions of q. All is computed in f32 and rounded once.
///
/// Codes of the plain layout are divided by the cache's scale, which is read. Scales of groups are found: the least
/// power of two, from 2^-126 on, under which no code of the group saturates.
struct LatentCacheWriteSpec {
  DType kv = DType::bf16;  // bf16, or the architecture's fp8
  LatentLayout layout = LatentLayout::plain;
  int head_size = 576;  // 576 or 512
  RopePairs pairs = RopePairs::neighbours;
  DType table = DType::f32;  // of cos and sin: bf16 or f32

  friend constexpr bool operator==(const LatentCacheWriteSpec&, const LatentCacheWriteSpec&) = default;

  TILEWAVE_HOST_DEVICE constexpr LatentRow row() const { return {kv, layout, head_size}; }
};

/// The dimensions that a position rotates.
inline constexpr int latent_rope_size = 64;

/// Returns the name of a spec, as `latent_cache_write.bf16.plain.h576.neighbours.table_f32`.
inline std::string name_of(const LatentCacheWriteSpec& s) {
  return "latent_cache_write." + std::string(name_of(s.kv)) + "." + name_of(s.layout) + ".h" +
         std::to_string(s.head_size) + "." + name_of(s.pairs) + ".table_" + std::string(name_of(s.table));
}

}  // namespace tilewave
