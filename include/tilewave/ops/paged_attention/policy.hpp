// SPDX-License-Identifier: MIT
// How paged-attention decode is computed: may change the speed, never the answer beyond summation order.
#pragma once

#include <string>

#include "tilewave/arch/atom.hpp"
#include "tilewave/arch/facts.hpp"
#include "tilewave/ops/paged_attention/spec.hpp"
#include "tilewave/ops/paged_attention/value_tiles.hpp"

namespace tilewave {

/// Waves of a block: `rows` of them own different query rows of the same tokens, `tokens` of them different tokens.
struct PagedAttentionWaves {
  int rows = 1;
  int tokens = 4;
  friend constexpr bool operator==(const PagedAttentionWaves&, const PagedAttentionWaves&) = default;
};

/// The register ring that keeps KV loads in flight. A wave's tile of K, then of V, is cut along head_size into
/// `slices` equal parts; `stages` slices are in flight, so stages == 2 * slices is one whole tile ahead.
struct PagedAttentionPrefetch {
  int slices = 1;
  int stages = 2;
  friend constexpr bool operator==(const PagedAttentionPrefetch&, const PagedAttentionPrefetch&) = default;
};

struct PagedAttentionPolicy {
  int row_tiles = 1;  // 16-row tiles of queries one wave holds
  PagedAttentionWaves waves{};
  PagedAttentionPrefetch prefetch{};
  bool q_shared = false;   // keep Q fragments in LDS instead of registers
  int waves_per_simd = 2;  // occupancy claimed: sets the register budget, checked on the compiled code

  friend constexpr bool operator==(const PagedAttentionPolicy&, const PagedAttentionPolicy&) = default;

  TILEWAVE_HOST_DEVICE constexpr int waves_per_block() const { return waves.rows * waves.tokens; }
  /// Query rows one block holds.
  TILEWAVE_HOST_DEVICE constexpr int block_rows() const { return 16 * row_tiles * waves.rows; }
  /// Tokens a block advances by: every wave takes four 16-byte units of V, one per lane group.
  TILEWAVE_HOST_DEVICE constexpr int block_tokens(const PagedAttentionSpec& s) const {
    return waves.tokens * AtomFacts::groups * s.unit();
  }
};

/// `t256.r1.w1x4.p1x2`: block tokens, row tiles, waves rows x tokens, prefetch slices x stages, `.q` if Q is in LDS.
inline std::string name_of(const PagedAttentionPolicy& p, const PagedAttentionSpec& s) {
  return "t" + std::to_string(p.block_tokens(s)) + ".r" + std::to_string(p.row_tiles) + ".w" +
         std::to_string(p.waves.rows) + "x" + std::to_string(p.waves.tokens) + ".p" +
         std::to_string(p.prefetch.slices) + "x" + std::to_string(p.prefetch.stages) + (p.q_shared ? ".q" : "");
}

/// Compile-time legality of a policy for a spec on an atom; the kernel requires it, so a bad entry does not compile.
constexpr bool policy_fits(const AtomFacts& a, const PagedAttentionSpec& s, const PagedAttentionPolicy& p) {
  // 16-byte loads of K and V per lane and tile
  const int k_chunks = ceil_div(s.head_size, AtomFacts::groups * s.unit()) * (s.unit() / a.kv_per_lane);
  const ValueTiles values = value_tiles(a, s);
  const int per_tile = 2 * p.prefetch.slices;
  return p.row_tiles >= 1 && p.waves.rows >= 1 && p.waves.tokens >= 1 && p.waves.tokens <= 8 &&
         (p.waves.tokens & (p.waves.tokens - 1)) == 0 && s.head_size % 16 == 0 && p.prefetch.slices >= 1 &&
         k_chunks % p.prefetch.slices == 0 && values.count / values.width % p.prefetch.slices == 0 &&
         p.prefetch.stages >= 1 && (per_tile % p.prefetch.stages == 0 || p.prefetch.stages % per_tile == 0);
}

}  // namespace tilewave
