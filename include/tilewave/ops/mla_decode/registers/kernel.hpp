// SPDX-License-Identifier: MIT
// Decode of latent attention with the cache straight to registers takes what no other kernel does: any layout, page
// size or number of rows.
//
// Grid: by the schedule of the policy (work.hpp). A block has P.rows query rows, query tokens times
// heads, and walks their tokens in tiles of P.tokens. For scores, each of its four waves has 32 tokens of a tile. For
// values, each has 128 of the 512 output columns and all tokens of the tile. So a block reads a row of the cache twice,
// the second time from L2, and each wave holds a quarter of the sums. Shared memory: q, probabilities of a tile, and
// what waves tell each other of maxima and sums. Probabilities lie there as they are in the registers of the lane that
// made them, since all waves have the same lane map (arch/atom.hpp, "chained"). Bound: reads of the cache.
#pragma once

#include "tilewave/attention/value_tiles.hpp"
#include "tilewave/ops/mla_decode/registers/query.hpp"
#include "tilewave/ops/mla_decode/row_output.hpp"
#include "tilewave/ops/mla_decode/work.hpp"

namespace tilewave {

template <class B, MlaDecodeSpec S, MlaDecodePolicy P>
struct MlaDecodeRegisters : MlaDecodeQueued<P> {
  static_assert(mla_decode_policy_status(B::facts.id, S, P).ok(),
                "a law of policies is broken: mla_decode_policy_status(arch, spec, policy).reason says which");
  using Room = B;
  using Args = MlaDecodeArgs;
  static constexpr MlaDecodeSpec spec = S;
  static constexpr int lanes = B::facts.wave_lanes, waves = P.waves;
  static constexpr int block_threads = waves * lanes, waves_per_simd = P.waves_per_simd;
  using MlaDecodeQueued<P>::row_tiles, MlaDecodeQueued<P>::atom_rows;

 private:
  using Query = MlaDecodeQuery<B, S, P>;
  using Map = LaneMap<B>;
  using Scores = typename Query::Scores;  // [rows_per_lane][kv_per_lane]
  using RowsOperand = typename B::RowsOperand;
  using Tokens = typename Query::Tokens;
  using Work = MlaDecodeWork<MlaDecodeRegisters>;
  using Item = PagedAttentionWorkItem;
  static constexpr int unit = Query::unit, groups = Query::groups;
  static constexpr int rows_per_lane = Query::rows_per_lane, kv_per_lane = Query::kv_per_lane;
  static constexpr int score_tiles = Query::score_tiles, k_slices = Query::k_slices;
  static constexpr int tile_tokens = groups * unit;  // of a wave
  static constexpr int part_columns = latent_value_size / waves;
  static constexpr ValueShape part{2, part_columns, ValueLayout::token_major};
  using Values = ValueMap<B, part>;
  using Transpose = ValueTranspose<B, part>;
  static_assert(Values::width == unit, "a lane loads a unit of dimensions of V at a time");
  static constexpr int out_tiles = Values::tiles.count;
  static constexpr float max_slack = 8.0f;  // log2 units by which a maximum may exceed the reference, see softmax
  static constexpr bool one_scale = is_fp8(S.kv) && S.layout == LatentLayout::plain;

 public:
  struct Shared {
    typename Query::Rows q;
    Chunk probabilities[waves][row_tiles][rows_per_lane][lanes];
    float maximum[waves][P.rows], sum[waves][P.rows];
  };

  static Status prepare(const MlaDecodeProblem& p, Args& args) {
    args = mla_decode_args(p, P, B::facts);
    return {};
  }

  TILEWAVE_DEVICE static void run(const Args& args, Shared& shared) {
    for (Work work(args.attention); work.more(); work.next()) {
      const Item item = work.item();
      State s;
      begin(args, item, s, shared);
      walk(args, work.table(), item, s, shared);
      finish(args.attention, item, s, shared);
    }
  }

 private:
  struct Row {
    std::int32_t row, causal_end;  // of the sequence; the first token that the row does not see
    float reference, sum;          // log2 units, -inf before the first token; sum of this lane's tokens
  };
  struct State {
    Scores out[row_tiles][out_tiles];
    Row row[row_tiles][rows_per_lane];
    float scale;  // scores times scale are log2 units
    int wave;
  };

  template <class F>
  TILEWAVE_DEVICE static void each_row(const F& f) {
    TILEWAVE_UNROLL
    for (int t = 0; t < row_tiles; ++t) {
      TILEWAVE_UNROLL
      for (int r = 0; r < rows_per_lane; ++r) f(t, r);
    }
  }

  TILEWAVE_DEVICE static void begin(const Args& args, const Item& item, State& s, Shared& shared) {
    const PagedAttentionArgs& a = args.attention;
    s.scale = a.scale_log2;
    s.wave = B::wave_id();
    if constexpr (one_scale) s.scale *= B::load(a.k_scale);
    if constexpr (is_fp8(S.q)) s.scale *= B::load(args.q_scale);
    each_row([&](int t, int r) TILEWAVE_INLINE_LAMBDA {
      Row& row = s.row[t][r];
      row.row = min_of(item.first_row + t * atom_rows + Map::row(B::lane_id(), r), a.rows - 1);
      row.causal_end = item.end - a.query_tokens + query_row(a, item, row.row).token + 1;
      row.reference = minus_infinity;
      row.sum = 0.0f;
    });
    TILEWAVE_UNROLL
    for (int t = 0; t < row_tiles; ++t) {
      TILEWAVE_UNROLL
      for (int d = 0; d < out_tiles; ++d) s.out[t][d] = Scores{};
    }
    Query::load(a, item, s.wave, shared.q);
    B::barrier();
  }

  TILEWAVE_DEVICE static void walk(const Args& args, const std::int32_t* table, const Item& item, State& s,
                                   Shared& shared) {
    if (item.tiles == 0) return;
    const Tokens tokens{args, table, item.end - 1};
    TILEWAVE_ROLL
    for (std::int32_t i = 0; i < item.tiles; ++i) {
      const std::int32_t tile = item.begin + i * P.tokens;
      Scores scores[row_tiles][score_tiles] = {};
      Query::multiply(tokens, tile + tile_tokens * s.wave, shared.q, scores);
      mask(item, tile, s, scores);
      softmax(s, scores, shared);
      B::barrier();  // all probabilities are there
      multiply_values(tokens, tile, s, shared);
    }
  }

  /// Returns the score of row r of the lane for token e of the lane group's unit.
  TILEWAVE_DEVICE static float& score(Scores (&scores)[score_tiles], int r, int e) {
    return scores[e / kv_per_lane][r * kv_per_lane + e % kv_per_lane];
  }

  /// Scores become log2 units, and -inf for tokens that the row does not see.
  TILEWAVE_DEVICE static void mask(const Item& item, std::int32_t tile, const State& s,
                                   Scores (&scores)[row_tiles][score_tiles]) {
    const std::int32_t first = tile + tile_tokens * s.wave + unit * Map::group(B::lane_id());
    const bool edge = item.is_edge(tile, P.tokens);
    each_row([&](int t, int r) TILEWAVE_INLINE_LAMBDA {
      TILEWAVE_UNROLL
      for (int e = 0; e < unit; ++e) {
        float& x = score(scores[t], r, e);
        x *= s.scale;
        if (edge && first + e >= s.row[t][r].causal_end) x = minus_infinity;
      }
    });
  }

  /// Combines a value over the four lane groups that share a row.
  template <class Op>
  TILEWAVE_DEVICE static float over_groups(float x, Op op) {
    x = op(x, B::shuffle_xor(x, Map::lane_of(0, 1)));
    return op(x, B::shuffle_xor(x, Map::lane_of(0, 2)));
  }
  /// Returns a row's value of all waves, which they left in shared memory.
  template <class Op>
  TILEWAVE_DEVICE static float over_waves(const float (&of)[waves][P.rows], int t, int r, Op op) {
    const int row = t * atom_rows + Map::row(B::lane_id(), r);
    float x = of[0][row];
    TILEWAVE_UNROLL
    for (int w = 1; w < waves; ++w) x = op(x, of[w][row]);
    return x;
  }
  /// Leaves a row's value for the other waves.
  TILEWAVE_DEVICE static void publish(float (&of)[P.rows], int t, int r, float x) {
    if (Map::group(B::lane_id()) == 0) of[t * atom_rows + Map::row(B::lane_id(), r)] = x;
  }

  /// Turns the wave's scores into probabilities in shared memory. All waves have the same reference for a row. It
  /// follows the row's maximum when that is more than 2^8 times larger, so sums and outputs are seldom scaled.
  TILEWAVE_DEVICE static void softmax(State& s, Scores (&scores)[row_tiles][score_tiles], Shared& shared) {
    each_row([&](int t, int r) TILEWAVE_INLINE_LAMBDA {
      float largest = score(scores[t], r, 0);
      TILEWAVE_UNROLL
      for (int e = 1; e < unit; ++e) largest = Max{}(largest, score(scores[t], r, e));
      publish(shared.maximum[s.wave], t, r, over_groups(largest, Max{}));
    });
    B::barrier();  // maxima are there, and nobody reads the probabilities of the tile before
    each_row([&](int t, int r) TILEWAVE_INLINE_LAMBDA {
      Row& row = s.row[t][r];
      const float largest = over_waves(shared.maximum, t, r, Max{});
      const float raised = largest > row.reference + max_slack ? largest : row.reference;
      const float reference = raised == minus_infinity ? 0.0f : raised;  // no token was seen yet
      const float factor = B::exp2(row.reference - reference);
      row.reference = raised;
      row.sum *= factor;
      if (B::any(factor != 1.0f)) {
        TILEWAVE_UNROLL
        for (int d = 0; d < out_tiles; ++d) {
          TILEWAVE_UNROLL
          for (int c = 0; c < kv_per_lane; ++c) s.out[t][d][r * kv_per_lane + c] *= factor;
        }
      }
      Chunk words;
      TILEWAVE_UNROLL
      for (int pair = 0; pair < unit / 2; ++pair) {
        const float low = B::exp2(B::subtract(score(scores[t], r, 2 * pair), reference));
        const float high = B::exp2(B::subtract(score(scores[t], r, 2 * pair + 1), reference));
        row.sum += low + high;
        words[pair] = B::pack_bf16(low, high);
      }
      shared.probabilities[s.wave][t][r][B::lane_id()] = words;
    });
  }

  /// Adds the values of all tokens of a tile to the wave's columns.
  TILEWAVE_DEVICE static void multiply_values(const Tokens& tokens, std::int32_t tile, State& s, const Shared& shared) {
    const int position = Map::position(B::lane_id()), group = Map::group(B::lane_id());
    TILEWAVE_ROLL
    for (int w = 0; w < waves; ++w) {
      RowsOperand probabilities[row_tiles][k_slices];
      TILEWAVE_UNROLL
      for (int t = 0; t < row_tiles; ++t) {
        TILEWAVE_UNROLL
        for (int k_slice = 0; k_slice < k_slices; ++k_slice)
          probabilities[t][k_slice] = Query::rows_operand(shared.probabilities[w][t], k_slice);
      }
      typename Tokens::Token token[unit];
      TILEWAVE_UNROLL
      for (int e = 0; e < unit; ++e) token[e] = tokens.token(tile + w * tile_tokens + unit * group + e);
      TILEWAVE_UNROLL
      for (int block = 0; block < out_tiles / unit; ++block) {
        const int number = (s.wave * part_columns + Values::first_loaded(block, position)) / unit;
        Chunk values[unit];
        TILEWAVE_UNROLL
        for (int e = 0; e < unit; ++e) Transpose::set_token(values, e, tokens.unit(token[e], number));
        Transpose::transpose(values);
        TILEWAVE_UNROLL
        for (int i = 0; i < unit; ++i) {
          TILEWAVE_UNROLL
          for (int t = 0; t < row_tiles; ++t) {
            TILEWAVE_UNROLL
            for (int k_slice = 0; k_slice < k_slices; ++k_slice) {
              Scores& out = s.out[t][block * unit + i];
              out = B::mma(Query::kv_operand(values[i], k_slice), probabilities[t][k_slice], out);
            }
          }
        }
      }
    }
  }

  /// Writes the wave's columns of all rows: the output, or a partial result.
  TILEWAVE_DEVICE static void finish(const PagedAttentionArgs& a, const Item& item, State& s, Shared& shared) {
    each_row([&](int t, int r)
                 TILEWAVE_INLINE_LAMBDA { publish(shared.sum[s.wave], t, r, over_groups(s.row[t][r].sum, Sum{})); });
    B::barrier();
    float v_scale = 1.0f;
    if constexpr (one_scale) v_scale = B::load(a.k_scale);
    const int group = Map::group(B::lane_id());
    each_row([&](int t, int r) TILEWAVE_INLINE_LAMBDA {
      const Row& row = s.row[t][r];
      const MlaDecodeRow of{t * atom_rows + Map::row(B::lane_id(), r), row.row, over_waves(shared.sum, t, r, Sum{}),
                            row.reference};
      // A lane has a run of neighbouring columns in each block of value tiles.
      const auto each_run = [&](const auto& f) TILEWAVE_INLINE_LAMBDA {
        TILEWAVE_UNROLL
        for (int block = 0; block < out_tiles / unit; ++block) {
          Vec<float, Values::run> values;
          TILEWAVE_UNROLL
          for (int n = 0; n < Values::run; ++n)
            values[n] = s.out[t][block * unit + Values::tile_of(n)][r * kv_per_lane + Values::column_of(n)];
          f(s.wave * part_columns + Values::first_held(block, group), values);
        }
      };
      MlaDecodeRowOutput<B, P>::write(a, item, of, v_scale, s.wave == 0 && group == 0, each_run);
    });
  }
};

}  // namespace tilewave
