// SPDX-License-Identifier: MIT
// The query rows of a block of path registers, as operands in shared memory, and their products with keys.
#pragma once

#include "tilewave/ops/mla_decode/latent_tokens.hpp"
#include "tilewave/ops/paged_attention/work_item.hpp"

namespace tilewave {

template <class B, MlaDecodeSpec S, MlaDecodePolicy P>
struct MlaDecodeQuery {
  using Map = LaneMap<B>;
  using Scores = typename B::Accumulator;  // [rows_per_lane][kv_per_lane]
  using RowsOperand = typename B::RowsOperand;
  using KvOperand = typename B::KvOperand;
  using Tokens = LatentTokens<B, S>;
  static constexpr AtomFacts atom = B::atom;
  static constexpr int lanes = B::facts.wave_lanes, waves = P.waves;
  static constexpr int row_tiles = P.rows / 16, atom_rows = 16;
  static constexpr int unit = 8, groups = AtomFacts::groups;  // elements in 16 bytes; lane groups
  static constexpr int rows_per_lane = atom.rows_per_lane, kv_per_lane = atom.kv_per_lane;
  static constexpr int score_tiles = unit / kv_per_lane, k_slices = unit / atom.k_per_lane;
  static constexpr int slice_words = atom.k_per_lane / 2, k_units = S.head_size / unit / groups;
  static constexpr DType q_type = S.q;
  // Scores of fp8 q take codes as they lie, where a room has such products from registers; sixteen are a unit then.
  static constexpr bool fp8_scores = is_fp8(S.q) && mla_fp8_scores(B::facts, P);
  static constexpr int q_unit = fp8_scores ? 16 : unit, q_units = S.head_size / q_unit / groups;
  using Rows = Chunk[row_tiles][q_units][rows_per_lane][lanes];  // unit 4 u + group of the lane's row

  /// Copies q to shared memory as operands, fp8 as bf16 unless products take it as it is. A wave takes every fourth
  /// unit.
  TILEWAVE_DEVICE static void load(const PagedAttentionArgs& a, const PagedAttentionWorkItem& item, int wave,
                                   Rows& to) {
    TILEWAVE_UNROLL
    for (int i = 0; i < row_tiles * rows_per_lane; ++i) {
      const int t = i / rows_per_lane, r = i % rows_per_lane;
      const std::int32_t row = min_of(item.first_row + t * atom_rows + Map::row(B::lane_id(), r), a.rows - 1);
      const QueryRow query = query_row(a, item, row);
      const char* const from = static_cast<const char*>(a.q) +
                               size_of(q_type) * (query.out_row * a.q_row_stride + query.head * a.q_head_stride);
      TILEWAVE_UNROLL
      for (int first = 0; first < q_units; first += waves) {
        const int u = first + wave;
        if (u >= q_units) continue;
        const int number = groups * u + Map::group(B::lane_id());
        if constexpr (is_fp8(S.q) && !fp8_scores) {
          const auto codes = B::load(reinterpret_cast<const Vec<std::uint32_t, 2>*>(from) + number);
          const auto low = B::widen_fp8(codes[0]), high = B::widen_fp8(codes[1]);
          to[t][u][r][B::lane_id()] = Chunk{{low[0], low[1], high[0], high[1]}};
        } else {
          to[t][u][r][B::lane_id()] = B::load(reinterpret_cast<const Chunk*>(from) + number);
        }
      }
    }
  }

  TILEWAVE_DEVICE static KvOperand kv_operand(const Chunk& words, int k_slice) {
    KvOperand kv;
    TILEWAVE_UNROLL
    for (int w = 0; w < slice_words; ++w) kv[w] = words[k_slice * slice_words + w];
    return kv;
  }
  /// Returns the operand of a slice of a unit of all rows of the lane.
  TILEWAVE_DEVICE static RowsOperand rows_operand(const Chunk (&of)[rows_per_lane][lanes], int k_slice) {
    RowsOperand rows;
    TILEWAVE_UNROLL
    for (int r = 0; r < rows_per_lane; ++r) {
      const Chunk words = of[r][B::lane_id()];
      TILEWAVE_UNROLL
      for (int w = 0; w < slice_words; ++w) rows[r * slice_words + w] = words[k_slice * slice_words + w];
    }
    return rows;
  }

  /// Scores of the wave's 32 tokens from `first` on. Column C g + c of score tile j is token 8 g + C j + c.
  TILEWAVE_DEVICE static void multiply(const Tokens& tokens, std::int32_t first, const Rows& rows,
                                       Scores (&scores)[row_tiles][score_tiles]) {
    const int position = Map::position(B::lane_id());
    typename Tokens::Token token[score_tiles];
    TILEWAVE_UNROLL
    for (int j = 0; j < score_tiles; ++j) {
      token[j] = tokens.token(first + unit * (position / kv_per_lane) + kv_per_lane * j + position % kv_per_lane);
    }
    if constexpr (fp8_scores) {
      multiply_codes(tokens, token, rows, scores);
    } else {
      multiply_wide(tokens, token, rows, scores);
    }
  }

 private:
  using TokensOfLane = const typename Tokens::Token[score_tiles];

  TILEWAVE_DEVICE static void multiply_wide(const Tokens& tokens, TokensOfLane& token, const Rows& rows,
                                            Scores (&scores)[row_tiles][score_tiles]) {
    TILEWAVE_UNROLL
    for (int u = 0; u < k_units; ++u) {
      Chunk keys[score_tiles];
      TILEWAVE_UNROLL
      for (int j = 0; j < score_tiles; ++j) keys[j] = tokens.unit(token[j], groups * u + Map::group(B::lane_id()));
      TILEWAVE_UNROLL
      for (int t = 0; t < row_tiles; ++t) {
        TILEWAVE_UNROLL
        for (int k_slice = 0; k_slice < k_slices; ++k_slice) {
          const RowsOperand q = rows_operand(rows[t][u], k_slice);
          TILEWAVE_UNROLL
          for (int j = 0; j < score_tiles; ++j) scores[t][j] = B::mma(kv_operand(keys[j], k_slice), q, scores[t][j]);
        }
      }
    }
  }
  /// The same of codes. A product takes `units` units; behind the last one there are zeros.
  TILEWAVE_DEVICE static void multiply_codes(const Tokens& tokens, TokensOfLane& token, const Rows& rows,
                                             Scores (&scores)[row_tiles][score_tiles]) {
    constexpr int units = B::template product_chunks<q_type>;
    TILEWAVE_UNROLL
    for (int u = 0; u < q_units; u += units) {
      Chunk keys[score_tiles][units] = {};
      TILEWAVE_UNROLL
      for (int j = 0; j < score_tiles; ++j) {
        TILEWAVE_UNROLL
        for (int i = 0; i < min_of(units, q_units - u); ++i)
          keys[j][i] = tokens.codes(token[j], groups * (u + i) + Map::group(B::lane_id()));
      }
      TILEWAVE_UNROLL
      for (int t = 0; t < row_tiles; ++t) {
        Chunk q[units] = {};
        TILEWAVE_UNROLL
        for (int i = 0; i < min_of(units, q_units - u); ++i) q[i] = rows[t][u + i][0][B::lane_id()];
        TILEWAVE_UNROLL
        for (int j = 0; j < score_tiles; ++j) B::template multiply<q_type, atom_rows>(keys[j], q, scores[t][j]);
      }
    }
  }
};

}  // namespace tilewave
