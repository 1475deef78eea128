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
      : item_(item), row_(16 * wave + B::lane_id() / 4) {
    const PagedAttentionArgs& a = args.attention;
    for (float& scale : scale_) scale = a.scale_log2;
    TILEWAVE_UNROLL
    for (int h = 0; h < 2; ++h) {
      const std::int32_t row = min_of(item.first_row + block_row(h), a.rows - 1);
      causal_end_[h] = item.end - a.query_tokens + query_row(a, item, row).token + 1;
      reference_[h] = minus_infinity;
      sum_[h] = 0.0f;
    }
  }

  /// Returns the lane's row h of the block.
  TILEWAVE_DEVICE int block_row(int h) const { return row_ + 8 * h; }

  /// Scores are multiples of each row's unit.
  TILEWAVE_DEVICE void multiply_scale(const float (&units)[L::rows]) {
    // A product that is too small would make NaN of scores of -inf, of tokens that a row does not see.
    for (int h = 0; h < 2; ++h) scale_[h] = max_of(scale_[h] * units[block_row(h)], 0x1p-126f);
  }

  /// Turns the scores of the tile from `token` on into probabilities, as f32, and leaves the reference for the other
  /// group. Returns what sums and outputs so far must be multiplied by. `between` is called between the two rows.
  template <class Between>
  TILEWAVE_DEVICE Vec<float, 2> run(std::int32_t token, Scores& scores, float (&references)[L::rows],
                                    const Between& between) {
    Vec<float, 2> factor;
    if (item_.is_edge(token, L::tokens)) mask(token, scores);
    TILEWAVE_UNROLL
    for (int h = 0; h < 2; ++h) {
      const float scale = scale_[L::converts_q ? h : 0];
      const float largest = B::template reduce<4>(Lane::largest(scores, h), Max{}) * scale;
      const float raised = largest > reference_[h] + max_slack ? largest : reference_[h];
      if (B::lane_id() % 4 == 0) references[block_row(h)] = raised;
      factor[h] = follow(h, raised);
      const float reference = raised == minus_infinity ? 0.0f : raised;  // no token was seen yet
      sum_[h] += Lane::exponentiate(scores, h, scale, shift - reference);
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
        const float low = scores[8 * k_slice + 2 * w], high = scores[8 * k_slice + 2 * w + 1];
        to[k_slice][w] = L::type == DType::f16 ? B::pack_f16(low, high) : B::pack_bf16(low, high);
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
  TILEWAVE_DEVICE float lse(int h, float total) const {
    return total == 0.0f ? minus_infinity : (reference_[h] - shift + B::log2(total)) * ln_2;
  }

 private:
  // A row's reference follows its maximum when it is more than this far behind, in log2 units. So sums of values are
  // seldom scaled, and probabilities are at most 2^8. Those of f16 are multiplied by 2^shift: a weight is lost below
  // 2^-32 of the largest.
  static constexpr float max_slack = 8.0f, shift = L::type == DType::f16 ? 7.0f : 0.0f;

  TILEWAVE_DEVICE float follow(int h, float raised) {
    const float factor = B::exp2(reference_[h] - (raised == minus_infinity ? 0.0f : raised));
    reference_[h] = raised;
    sum_[h] *= factor;
    return factor;
  }
  TILEWAVE_DEVICE void mask(std::int32_t token, Scores& scores) const {
    const std::int32_t first = token + 2 * (B::lane_id() % 4);
    TILEWAVE_UNROLL
    for (int i = 0; i < Scores::size; ++i) {
      if (first + i / 4 * 8 + i % 2 >= causal_end_[i / 2 % 2]) scores[i] = minus_infinity;
    }
  }

  const PagedAttentionWorkItem& item_;
  float scale_[2];  // scores times scale are log2 units
  int row_;
  std::int32_t causal_end_[2];   // the first token that a row does not see
  float reference_[2], sum_[2];  // log2 units, -inf before the first token; sums of this lane's tokens
};

}  // namespace tilewave
