// SPDX-License-Identifier: MIT
// The scores of a wave group that have tokens as rows and query rows as columns: what its softmaxes have in common.
#pragma once

#include "tilewave/attention/sink.hpp"
#include "tilewave/ops/mla_decode/args.hpp"
#include "tilewave/ops/paged_attention/work_item.hpp"

namespace tilewave {

/// A lane has a quarter of the query rows: row i is 8 (i / 2) + 2 (l % 4) + i % 2 of the block. Of its scores (element
/// 4 j + 2 h + e), the row is i = 2 j + e, and the token is L::token_of(l / 4) + 8 h of the wave's sixteen.
template <class B, class L>
class MlaDecodeColumnScores {
 public:
  using Scores = typename L::Scores;
  static constexpr int lane_rows = L::rows / 4;

  TILEWAVE_DEVICE static int row(int i) { return 8 * (i / 2) + 2 * (B::lane_id() % 4) + i % 2; }

  /// Multiplies scores of codes by the units of their tokens and rows. Half of a token's exponent comes before the
  /// row's unit, so that no product leaves the range of floats before it has to.
  template <class Scales>
  TILEWAVE_DEVICE void take_units(const Scales& scales, const float (&of_row)[L::rows], Scores& scores) {
    float first[2], second[2];
    TILEWAVE_UNROLL
    for (int h = 0; h < 2; ++h) {
      token_unit_[h] = scales.unit[16 * wave_ + L::token_of(B::lane_id() / 4) + 8 * h];
      const std::uint32_t half = (token_unit_[h] + 127) / 2;
      first[h] = L::power(half), second[h] = L::power(token_unit_[h] + 127 - half);
    }
    TILEWAVE_UNROLL
    for (int i = 0; i < lane_rows; ++i) {
      const float unit = of_row[row(i)];
      TILEWAVE_UNROLL
      for (int h = 0; h < 2; ++h) {
        float& score = scores[at(i) + 2 * h];
        score = score * first[h] * unit * second[h];
      }
    }
    tile_unit_ = max_of(scales.largest[0], scales.largest[1]);
  }

  /// Returns the unit of sums of values behind this group's last tile, where scales are of groups.
  TILEWAVE_DEVICE std::uint32_t unit() const { return unit_; }
  /// Returns a unit over one that is no less.
  TILEWAVE_DEVICE static float relative(std::uint32_t unit, std::uint32_t over) {
    return L::power(static_cast<std::uint32_t>(max_of(static_cast<int>(unit) - static_cast<int>(over) + 127, 0)));
  }

  /// Multiplies probabilities by the units of their tokens over that of sums.
  TILEWAVE_DEVICE void multiply_units(Scores& probabilities) const {
    const float of_token[2] = {relative(token_unit_[0], unit_), relative(token_unit_[1], unit_)};
    TILEWAVE_UNROLL
    for (int e = 0; e < Scores::size; ++e) probabilities[e] *= of_token[e / 2 % 2];
  }
  /// Stores probabilities as an operand: matrices of 8 tokens x 8 rows become rows of tokens.
  template <DType type = L::type>
  TILEWAVE_DEVICE void store(const Scores& scores, Chunk* box) const {
    const int matrix = B::lane_id() / 8;
    TILEWAVE_UNROLL
    for (int pair = 0; pair < L::row_squares / 2; ++pair) {
      Vec<std::uint32_t, 4> words;
      TILEWAVE_UNROLL
      for (int m = 0; m < 4; ++m) {
        const int from = 4 * (2 * pair + m / 2) + 2 * (m % 2);
        words[m] = type == DType::f16 ? B::pack_f16(scores[from], scores[from + 1])
                                      : B::pack_bf16(scores[from], scores[from + 1]);
      }
      const int r = 8 * (2 * pair + matrix / 2) + B::lane_id() % 8;
      B::template store_matrices<4>(box + L::chunk_of(r, 2 * wave_ + matrix % 2), words);
    }
  }

 protected:
  TILEWAVE_DEVICE MlaDecodeColumnScores(const PagedAttentionArgs& attention, const PagedAttentionWorkItem& item,
                                        int wave)
      : a_(attention), item_(item), wave_(wave) {}

  /// The element of the lane's row i and its first token; that of its second is 2 behind.
  TILEWAVE_HOST_DEVICE static constexpr int at(int i) { return 4 * (i / 2) + i % 2; }

  /// An exchange after which each of two lanes has one of two rows, reduced.
  template <class Op>
  TILEWAVE_DEVICE static float halve(float low, float high, int upper, int lanes, const Op& op) {
    const float kept = upper != 0 ? high : low, given = upper != 0 ? low : high;
    return op(kept, B::shuffle_xor(given, lanes));
  }
  TILEWAVE_DEVICE void mask(std::int32_t token, Scores& scores) const {
    TILEWAVE_UNROLL
    for (int i = 0; i < lane_rows; ++i) {
      const std::int32_t of_block = min_of(item_.first_row + row(i), a_.rows - 1);
      const std::int32_t end = item_.end - a_.query_tokens + query_row(a_, item_, of_block).token + 1;
      TILEWAVE_UNROLL
      for (int h = 0; h < 2; ++h) {
        if (token + 16 * wave_ + L::token_of(B::lane_id() / 4) + 8 * h >= end) scores[at(i) + 2 * h] = minus_infinity;
      }
    }
  }

  const PagedAttentionArgs& a_;
  const PagedAttentionWorkItem& item_;
  int wave_;
  std::uint32_t unit_ = 0, token_unit_[2] = {}, tile_unit_ = 0;
};

}  // namespace tilewave
