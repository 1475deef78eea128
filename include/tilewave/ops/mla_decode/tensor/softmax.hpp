// SPDX-License-Identifier: MIT
// The online softmax of a wave group turns scores of a tile into probabilities. Both groups keep the same reference of
// each row: the one that makes a tile's probabilities may raise it, and tells the other.
#pragma once

#include "tilewave/attention/lane_scores.hpp"
#include "tilewave/attention/sink.hpp"
#include "tilewave/ops/mla_decode/tensor/layout.hpp"
#include "tilewave/ops/paged_attention/work_item.hpp"

namespace tilewave {

/// The softmax of a lane's two rows, h = 0 and 1: rows l / 4 + 8 h of its wave's sixteen. Columns of its scores
/// (LaneScores) are tokens of the tile.
template <class B, class L>
class MlaDecodeSoftmax {
 public:
  using Scores = typename L::Scores;
  using Lane = LaneScores<B, L::tokens>;

  TILEWAVE_DEVICE MlaDecodeSoftmax(const MlaDecodeArgs& args, const PagedAttentionWorkItem& item, int wave)
      : a_(args.attention), item_(item), row_(16 * wave + B::lane_id() / 4) {
    TILEWAVE_UNROLL
    for (int h = 0; h < 2; ++h) {
      reference_[h] = minus_infinity;
      sum_[h] = 0.0f;
    }
  }

  /// Returns the lane's row h of the block.
  TILEWAVE_DEVICE int block_row(int h) const { return row_ + 8 * h; }

  /// Turns the scores of the tile from `token` on into probabilities, as f32, and leaves the reference for the other
  /// group. `edge` says whether rows may not see all of it. Returns what sums and outputs so far must be multiplied by.
  /// `between` is called between the two rows.
  template <class Between>
  TILEWAVE_DEVICE Vec<float, 2> run(std::int32_t token, bool edge, Scores& scores, float (&references)[L::rows],
                                    const Between& between) {
    Vec<float, 2> factor;
    if (edge) mask(token, scores);
    TILEWAVE_UNROLL
    for (int h = 0; h < 2; ++h) {
      const float scale = a_.scale_log2;
      const float largest = B::template reduce<4>(Lane::largest(scores, h), Max{}) * scale;
      const float raised = largest > reference_[h] + max_slack ? largest : reference_[h];
      if (B::lane_id() % 4 == 0) references[block_row(h)] = raised;
      factor[h] = follow(h, raised);
      const float reference = raised == minus_infinity ? 0.0f : raised;  // no token was seen yet
      sum_[h] += Lane::exponentiate(scores, h, scale, -reference);
      if (h == 0) between();
    }
    return factor;
  }
  /// Takes over the references of the other group's tile. Returns the same factors.
  TILEWAVE_DEVICE Vec<float, 2> follow(const float (&references)[L::rows]) {
    return {{follow(0, references[block_row(0)]), follow(1, references[block_row(1)])}};
  }

  /// Packs probabilities into operands, as products take them from registers.
  TILEWAVE_DEVICE static void pack(const Scores& scores, typename L::Operands& to) {
    TILEWAVE_UNROLL
    for (int k_slice = 0; k_slice < L::value_slices; ++k_slice) {
      TILEWAVE_UNROLL
      for (int w = 0; w < 4; ++w) {
        to[k_slice][w] = B::pack_bf16(scores[8 * k_slice + 2 * w], scores[8 * k_slice + 2 * w + 1]);
      }
    }
  }
  /// Stores packed probabilities as an operand of the block's 64 rows.
  TILEWAVE_DEVICE void store(const typename L::Operands& probabilities, Chunk* box) const {
    const int matrix = B::lane_id() / 8, row = row_ - B::lane_id() / 4 + B::lane_id() % 8 + 8 * (matrix % 2);
    TILEWAVE_UNROLL
    for (int k_slice = 0; k_slice < L::value_slices; ++k_slice) {
      B::template store_matrices_straight<4>(box + L::chunk_of(row, 2 * k_slice + matrix / 2), probabilities[k_slice]);
    }
  }

  /// Leaves the sums of this group's tiles for the other group.
  TILEWAVE_DEVICE void publish(float (&sums)[L::rows]) {
    TILEWAVE_UNROLL
    for (int h = 0; h < 2; ++h) {
      sum_[h] = B::template reduce<4>(sum_[h], Sum{});
      if (B::lane_id() % 4 == 0) sums[block_row(h)] = sum_[h];
    }
  }
  /// Returns the sum of a row's tiles. Both groups add in the same order.
  TILEWAVE_DEVICE float total(int h, const float (&sums)[2][L::rows]) const {
    return item_.beyond_table ? __builtin_nanf("") : sums[0][block_row(h)] + sums[1][block_row(h)];
  }
  TILEWAVE_DEVICE float lse(int h, float total) const { return lse_of(reference_[h], total); }
  TILEWAVE_DEVICE static float lse_of(float reference, float total) {
    return total == 0.0f ? minus_infinity : (reference + B::log2(total)) * ln_2;
  }

 private:
  // A row's reference follows its maximum when it is more than this far behind, in log2 units. So sums of values are
  // seldom scaled, and probabilities are at most 2^8.
  static constexpr float max_slack = 8.0f;

  TILEWAVE_DEVICE float follow(int h, float raised) {
    const float factor = B::exp2(reference_[h] - (raised == minus_infinity ? 0.0f : raised));
    reference_[h] = raised;
    sum_[h] *= factor;
    return factor;
  }
  TILEWAVE_DEVICE void mask(std::int32_t token, Scores& scores) const {
    const std::int32_t first = token + 2 * (B::lane_id() % 4);
    TILEWAVE_UNROLL
    for (int h = 0; h < 2; ++h) {
      const std::int32_t row = min_of(item_.first_row + block_row(h), a_.rows - 1);
      const std::int32_t end = item_.end - a_.query_tokens + query_row(a_, item_, row).token + 1;
      TILEWAVE_UNROLL
      for (int i = 2 * h; i < Scores::size; i += 4) {
        if (first + i / 4 * 8 >= end) scores[i] = minus_infinity;
        if (first + i / 4 * 8 + 1 >= end) scores[i + 1] = minus_infinity;
      }
    }
  }

  const PagedAttentionArgs& a_;
  const PagedAttentionWorkItem& item_;
  int row_;
  float reference_[2], sum_[2];  // log2 units, -inf before the first token; sums of this lane's tokens
};

}  // namespace tilewave
