// SPDX-License-Identifier: MIT
// The online softmax of MlaDecodeCodedHalvesGroup, whose scores have tokens as rows and query rows as columns. Both
// wave groups keep the same references: the one that makes a tile's probabilities may raise those of the tile before.
#pragma once

#include "tilewave/attention/sink.hpp"
#include "tilewave/ops/mla_decode/coded/halves_layout.hpp"
#include "tilewave/ops/paged_attention/work_item.hpp"

namespace tilewave {

/// A lane has a quarter of the query rows of its scores, as MlaDecodeSwappedSoftmax deals them. Each wave keeps
/// references and sums of all rows: lane l those of rows 2 l and 2 l + 1, the sums over the wave's tokens.
template <class B, class L>
class MlaDecodeHalvesSoftmax {
 public:
  using Scores = typename L::Scores;
  static constexpr int lane_rows = L::rows / 4;
  static_assert(L::rows == 2 * L::lanes, "a lane has two rows");

  TILEWAVE_DEVICE MlaDecodeHalvesSoftmax(const MlaDecodeArgs& args, const PagedAttentionWorkItem& item,
                                         typename L::Shared& shared, int group, int wave)
      : a_(args.attention), item_(item), shared_(shared), group_(group), wave_(wave) {
    reference_ = {{minus_infinity, minus_infinity}};
    sum_ = {{0.0f, 0.0f}};
    scale_ = {{a_.scale_log2, a_.scale_log2}};
  }

  TILEWAVE_DEVICE static int row(int i) { return 8 * (i / 2) + 2 * (B::lane_id() % 4) + i % 2; }

  /// Scores are multiples of each row's unit.
  TILEWAVE_DEVICE void multiply_scale(const float (&units)[L::rows]) {
    // A product that is too small would make NaN of scores of -inf, of tokens that a row does not see.
    for (int i = 0; i < 2; ++i) scale_[i] = max_of(a_.scale_log2 * units[own_row() + i], 0x1p-126f);
  }
  /// As MlaDecodeSwappedSoftmax does.
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
    if constexpr (L::grouped) {
      const std::uint32_t unit = first ? 0 : shared_.tile_unit[odd ^ 1];
      unit_ = max_of(unit, tile_unit_);
      for (int i = 0; i < 2; ++i) factor[i] *= relative(unit, unit_);
      raises |= unit_ > unit;
    }
    const bool raised = B::any(raises);
    if (wave_ == 0) {
      put(shared_.references[odd], reference_);
      put(shared_.factor[odd], factor);
      if (B::lane_id() == 0) {
        shared_.raised[odd] = raised ? 1 : 0;
        if constexpr (L::grouped) shared_.tile_unit[odd] = unit_;
      }
    }
    B::mbarrier_arrive(&shared_.referenced[odd]);  // a barrier of the wave, too
    Vec<float, lane_rows> sum;
    float of_token[2] = {1.0f, 1.0f};
    if constexpr (L::grouped) {
      for (int h = 0; h < 2; ++h) of_token[h] = relative(token_unit_[h], unit_);
    }
    TILEWAVE_UNROLL
    for (int i = 0; i < lane_rows; i += 2) {
      const Vec<float, 4> of = lines[row(i) / 2];
      TILEWAVE_UNROLL
      for (int e = 0; e < 2; ++e) {
        float &low = scores[at(i + e)], &high = scores[at(i + e) + 2];
        low = B::exp2(fused(low, of[2 * e], of[2 * e + 1]));
        high = B::exp2(fused(high, of[2 * e], of[2 * e + 1]));
        sum[i + e] = low + high;
        if constexpr (L::grouped) low *= of_token[0], high *= of_token[1];
      }
    }
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

  /// Returns the unit of sums of values behind this group's last tile, where scales are of groups.
  TILEWAVE_DEVICE std::uint32_t unit() const { return unit_; }
  /// Returns a unit over one that is no less.
  TILEWAVE_DEVICE static float relative(std::uint32_t unit, std::uint32_t over) {
    return L::power(static_cast<std::uint32_t>(max_of(static_cast<int>(unit) - static_cast<int>(over) + 127, 0)));
  }

  static constexpr float max_slack = 8.0f, shift = 7.0f;  // as MlaDecodeSoftmax has it

 private:
  TILEWAVE_HOST_DEVICE static constexpr int at(int i) { return 4 * (i / 2) + i % 2; }
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
  /// Matrices of 8 tokens x 8 rows become rows of tokens.
  TILEWAVE_DEVICE void store(const Scores& scores, Chunk* box) const {
    const int matrix = B::lane_id() / 8;
    TILEWAVE_UNROLL
    for (int pair = 0; pair < L::row_squares / 2; ++pair) {
      Vec<std::uint32_t, 4> words;
      TILEWAVE_UNROLL
      for (int m = 0; m < 4; ++m) {
        const int from = 4 * (2 * pair + m / 2) + 2 * (m % 2);
        words[m] = B::pack_f16(scores[from], scores[from + 1]);
      }
      const int r = 8 * (2 * pair + matrix / 2) + B::lane_id() % 8;
      B::template store_matrices<4>(box + L::chunk_of(r, 2 * wave_ + matrix % 2), words);
    }
  }

  const PagedAttentionArgs& a_;
  const PagedAttentionWorkItem& item_;
  typename L::Shared& shared_;
  int group_, wave_;
  std::uint32_t unit_ = 0, token_unit_[2] = {}, tile_unit_ = 0;
  Vec<float, 2> scale_, reference_, sum_;  // of the lane's own rows; scores times scale are log2 units
};

}  // namespace tilewave
