// SPDX-License-Identifier: MIT
// The online softmax of a wave group whose scores have tokens as rows and query rows as columns. The waves of a group
// share the tokens of a tile, so they exchange the maxima of each query row.
#pragma once

#include "tilewave/attention/sink.hpp"
#include "tilewave/ops/mla_decode/swapped/column_scores.hpp"

namespace tilewave {

template <class B, class L>
class MlaDecodeSwappedSoftmax : public MlaDecodeColumnScores<B, L> {
  using ColumnScores = MlaDecodeColumnScores<B, L>;
  using ColumnScores::a_, ColumnScores::item_, ColumnScores::wave_;
  using ColumnScores::at, ColumnScores::halve, ColumnScores::mask;
  using ColumnScores::unit_, ColumnScores::tile_unit_;

 public:
  using ColumnScores::lane_rows, ColumnScores::row, ColumnScores::relative;
  using typename ColumnScores::Scores;

  TILEWAVE_DEVICE MlaDecodeSwappedSoftmax(const MlaDecodeArgs& args, const PagedAttentionWorkItem& item, int wave)
      : ColumnScores(args.attention, item, wave) {
    TILEWAVE_UNROLL
    for (int i = 0; i < lane_rows; ++i) {
      reference_[i] = minus_infinity;
      sum_[i] = 0.0f;
      scale_[i] = a_.scale_log2;
    }
    own_reference_ = minus_infinity;
  }

  /// Scores are multiples of each row's unit.
  TILEWAVE_DEVICE void multiply_scale(const float (&units)[L::rows]) {
    // A product that is too small would make NaN of scores of -inf, of tokens that a row does not see.
    TILEWAVE_UNROLL
    for (int i = 0; i < lane_rows; ++i) scale_[i] = max_of(scale_[i] * units[row(i)], 0x1p-126f);
  }

  /// Turns the scores of the tile from `token` on into probabilities. Returns true, and the factors of what was summed
  /// so far, if a reference was raised.
  TILEWAVE_DEVICE bool run(std::int32_t token, Scores& scores, float (&largest)[L::rows][L::group_waves],
                           Vec<float, lane_rows>& factors) {
    if (item_.is_edge(token, L::tokens)) mask(token, scores);
    Vec<float, lane_rows> most;
    TILEWAVE_UNROLL
    for (int i = 0; i < lane_rows; ++i) {
      const int low = at(i), high = low + 2;
      scores[low] *= scale_[L::converts_q && !L::grouped ? i : 0];
      scores[high] *= scale_[L::converts_q && !L::grouped ? i : 0];
      most[i] = Max{}(scores[low], scores[high]);
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
      const int low = at(i), high = low + 2;
      const float offset = shift - (reference_[i] == minus_infinity ? 0.0f : reference_[i]);
      scores[low] = B::exp2(scores[low] + offset);
      scores[high] = B::exp2(scores[high] + offset);
      sum_[i] += scores[low] + scores[high];
    }
    if (!raised) {
      for (float& f : factors.data) f = 1.0f;
    }
    return raised;
  }
  /// Raises the unit of sums to that of the tile, and returns the factor of sums of codes so far.
  TILEWAVE_DEVICE float raise_unit() {
    const std::uint32_t before = unit_;
    unit_ = max_of(unit_, tile_unit_);
    return relative(before, unit_);
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

  TILEWAVE_DEVICE static float unit_factor(std::uint32_t unit, std::uint32_t common) { return relative(unit, common); }

  // As MlaDecodeSoftmax has it. Probabilities of f16 are multiplied by 2^shift: a weight is lost below 2^-32 of the
  // largest.
  static constexpr float max_slack = 8.0f, shift = L::type == DType::f16 ? 7.0f : 0.0f;

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
  TILEWAVE_DEVICE static int dealt_row() { return row(B::lane_id() / 4 * lane_rows / 8); }

  float scale_[lane_rows];  // scores times scale are log2 units
  float reference_[lane_rows], sum_[lane_rows];
  float own_reference_;  // of row dealt_row()
};

}  // namespace tilewave
