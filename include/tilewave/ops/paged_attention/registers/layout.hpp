// SPDX-License-Identifier: MIT
// The constants, registers and shared memory of a decode kernel whose K and V go straight to registers: what a lane
// holds, and where.
#pragma once

#include <type_traits>

#include "tilewave/attention/arithmetic.hpp"
#include "tilewave/core/static_for.hpp"
#include "tilewave/ops/paged_attention/registers/paged_kv.hpp"
#include "tilewave/ops/paged_attention/work_item.hpp"

namespace tilewave {

template <class B, PagedAttentionSpec S, PagedAttentionPolicy P>
struct PagedAttentionLayout : AttentionArithmetic<B, S.quant, S.out, S.native> {
  static_assert(!P.bulk(), "this layout is of policies straight to registers");
  static_assert(paged_attention_policy_status(B::facts.id, S, P).ok(),
                "a law of policies is broken: paged_attention_policy_status(arch, spec, policy).reason says which");
  using Room = B;
  using Kv = PagedKv<B, S>;
  using Values = typename Kv::Values;
  using Map = LaneMap<B>;
  using Scores = typename B::Accumulator;  // [rows_per_lane][kv_per_lane]
  using RowsOperand = typename B::RowsOperand;

  static constexpr PagedAttentionSpec spec = S;
  static constexpr PagedAttentionPolicy policy = P;
  static constexpr AtomFacts atom = B::atom;
  static constexpr int lanes = atom.lanes, unit = S.unit(), wave_tokens = Kv::wave_tokens;
  static constexpr int atom_rows = atom.rows, atom_kv = atom.kv;
  static constexpr int wave_rows = P.waves.rows, token_waves = P.waves.tokens, block_rows = P.block_rows();
  static constexpr int block_tokens = token_waves * wave_tokens;
  static constexpr int row_tiles = P.row_tiles, rows_per_lane = atom.rows_per_lane, kv_per_lane = atom.kv_per_lane;
  static constexpr int score_tiles = unit / kv_per_lane;  // of a wave tile
  static constexpr int steps = unit / atom.k_per_lane;    // products that take one 16-byte unit
  static constexpr int k_units = Kv::k_units;             // K units a lane reads per token
  static constexpr int out_tiles = Values::tiles.count;   // of head dimensions, see value_tiles.hpp
  static constexpr int slices = P.prefetch.slices, stages = P.prefetch.stages;
  static constexpr int slices_per_tile = 2 * slices;                     // K slices, then V slices
  static constexpr int k_slice_chunks = k_units * score_tiles / slices;  // 16-byte loads of a lane
  static constexpr int v_slice_chunks = out_tiles / slices;
  using Ring = Chunk[max_of(k_slice_chunks, v_slice_chunks)];
  static constexpr int tiles_ahead = ceil_div(stages, slices_per_tile);
  static constexpr int unrolled_tiles = max_of(1, stages / slices_per_tile);
  static constexpr bool stream = P.waves.rows == 1;  // else other waves read the same K and V again

  static constexpr int q_operands = k_units * steps;  // per row tile
  // Where the room multiplies fp8, K goes into its product as it is stored, and a row of Q as two fp8 terms
  // (SplitQuery).
  static constexpr bool fp8_keys = Fp8AtomBackend<B> && is_fp8(S.kv) && S.q == DType::bf16;
  static constexpr float probability_scale = PagedAttentionLayout::probability_scale_of(S.value_type());

  // The merge passes outputs through LDS in batches of at most 8 KiB a wave, so that it never limits occupancy.
  static constexpr int merge_tiles = largest_divisor(row_tiles * out_tiles, 8192 / (lanes * int{sizeof(Scores)}));

  // Q is read until the last tile, and the merge starts behind a barrier. So they share their bytes.
  struct Shared {
    union {
      RowsOperand q[P.q_shared ? wave_rows * row_tiles * q_operands : 1][P.q_shared ? lanes : 1];
      Scores out[token_waves > 1 ? wave_rows : 1][max_of(1, token_waves / 2)][token_waves > 1 ? merge_tiles : 1][lanes];
    };
    float row_max[wave_rows][token_waves][row_tiles * atom_rows];
    float row_sum[wave_rows][token_waves][row_tiles * atom_rows];
  };

  struct State {
    RowsOperand q[P.q_shared ? 1 : row_tiles][P.q_shared ? 1 : q_operands];
    Scores out[row_tiles][out_tiles];                        // not yet divided by row_sum
    float row_max[row_tiles][rows_per_lane];                 // log2 units, -inf before the first token
    float row_sum[row_tiles][rows_per_lane];                 // this lane's tokens only
    std::int32_t causal_end[row_tiles][rows_per_lane];       // first token that the row may not see
    float slope[S.alibi ? row_tiles : 1][rows_per_lane];     // of ALiBi, in log2 units
    float q_scale[fp8_keys ? row_tiles : 1][rows_per_lane];  // what the row of Q was divided by
    Ring ring[stages];
    typename Kv::Cursor cursors[tiles_ahead + 1];  // of the current tile and those being loaded
    typename Kv::Pages pages;                      // looked up for the next cursor
  };

  using WorkItem = PagedAttentionWorkItem;

  /// B::lane_id(). A balanced block hides it from the compiler. Otherwise everything that depends on it alone would be
  /// computed once, and kept in registers through the steady loop of every work item.
  TILEWAVE_DEVICE static int lane_id() {
    if constexpr (P.balanced()) return B::opaque(B::lane_id());
    return B::lane_id();
  }

  /// Sets up row r of tile t before its first token. `row` may be past the last row.
  TILEWAVE_DEVICE static void begin_row(const PagedAttentionArgs& a, const WorkItem& item, State& s, int t, int r,
                                        std::int32_t row) {
    const QueryRow query = query_row(a, item, min_of(row, a.rows - 1));
    s.causal_end[t][r] = item.end - a.query_tokens + 1 + query.token;
    s.row_max[t][r] = PagedAttentionLayout::minus_infinity;
    s.row_sum[t][r] = 0.0f;
    if constexpr (S.alibi) s.slope[t][r] = B::load(a.alibi_slopes + query.head) * log2_e;
  }

  /// The token, counted from the tile's first, of element e of the scores in a lane group. It is the token of element e
  /// of the group's unit of V.
  TILEWAVE_HOST_DEVICE static constexpr std::int32_t token_of(std::int32_t lane_group, std::int32_t e) {
    return lane_group * unit + e;
  }

  /// The operand of product `step` of a unit.

  TILEWAVE_DEVICE static typename B::KvOperand operand(const Vec<std::uint32_t, unit / 2>& words, int step) {
    typename B::KvOperand kv;
    TILEWAVE_UNROLL
    for (int w = 0; w < atom.k_per_lane / 2; ++w) kv[w] = words[step * atom.k_per_lane / 2 + w];
    return kv;
  }

  /// The score of row r for element e of the lane's unit, a token.
  TILEWAVE_DEVICE static float& score(Scores (&tiles)[score_tiles], int r, int e) {
    return tiles[e / kv_per_lane][r * kv_per_lane + e % kv_per_lane];
  }

  /// Calls f(t, r) for every row of the lane, row r of tile t.
  template <class F>
  TILEWAVE_DEVICE static void each_row(F f) {
    TILEWAVE_UNROLL
    for (int t = 0; t < row_tiles; ++t) {
      TILEWAVE_UNROLL
      for (int r = 0; r < rows_per_lane; ++r) f(t, r);
    }
  }

  /// Multiplies the outputs of row r of tile t.
  TILEWAVE_DEVICE static void scale_row(State& s, int t, int r, float factor) {
    TILEWAVE_UNROLL
    for (int d = 0; d < out_tiles; ++d) {
      TILEWAVE_UNROLL
      for (int c = 0; c < kv_per_lane; ++c) s.out[t][d][r * kv_per_lane + c] *= factor;
    }
  }

  /// The n-th of the Values::run output dimensions that a lane holds for row r in a block of output tiles.
  TILEWAVE_DEVICE static float out_value(const State& s, int t, int r, int block, int n) {
    return s.out[t][block * Values::width + Values::tile_of(n)][r * kv_per_lane + Values::column_of(n)];
  }
  /// Calls f(block, n) for every `count` neighbouring dimensions of a lane's output. The first is the n-th of its run
  /// in the block.
  template <int count, class F>
  TILEWAVE_DEVICE static void each_dims(F f) {
    static_assert(Values::run % count == 0 && S.head_size % count == 0,
                  "neighbouring dimensions do not cross the end of a lane's run or of the head");
    TILEWAVE_UNROLL
    for (int block = 0; block < out_tiles / Values::width; ++block) {
      TILEWAVE_UNROLL
      for (int n = 0; n < Values::run; n += count) {
        if (Values::padded && Values::first_held(block, Map::group(B::lane_id())) + n >= S.head_size) continue;
        f(block, n);
      }
    }
  }
  /// Combines a value over the four lane groups that share a row.
  template <class F>
  TILEWAVE_DEVICE static float over_lane_groups(float x, F combine) {
    x = combine(x, B::shuffle_xor(x, Map::lane_of(0, 1)));
    return combine(x, B::shuffle_xor(x, Map::lane_of(0, 2)));
  }
};

}  // namespace tilewave
