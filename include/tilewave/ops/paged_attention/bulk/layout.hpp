// SPDX-License-Identifier: MIT
// The constants, registers and shared memory of a staged decode kernel: what a lane of its wave group holds.
#pragma once

#include "tilewave/attention/arithmetic.hpp"
#include "tilewave/core/static_for.hpp"
#include "tilewave/ops/paged_attention/bulk/stages.hpp"

namespace tilewave {

/// Both products have 64 rows of the cache's side, tokens of K or dimensions of V, and a column a query row:
///   scores [tokens][rows] = K Q^T,   out [head_size][rows] = V^T P^T
/// so that a wave has 16 of every 64 tokens, then of every 64 dimensions, and a lane the same query rows in both. Of
/// every eight query rows j it holds two, e; of its wave's 16 tokens or dimensions two, h.
template <class B, PagedAttentionSpec S, PagedAttentionPolicy P>
struct PagedAttentionStagedLayout : AttentionArithmetic<B, S.quant, S.out, S.native> {
  static_assert(P.staged(), "this layout is of policies with stages in shared memory");
  static_assert(paged_attention_policy_status(B::facts.id, S, P).ok(),
                "a law of policies is broken: paged_attention_policy_status(arch, spec, policy).reason says which");
  using Room = B;
  using Place = PagedAttentionPlace;
  static constexpr PagedAttentionSpec spec = S;
  static constexpr PagedAttentionPolicy policy = P;

  static constexpr int waves = 4, lanes = B::facts.wave_lanes, group_lanes = waves * lanes;  // of a group
  static constexpr int groups = P.wave_groups();     // of a block: they take its stages in turn
  static constexpr int fetching = P.prefetch.waves;  // behind them: each a share of a stage's copies
  static constexpr int unit = S.unit(), head_size = S.head_size;
  static constexpr int stage_tokens = P.prefetch.stage_tokens, tiles = stage_tokens / 64, out_tiles = head_size / 64;
  static constexpr int rows = P.block_rows(), eights = rows / 8;
  // What Work asks of a layout: this one's waves do not differ in rows or tokens.
  static constexpr int block_rows = rows, wave_tokens = stage_tokens, block_tokens = stage_tokens, token_waves = 1,
                       row_tiles = 1, atom_rows = rows;

  static constexpr bool per_token = S.quant == Scaling::per_token;
  // fp8 goes by way of f16, one instruction a pair on sm90, and through registers. Rows of Q are brought into its range
  // by a power of two, and only a token's own scale of V could leave it.
  static constexpr bool widened = is_fp8(S.kv) && !S.native;
  static constexpr DType k_type = widened ? DType::f16 : S.kv;
  static constexpr DType v_type = widened ? (per_token ? S.value_type() : DType::f16) : S.kv;
  static constexpr int piece = 16 / size_of(k_type), step = 2 * piece;  // elements of k of an operand, and of a product
  static constexpr int steps = head_size / step;
  static constexpr bool scales_q = k_type != S.q;
  static constexpr float probability_scale =
      AttentionArithmetic<B, S.quant, S.out, S.native>::probability_scale_of(v_type);

  using Products = Vec<float, rows / 2>;
  /// Tiles of outputs that a group finishes, the first of its registers: all, or of two tiles each group one.
  static constexpr int own_tiles = ceil_div(out_tiles, groups);
  TILEWAVE_DEVICE static int own_tile(int n) { return groups == 1 ? n : group(); }

  static constexpr int pieces = head_size / 16;  // piece n, dimensions 16 n ..., is of wave n % 4
  /// What the blocks of a cluster tell each block at the end, {sum, sum, max, max} of two rows, and what they hand it:
  /// piece n goes to block n % cluster, as its n / cluster-th, from `cluster` sources.
  struct Received {
    Vec<float, 4> statistics[max_staged_splits][waves][eights][4];
    Vec<float, 4> share[max_of(pieces, max_staged_splits)][eights][lanes];
  };
  /// What a group hands to the other at the end: its share of a tile of outputs, and of its rows {sum, sum, max, max}.
  struct Handed {
    static constexpr int givers = groups > 1 ? group_lanes : 1;
    Vec<float, 4> out[eights][givers], rows[eights][givers];
  };
  struct OfGroup {
    struct Operands {
      Chunk q[head_size / piece][rows];        // 16 bytes of a row, in the order in which K has its dimensions
      Chunk p[2][stage_tokens / piece][rows];  // a stage's probabilities, in the order in which V has its tokens
    };
    union {
      Operands operand;
      Handed handed;  // when there are no more products
    };
    Vec<float, waves> of_wave[rows];     // maxima, at the end sums
    float q_scale[scales_q ? rows : 1];  // that rows of Q were divided by
  };
  struct Shared {
    PagedAttentionStages<PagedAttentionStagedLayout> ring;
    OfGroup of_group[groups];
    Mailbox mailbox;  // of what other blocks of the cluster send
  };

  struct State {
    Products out[out_tiles];               // not yet divided by the sum
    float row_max[eights][2];              // the group's reference, log2 units; -inf before the first token
    float row_sum[eights][2];              // this lane's tokens only
    float factor[eights][2];               // from products to log2 units
    std::int32_t causal_end[eights][2];    // first token the row may not see
    float slope[S.alibi ? eights : 1][2];  // of ALiBi, in log2 units
    float v_scale;                         // that outputs are still to be multiplied by
  };

  // Not from wave_id(), which asks the wave's first lane each time.
  TILEWAVE_DEVICE static int group() { return groups == 1 ? 0 : B::block_lane_id() / group_lanes; }
  TILEWAVE_DEVICE static int group_lane() {
    return groups == 1 ? B::block_lane_id() : B::block_lane_id() % group_lanes;
  }
  TILEWAVE_DEVICE static int wave() { return group_lane() / lanes; }

  /// Whether several blocks merge their parts of a context.
  TILEWAVE_DEVICE static bool clustered(const PagedAttentionArgs& a) { return !P.balanced() && a.cluster > 1; }

  /// The lane's token, of its wave's 16. Widened units are dealt out two elements a lane and half: element
  /// 4 c + 2 h + e of a unit is the product's 8 h + 2 c + e. fp8 of two tokens, neighbours, are stored as one element.
  TILEWAVE_DEVICE static int token_of(int lane, int h) {
    const int row = lane / 4;
    if (S.native) return 2 * row + h;
    return widened ? row / 2 * 4 + row % 2 + 2 * h : row + 8 * h;
  }
  /// The query row of the block that column e of the lane's eight j is.
  TILEWAVE_DEVICE static int query_of(int lane, int j, int e) { return 8 * j + 2 * (lane % 4) + e; }

  TILEWAVE_DEVICE static float& value(Products& p, int j, int h, int e) { return p[4 * j + 2 * h + e]; }
  TILEWAVE_DEVICE static float value(const Products& p, int j, int h, int e) { return p[4 * j + 2 * h + e]; }

  /// Call f(j, e) for every query row of the lane.
  template <class F>
  TILEWAVE_DEVICE static void each_row(F f) {
    TILEWAVE_UNROLL
    for (int j = 0; j < eights; ++j) {
      TILEWAVE_UNROLL
      for (int e = 0; e < 2; ++e) f(j, e);
    }
  }

  /// Combine a value over the lanes that share a query row.
  template <class F>
  TILEWAVE_DEVICE static float over_tokens(float x, F combine) {
    TILEWAVE_UNROLL
    for (int mask = 4; mask < lanes; mask *= 2) x = combine(x, B::shuffle_xor(x, mask));
    return x;
  }
};

}  // namespace tilewave
