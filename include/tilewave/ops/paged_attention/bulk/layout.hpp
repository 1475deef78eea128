// SPDX-License-Identifier: MIT
// The constants, registers and shared memory of a bulk decode kernel: what a lane of a wave group holds, and where.
//
// Both products of a wave group have 64 rows of the cache's side, tokens of K or dimensions of V. Their columns are the
// query rows of the block:
//     scores [tokens][rows] = K Q^T        out [head_size][rows] = V^T P^T
// Columns come in octets of eight. Wave w has rows 16 w to 16 w + 15 of every 64. A lane has two of these rows, `half`
// 0 and 1, and two columns of every octet, `r` 0 and 1. So a lane has the same query rows in both products:
//
//                             octet 0               octet 1
//     query row               0 1 2 3 4 5 6 7       8 9 ...
//     row lane / 4            a a b b c c d d       a a ...     half 0      a: the lane with lane % 4 == 0,
//     row lane / 4 + 8        a a b b c c d d       a a ...     half 1      b: 1, c: 2, d: 3
//
// Register 4 * octet + 2 * half + r of a product holds that element (PTX ISA, wgmma: register fragment of D).
#pragma once

#include "tilewave/attention/arithmetic.hpp"
#include "tilewave/core/static_for.hpp"
#include "tilewave/ops/paged_attention/bulk/stages.hpp"

namespace tilewave {

template <class B, PagedAttentionSpec S, PagedAttentionPolicy P>
struct PagedAttentionBulkLayout : AttentionArithmetic<B, S.quant, S.out, S.native> {
  static_assert(P.bulk(), "this layout is of policies with stages in shared memory");
  static_assert(paged_attention_policy_status(B::facts.id, S, P).ok(),
                "a law of policies is broken: paged_attention_policy_status(arch, spec, policy).reason says which");
  using Room = B;
  using WorkItem = PagedAttentionWorkItem;
  static constexpr PagedAttentionSpec spec = S;
  static constexpr PagedAttentionPolicy policy = P;

  static constexpr int waves = 4, lanes = B::facts.wave_lanes, wave_group_lanes = waves * lanes;  // of a wave group
  static constexpr int wave_groups = P.wave_groups();  // of a block; they take its stages by turns
  static constexpr int fetch_waves =
      P.prefetch.waves;  // behind the wave groups; each issues a part of a stage's copies
  static constexpr int unit = S.unit(), head_size = S.head_size;
  static constexpr int stage_tokens = P.prefetch.stage_tokens, tiles = stage_tokens / 64, out_tiles = head_size / 64;
  static constexpr int rows = P.block_rows(), row_octets = rows / 8;
  // What the work queue asks of a layout. The waves of this one do not differ in rows or tokens.
  static constexpr int block_rows = rows, wave_tokens = stage_tokens, block_tokens = stage_tokens, token_waves = 1,
                       row_tiles = 1, atom_rows = rows;

  static constexpr bool boxed = S.values == ValueLayout::token_major;  // stages are boxes of tensor copies
  static constexpr int boxes = head_size * size_of(S.kv) / 128;        // of a token
  static constexpr bool per_token = S.quant == Scaling::per_token;
  // fp8 is widened to f16 in registers, which takes one instruction a pair on sm90. A power of two brings rows of Q
  // into f16's range, so only a token's own scale of V could leave it.
  static constexpr bool widened = is_fp8(S.kv) && !S.native;
  static constexpr DType k_type = widened ? DType::f16 : S.kv;
  static constexpr DType v_type = widened ? (per_token ? S.value_type() : DType::f16) : S.kv;
  static constexpr int chunk_k = 16 / size_of(k_type), product_k = 2 * chunk_k;  // elements of k in 16 bytes, a product
  static constexpr int steps = head_size / product_k;
  static constexpr bool scales_q = k_type != S.q;
  static constexpr float probability_scale = PagedAttentionBulkLayout::probability_scale_of(v_type);

  using Products = Vec<float, rows / 2>;
  /// Output tiles that a wave group finishes, in the first of its registers. One group finishes all; of two groups each
  /// finishes one tile.
  static constexpr int finished_tiles = ceil_div(out_tiles, wave_groups);
  TILEWAVE_DEVICE static int finished_tile(int n) { return wave_groups == 1 ? n : wave_group(); }

  static constexpr int dim_blocks = head_size / 16;  // block n has dimensions 16 n to 16 n + 15, of wave n % 4
  /// What the blocks of a cluster send each block at the end: {sum, sum, max, max} of two rows, and outputs. Dimension
  /// block n goes to block n % cluster of the cluster, where it is number n / cluster, from each of `cluster` blocks.
  struct Received {
    Vec<float, 4> statistics[max_bulk_splits][waves][row_octets][4];
    Vec<float, 4> outputs[max_of(dim_blocks, max_bulk_splits)][row_octets][lanes];
  };
  /// What a wave group hands to the other one at the end: its part of one output tile, and {sum, sum, max, max} of
  /// rows.
  struct Exchange {
    static constexpr int lanes = wave_groups > 1 ? wave_group_lanes : 1;
    Vec<float, 4> out[row_octets][lanes], rows[row_octets][lanes];
  };
  struct GroupShared {
    struct Operands {
      Chunk q[head_size / chunk_k][rows];        // 16 bytes of a row, in the order in which K has its dimensions
      Chunk p[2][stage_tokens / chunk_k][rows];  // probabilities of a stage, in the order in which V has its tokens
    };
    union {
      Operands operand;
      Exchange exchange;  // once there are no more products
    };
    Vec<float, waves> wave_values[rows];  // of each wave: maxima, at the end sums
    float q_scale[scales_q ? rows : 1];   // what rows of Q were divided by
  };
  struct Shared {
    PagedAttentionStages<PagedAttentionBulkLayout> ring;
    GroupShared group[wave_groups];
    typename B::Mbarrier exchanged;  // completes when all waves that compute have stored what they hand over
    Mailbox mailbox;                 // counts what other blocks of the cluster send
  };

  struct State {
    Products out[out_tiles];                   // not yet divided by the sum
    float row_max[row_octets][2];              // the reference of the wave group, log2 units; -inf before any token
    float row_sum[row_octets][2];              // over this lane's tokens only
    float factor[row_octets][2];               // from products to log2 units
    std::int32_t causal_end[row_octets][2];    // first token that the row may not see
    float slope[S.alibi ? row_octets : 1][2];  // of ALiBi, in log2 units
    float v_scale;                             // what outputs are still to be multiplied by
  };

  // These do not use wave_id(), which asks the wave's first lane each time.
  TILEWAVE_DEVICE static int wave_group() { return wave_groups == 1 ? 0 : B::block_lane_id() / wave_group_lanes; }
  TILEWAVE_DEVICE static int wave_group_lane() {
    return wave_groups == 1 ? B::block_lane_id() : B::block_lane_id() % wave_group_lanes;
  }
  TILEWAVE_DEVICE static int wave() { return wave_group_lane() / lanes; }

  /// Returns whether several blocks merge their parts of a context.
  TILEWAVE_DEVICE static bool clustered(const PagedAttentionArgs& a) { return !P.balanced() && a.cluster > 1; }

  /// The token of a lane's half, of its wave's 16. A widened unit is dealt out in pairs: element 4 c + 2 half + e of it
  /// is row 8 half + 2 c + e of the product. fp8 of two neighbouring tokens is stored as one element.
  TILEWAVE_DEVICE static int token_of(int lane, int half) {
    const int row = lane / 4;
    if (S.native) return 2 * row + half;
    return widened ? row / 2 * 4 + row % 2 + 2 * half : row + 8 * half;
  }
  /// The query row of the block in column r of the lane's octet.
  TILEWAVE_DEVICE static int row_of(int lane, int octet, int r) { return 8 * octet + 2 * (lane % 4) + r; }

  TILEWAVE_DEVICE static float& value(Products& p, int octet, int half, int r) { return p[4 * octet + 2 * half + r]; }
  TILEWAVE_DEVICE static float value(const Products& p, int octet, int half, int r) {
    return p[4 * octet + 2 * half + r];
  }

  /// Calls f(octet, r) for every query row of the lane.
  template <class F>
  TILEWAVE_DEVICE static void each_row(F f) {
    TILEWAVE_UNROLL
    for (int octet = 0; octet < row_octets; ++octet) {
      TILEWAVE_UNROLL
      for (int r = 0; r < 2; ++r) f(octet, r);
    }
  }

  /// Combines a value over the lanes that share a query row.
  template <class F>
  TILEWAVE_DEVICE static float over_tokens(float x, F combine) {
    TILEWAVE_UNROLL
    for (int mask = 4; mask < lanes; mask *= 2) x = combine(x, B::shuffle_xor(x, mask));
    return x;
  }
};

}  // namespace tilewave
