// SPDX-License-Identifier: MIT
// The online softmax of a wave group whose scores have tokens as rows and query rows as columns. The waves of a group
// share the tokens of a tile, so they exchange the maxima of each query row.
#pragma once

#include "tilewave/attention/sink.hpp"
#include "tilewave/ops/mla_decode/swapped/layout.hpp"
#include "tilewave/ops/paged_attention/work_item.hpp"

namespace tilewave {

/// A lane has a quarter of the query rows: row i is 8 (i / 2) + 2 (l % 4) + i % 2 of the block. Of its scores (element
/// 4 j + 2 h + e), the row is i = 2 j + e, and the token is L::token_of(l / 4) + 8 h of the wave's sixteen.
template <class B, class L>
class MlaDecodeSwappedSoftmax {
 public:
  using Scores = typename L::Scores;
  static constexpr int lane_rows = L::rows / 4;

  TILEWAVE_DEVICE MlaDecodeSwappedSoftmax(const MlaDecodeArgs& args, const PagedAttentionWorkItem& item, int wave)
      : a_(args.attention), item_(item), wave_(wave) {
    TILEWAVE_UNROLL
    for (int i = 0; i < lane_rows; ++i) {
      reference_[i] = minus_infinity;
      sum_[i] = 0.0f;
      scale_[i] = a_.scale_log2;
    }
    own_reference_ = minus_infinity;
  }

  TILEWAVE_DEVICE static int row(int i) { return 8 * (i / 2) + 2 * (B::lane_id() % 4) + i % 2; }

  /// Scores are multiples of each row's unit.
  TILEWAVE_DEVICE void multiply_scale(const float (&units)[L::rows]) {
    // A product that is too small would make NaN of scores of -inf, of tokens that a row does not see.
    TILEWAVE_UNROLL
    for (int i = 0; i < lane_rows; ++i) scale_[i] = max_of(scale_[i] * units[row(i)], 0x1p-126f);
  }

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
        float& score = scores[4 * (i / 2) + 2 * h + i % 2];
        score = score * first[h] * unit * second[h];
      }
    }
    tile_unit_ = max_of(scales.largest[0], scales.largest[1]);
  }

  /// Turns the scores of the tile from `token` on into probabilities, and stores them as an operand. Returns true, and
  /// the factors of what was summed so far, if a reference was raised.
  TILEWAVE_DEVICE bool run(std::int32_t token, Scores& scores, float (&largest)[L::rows][L::group_waves],
                           Chunk* probabilities, Vec<float, lane_rows>& factors) {
    if (item_.is_edge(token, L::tokens)) mask(token, scores);
    Vec<float, lane_rows> most;
    TILEWAVE_UNROLL
    for (int i = 0; i < lane_rows; ++i) {
      const int at = 4 * (i / 2) + i % 2;
      scores[at] *= scale_[L::converts_q && !L::grouped ? i : 0];
      scores[at + 2] *= scale_[L::converts_q && !L::grouped ? i : 0];
      most[i] = Max{}(scores[at], scores[at + 2]);
    }
    const int mine = dealt_row();
    largest[mine][wave_] = deal(most, Max{});
    B::group_barrier();
    const auto all = *reinterpret_cast<const Vec<float, 4>*>(largest[mine]);
    const float tile = Max{}(Max{}(all[0], all[1]), Max{}(all[2], all[3]));
    const bool raises = tile > own_reference_ + max_slack;
    const bool raised = B::any(raises);  // alike in all waves of the group
    if (raised) {
      if (raises) own_reference_ = tile;
      TILEWAVE_UNROLL
      for (int i = 0; i < lane_rows; ++i) {
        const float reference = B::shuffle(own_reference_, 32 / lane_rows * i + B::lane_id() % 4);
        factors[i] = B::exp2(reference_[i] - (reference == minus_infinity ? 0.0f : reference));
        reference_[i] = reference;
        sum_[i] *= factors[i];
      }
    }
    TILEWAVE_UNROLL
    for (int i = 0; i < lane_rows; ++i) {
      const int at = 4 * (i / 2) + i % 2;
      const float offset = shift - (reference_[i] == minus_infinity ? 0.0f : reference_[i]);
      scores[at] = B::exp2(scores[at] + offset);
      scores[at + 2] = B::exp2(scores[at + 2] + offset);
      sum_[i] += scores[at] + scores[at + 2];
    }
    if constexpr (L::grouped) {
      const bool unit_raised = tile_unit_ > unit_;  // alike in all lanes
      if (unit_raised) {
        const float factor = relative(unit_, tile_unit_);
        for (float& f : factors.data) f = raised ? f * factor : factor;
        unit_ = tile_unit_;
      }
      const float of_token[2] = {relative(token_unit_[0], unit_), relative(token_unit_[1], unit_)};
      TILEWAVE_UNROLL
      for (int e = 0; e < Scores::size; ++e) scores[e] *= of_token[e / 2 % 2];
      store(scores, probabilities);
      return raised || unit_raised;
    }
    store(scores, probabilities);
    return raised;
  }

  /// Leaves the sums and references of this group's tiles.
  TILEWAVE_DEVICE void publish(float (&sums)[L::rows][L::group_waves], float (&references)[L::rows]) {
    Vec<float, lane_rows> sum;
    TILEWAVE_UNROLL
    for (int i = 0; i < lane_rows; ++i) sum[i] = sum_[i];
    sums[dealt_row()][wave_] = deal(sum, Sum{});
    if (wave_ == 0) references[dealt_row()] = own_reference_;
  }
  /// Returns the factor of this group's sums of the lane's row i, where `common` is the reference of both groups.
  TILEWAVE_DEVICE float factor(int i, float common) const {
    return B::exp2(reference_[i] - (common == minus_infinity ? 0.0f : common));
  }

  /// Returns the unit of this group's sums of values, where scales are of groups.
  TILEWAVE_DEVICE std::uint32_t unit() const { return unit_; }
  /// Returns a unit over one that is no less.
  TILEWAVE_DEVICE static float relative(std::uint32_t unit, std::uint32_t over) {
    return L::power(static_cast<std::uint32_t>(max_of(static_cast<int>(unit) - static_cast<int>(over) + 127, 0)));
  }

  TILEWAVE_DEVICE static float unit_factor(std::uint32_t unit, std::uint32_t common) { return relative(unit, common); }

  static constexpr float max_slack = 8.0f, shift = L::type == DType::f16 ? 7.0f : 0.0f;  // as MlaDecodeSoftmax has it

 private:
  /// Reduces each of the lane's rows over the eight lanes that have it, and returns that of dealt_row(): each exchange
  /// halves the number of rows that a lane has.
  template <class Op>
  TILEWAVE_DEVICE static float deal(const Vec<float, lane_rows>& values, const Op& op) {
    static_assert(lane_rows == 8 || lane_rows == 4, "eight lanes have as many rows, or two have one");
    const int part = B::lane_id() / 4;
    float four[4], two[2];
    TILEWAVE_UNROLL
    for (int i = 0; i < 4; ++i) {
      if constexpr (lane_rows == 8) {
        four[i] = halve(values[i], values[i + 4], part / 4 % 2, 16, op);
      } else {
        four[i] = values[i];
      }
    }
    constexpr int lanes = 32 / lane_rows * 2;  // that an exchange of two rows skips
    TILEWAVE_UNROLL
    for (int i = 0; i < 2; ++i) two[i] = halve(four[i], four[i + 2], part / (lanes / 4) % 2, lanes, op);
    const float one = halve(two[0], two[1], part / (lanes / 8) % 2, lanes / 2, op);
    return lane_rows == 8 ? one : op(one, B::shuffle_xor(one, 4));
  }
  template <class Op>
  TILEWAVE_DEVICE static float halve(float low, float high, int upper, int lanes, const Op& op) {
    const float kept = upper != 0 ? high : low, given = upper != 0 ? low : high;
    return op(kept, B::shuffle_xor(given, lanes));
  }
  TILEWAVE_DEVICE static int dealt_row() { return row(B::lane_id() / 4 * lane_rows / 8); }

  TILEWAVE_DEVICE void mask(std::int32_t token, Scores& scores) const {
    TILEWAVE_UNROLL
    for (int i = 0; i < lane_rows; ++i) {
      const std::int32_t of_block = min_of(item_.first_row + row(i), a_.rows - 1);
      const std::int32_t end = item_.end - a_.query_tokens + query_row(a_, item_, of_block).token + 1;
      TILEWAVE_UNROLL
      for (int h = 0; h < 2; ++h) {
        if (token + 16 * wave_ + L::token_of(B::lane_id() / 4) + 8 * h >= end)
          scores[4 * (i / 2) + 2 * h + i % 2] = minus_infinity;
      }
    }
  }
  /// Matrices of 8 tokens x 8 rows become rows of tokens.
  TILEWAVE_DEVICE void store(const Scores& scores, Chunk* box) const {
    const int matrix = B::lane_id() / 8;
    TILEWAVE_UNROLL
    for (int pair = 0; pair < L::row_squares / 2; ++pair) {
      Vec<std::uint32_t, 4> words;
      TILEWAVE_UNROLL
      for (int m = 0; m < 4; ++m) {
        const int at = 4 * (2 * pair + m / 2) + 2 * (m % 2);
        words[m] =
            L::type == DType::f16 ? B::pack_f16(scores[at], scores[at + 1]) : B::pack_bf16(scores[at], scores[at + 1]);
      }
      const int r = 8 * (2 * pair + matrix / 2) + B::lane_id() % 8;
      B::template store_matrices<4>(box + L::chunk_of(r, 2 * wave_ + matrix % 2), words);
    }
  }

  const PagedAttentionArgs& a_;
  const PagedAttentionWorkItem& item_;
  int wave_;
  float scale_[lane_rows];  // scores times scale are log2 units
  float reference_[lane_rows], sum_[lane_rows];
  float own_reference_;  // of row dealt_row()
  std::uint32_t unit_ = 0, token_unit_[2] = {}, tile_unit_ = 0;
};

}  // namespace tilewave
