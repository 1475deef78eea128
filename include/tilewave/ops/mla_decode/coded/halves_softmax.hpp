// SPDX-License-Identifier: MIT
// The online softmax of MlaDecodeCodedHalvesGroup, whose scores have tokens as rows and query rows as columns. Both
// wave groups keep the same references: the one that makes a tile's probabilities may raise those of the tile before.
#pragma once

#include "tilewave/attention/sink.hpp"
#include "tilewave/ops/mla_decode/coded/halves_layout.hpp"
#include "tilewave/ops/mla_decode/swapped/column_scores.hpp"

namespace tilewave {

/// Each wave keeps references and sums of all rows: lane l those of rows 2 l and 2 l + 1, the sums over the wave's
/// tokens.
template <class B, class L>
class MlaDecodeHalvesSoftmax : public MlaDecodeColumnScores<B, L> {
  using ColumnScores = MlaDecodeColumnScores<B, L>;
  using ColumnScores::a_, ColumnScores::item_, ColumnScores::wave_;
  using ColumnScores::at, ColumnScores::halve, ColumnScores::mask, ColumnScores::store;
  using ColumnScores::unit_, ColumnScores::token_unit_, ColumnScores::tile_unit_;

 public:
  using ColumnScores::lane_rows, ColumnScores::row, ColumnScores::relative;
  using typename ColumnScores::Scores;
  static_assert(L::rows == 2 * L::lanes, "a lane has two rows");

  TILEWAVE_DEVICE MlaDecodeHalvesSoftmax(const MlaDecodeArgs& args, const PagedAttentionWorkItem& item,
                                         typename L::Shared& shared, int group, int wave)
      : ColumnScores(args.attention, item, wave), shared_(shared), group_(group) {
    reference_ = {{minus_infinity, minus_infinity}};
    sum_ = {{0.0f, 0.0f}};
    scale_ = {{a_.scale_log2, a_.scale_log2}};
  }

  /// Scores are multiples of each row's unit.
  TILEWAVE_DEVICE void multiply_scale(const float (&units)[L::rows]) {
    // A product that is too small would make NaN of scores of -inf, of tokens that a row does not see.
    for (int i = 0; i < 2; ++i) scale_[i] = max_of(a_.scale_log2 * units[own_row() + i], 0x1p-126f);
  }
  /// Turns the scores of the block's tile `n`, from `token` on, into probabilities, and stores them as an operand. The
  /// item's first tile has no references before it.
  TILEWAVE_DEVICE void run(std::uint32_t n, bool first, std::int32_t token, Scores& scores) {
    const int odd = static_cast<int>(n % 2), parity = static_cast<int>(n / 2 % 2);
    if (item_.is_edge(token, L::tokens)) mask(token, scores);
    Vec<float, lane_rows> most;
    TILEWAVE_UNROLL
    for (int i = 0; i < lane_rows; ++i) most[i] = Max{}(scores[at(i)], scores[at(i) + 2]);
    put(shared_.largest[group_][wave_], dealt(most, Max{}));
    B::group_barrier();
    Vec<float, 2> largest = get(shared_.largest[group_][0]);
    TILEWAVE_UNROLL
    for (int w = 1; w < L::group_waves; ++w) {
      const Vec<float, 2> more = get(shared_.largest[group_][w]);
      for (int i = 0; i < 2; ++i) largest[i] = Max{}(largest[i], more[i]);
    }
    // References of the tile before, and what was made of the one before that.
    B::mbarrier_wait(&shared_.referenced[odd ^ 1], parity ^ odd ^ 1);
    B::mbarrier_wait(&shared_.used[odd], parity ^ 1);
    Vec<float, 2> before{{minus_infinity, minus_infinity}}, factor, line[2];
    if (!first) before = get(shared_.references[odd ^ 1]);
    bool raises = false;
    TILEWAVE_UNROLL
    for (int i = 0; i < 2; ++i) {
      const float tile = largest[i] * scale_[i], now = tile > before[i] + max_slack ? tile : before[i];
      const float base = now == minus_infinity ? 0.0f : now;  // no token was seen yet
      raises |= now != before[i];
      factor[i] = B::exp2(before[i] - base);
      sum_[i] *= B::exp2(reference_[i] - base);
      reference_[i] = now;
      line[i] = {{scale_[i], shift - base}};
    }
    auto* const lines = shared_.lines[group_][wave_];
    lines[B::lane_id()] = Vec<float, 4>{{line[0][0], line[0][1], line[1][0], line[1][1]}};
    [[maybe_unused]] float unit_factor = 1.0f;
    if constexpr (L::grouped) {
      const std::uint32_t unit = first ? 0 : shared_.tile_unit[odd ^ 1];
      unit_ = max_of(unit, tile_unit_);
      unit_factor = relative(unit, unit_);
      raises |= unit_ > unit;
    }
    const bool raised = B::any(raises);
    if (wave_ == 0) {
      put(shared_.references[odd], reference_);
      put(shared_.factor[odd], factor);
      if (B::lane_id() == 0) {
        shared_.raised[odd] = raised ? 1 : 0;
        if constexpr (L::grouped) shared_.tile_unit[odd] = unit_, shared_.unit_factor[odd] = unit_factor;
      }
    }
    B::mbarrier_arrive(&shared_.referenced[odd]);  // a barrier of the wave, too
    Vec<float, lane_rows> sum;
    TILEWAVE_UNROLL
    for (int i = 0; i < lane_rows; i += 2) {
      const Vec<float, 4> of = lines[row(i) / 2];
      TILEWAVE_UNROLL
      for (int e = 0; e < 2; ++e) {
        float &low = scores[at(i + e)], &high = scores[at(i + e) + 2];
        low = B::exp2(fused(low, of[2 * e], of[2 * e + 1]));
        high = B::exp2(fused(high, of[2 * e], of[2 * e + 1]));
        sum[i + e] = low + high;
      }
    }
    if constexpr (L::wide_values) ColumnScores::template store<DType::bf16>(scores, shared_.wide.of[odd]);
    if constexpr (L::grouped) ColumnScores::multiply_units(scores);
    store(scores, shared_.probabilities[odd]);
    B::shared_written();
    B::mbarrier_arrive(&shared_.ready[odd]);
    const Vec<float, 2> added = dealt(sum, Sum{});
    for (int i = 0; i < 2; ++i) sum_[i] += added[i];
  }
  /// Returns the factors of what was summed so far, of the lane's rows.
  TILEWAVE_DEVICE static Vec<float, lane_rows> factors(const float (&factor)[L::rows]) {
    Vec<float, lane_rows> all;
    TILEWAVE_UNROLL
    for (int i = 0; i < lane_rows; ++i) all[i] = factor[row(i)];
    return all;
  }

  /// Leaves the sums and references of this group's tiles.
  TILEWAVE_DEVICE void publish(float (&sums)[L::rows][L::group_waves], float (&references)[L::rows]) const {
    for (int i = 0; i < 2; ++i) sums[own_row() + i][wave_] = sum_[i];
    if (wave_ == 0) put(references, reference_);
  }
  /// Sums of values have the last tile's reference, which is that of both groups.
  TILEWAVE_DEVICE static float factor(int, float) { return 1.0f; }
  TILEWAVE_DEVICE static float unit_factor(std::uint32_t, std::uint32_t) { return 1.0f; }

  static constexpr float max_slack = 8.0f, shift = 7.0f;  // as MlaDecodeSwappedSoftmax has it

 private:
  TILEWAVE_DEVICE static int own_row() { return 2 * B::lane_id(); }
  TILEWAVE_DEVICE static Vec<float, 2> get(const float (&of)[L::rows]) {
    return *reinterpret_cast<const Vec<float, 2>*>(of + own_row());
  }
  TILEWAVE_DEVICE static void put(float (&to)[L::rows], const Vec<float, 2>& values) {
    *reinterpret_cast<Vec<float, 2>*>(to + own_row()) = values;
  }
  /// Reduces each of the lane's rows over the eight lanes that have it, and returns those of own_row().
  template <class Op>
  TILEWAVE_DEVICE static Vec<float, 2> dealt(const Vec<float, lane_rows>& values, const Op& op) {
    float eight[8], four[4];
    Vec<float, 2> two;
    const int part = B::lane_id() / 4;
    TILEWAVE_UNROLL
    for (int i = 0; i < 8; ++i) eight[i] = halve(values[i], values[i + 8], part / 4, 16, op);
    TILEWAVE_UNROLL
    for (int i = 0; i < 4; ++i) four[i] = halve(eight[i], eight[i + 4], part / 2 % 2, 8, op);
    TILEWAVE_UNROLL
    for (int i = 0; i < 2; ++i) two[i] = halve(four[i], four[i + 2], part % 2, 4, op);
    return two;
  }
  typename L::Shared& shared_;
  int group_;
  Vec<float, 2> scale_, reference_, sum_;  // of the lane's own rows; scores times scale are log2 units
};

}  // namespace tilewave
