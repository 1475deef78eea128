// SPDX-License-Identifier: MIT
// The online softmax of a wave group turns scores of a tile into probabilities, and keeps maxima and sums of rows.
#pragma once

#include "tilewave/attention/lane_scores.hpp"
#include "tilewave/attention/scores.hpp"
#include "tilewave/ops/flash_attention/tensor/work.hpp"

namespace tilewave {

/// The softmax of a lane's two rows, h = 0 and 1: rows l / 4 + 8 h of its wave's sixteen. Columns of its scores
/// (LaneScores) are keys of the tile.
template <class B, FlashAttentionSpec S, class L, FlashAttentionPolicy P>
class FlashAttentionSoftmax {
 public:
  using Scores = typename L::Scores;
  static constexpr int rows = 2;
  using Operands = Chunk[L::key_slices];  // probabilities as products take them from registers

  TILEWAVE_DEVICE FlashAttentionSoftmax(const FlashAttentionArgs& a, const FlashAttentionSections& sections,
                                        const FlashAttentionItem& item, int group)
      : a_(a), sections_(sections), item_(item) {
    const int wave = B::block_lane_id() % L::group_lanes / B::facts.wave_lanes;
    row_ = 64 * group + 16 * wave + B::lane_id() / 4;
    const AttentionSequence& s = item.sequence;
    const auto keys_of = [&](std::int32_t row) TILEWAVE_INLINE_LAMBDA {
      return VisibleKeys::of(a, s, min_of(item.first_query + sections.row_heads.query_of(row), s.q_count - 1));
    };
    const std::int64_t scale_at =  // of K and V
        S.quant == Scaling::per_head ? a.gqa_ratio.quotient(item.head) * a.scale_head_stride : 0;
    TILEWAVE_UNROLL
    for (int h = 0; h < rows; ++h) {
      visible_[h] = keys_of(row(h));
      offset_[h] = unseen;
      sum_[h] = 0.0f;
      if constexpr (S.alibi) slope_[h] = B::load(a.alibi_slopes + head(h)) * log2_e;
      scale_[h] = a.scale_log2;
      if constexpr (is_fp8(S.q)) {
        const float q_scale = B::load(a.q_scale + (S.quant == Scaling::per_head ? head(h) : 0));
        // A scale of 0 would make 0 of -inf, which is NaN.
        scale_[h] = max_of(scale_[h] * q_scale * B::load(a.k_scale + scale_at), 0x1p-120f);
      }
    }
    if constexpr (is_fp8(S.kv)) value_scale_ = B::load(a.v_scale + scale_at);
    // All rows of the group see these keys.
    all_see_ = {keys_of(64 * group + 63).first, keys_of(64 * group).end};
  }

  /// Returns the lane's row h of the tile; it may be past the item's rows.
  TILEWAVE_DEVICE std::int32_t row(int h) const { return row_ + 8 * h; }
  TILEWAVE_DEVICE std::int32_t query(int h) const { return item_.first_query + sections_.row_heads.query_of(row(h)); }
  TILEWAVE_DEVICE std::int32_t head(int h) const { return item_.head + sections_.row_heads.head_of(row(h)); }

  /// Applies the soft cap, slopes and masks to the scores of a tile, whose references may rise here. No row sees keys
  /// behind the first `keys`. `of_item`: the tile is the first of its item. Returns whether a row of the wave has
  /// another reference than before: sums of values so far must be multiplied by `factor` then.
  template <bool of_item, int keys = P.keys>
  TILEWAVE_DEVICE bool prepare(std::int32_t tile, Scores& scores, Vec<float, rows>& factor) {
    if constexpr (transformed) transform<keys>(tile, scores);
    if constexpr (S.bit_mask) mask_bits<keys>(tile, scores);
    const std::int32_t first = first_key(tile);
    if (tile * P.keys < all_see_.first)
      mask<keys>(scores, [&](int h, int key) TILEWAVE_INLINE_LAMBDA { return key >= visible_[h].first - first; });
    if ((tile + 1) * P.keys > all_see_.end)
      mask<keys>(scores, [&](int h, int key) TILEWAVE_INLINE_LAMBDA { return key < visible_[h].end - first; });
    if constexpr (looks<of_item>) {
      float largest[rows];  // of this lane's keys
      bool behind = false;
      TILEWAVE_UNROLL
      for (int h = 0; h < rows; ++h) {
        largest[h] = LaneScores<B, keys>::largest(scores, h);
        behind = behind || exponent(h, largest[h]) > shift + max_slack;
      }
      return B::any(behind) && raise(largest, {shift + max_slack, shift + max_slack}, factor);
    }
    return false;
  }

  /// Makes probabilities of prepared scores. Returns whether a row has another reference now, as `prepare` does. Of 16
  /// bits nobody looks for the largest score first. Probabilities are made by the references so far, while scores are
  /// kept, and only if some are too large, or are the first that a row sees, are they made again. In fp8, which ends at
  /// 2^8.8, that would happen too often.
  template <bool of_item, int keys = P.keys, bool adds_sums = true>
  TILEWAVE_DEVICE bool run(const Scores& scores, Operands& to, Vec<float, rows>& factor) {
    float sums[rows];
    exponentiate<keys, adds_sums>(scores, to, sums);
    if constexpr (!adds_sums) return false;
    bool raised = false;
    if (!looks<of_item> && B::any(!(sums[0] <= most && sums[1] <= most))) [[unlikely]] {
      float largest[rows];
      Vec<float, rows> above;
      TILEWAVE_UNROLL
      for (int h = 0; h < rows; ++h) {
        largest[h] = LaneScores<B, keys>::largest(scores, h);
        const float too_large = B::template reduce<4>(sums[h] <= most ? 0.0f : 1.0f, Max{});
        above[h] = too_large > 0.0f ? 0.0f : __builtin_inff();
      }
      raised = raise(largest, above, factor);
      exponentiate<keys>(scores, to, sums);
    }
    TILEWAVE_UNROLL
    for (int h = 0; h < rows; ++h) sum_[h] += sums[h];
    return raised;
  }

  /// Returns the factor of a row's sums of values, and the row's lse. Where products sum probabilities up, which are
  /// rounded there, rows are divided by these sums, and the lse is still that of sums in f32.
  TILEWAVE_DEVICE JoinedSink finish(int h, const typename L::Output& out) const {
    const auto joined_of = [&](float sum) TILEWAVE_INLINE_LAMBDA {
      if (item_.sequence.beyond_capacity) sum = __builtin_nanf("");
      const float lse = sum == 0.0f ? minus_infinity : (B::log2(sum) - offset_[h]) * ln_2;
      JoinedSink joined = with_sink<B>(a_, head(h), lse);
      joined.out_scale *= sum == 0.0f ? 0.0f : B::reciprocal(f16_scale * sum);
      return joined;
    };
    JoinedSink joined = joined_of(L::multiplies_sums ? out.sum[h] : B::template reduce<4>(sum_[h], Sum{}));
    if constexpr (L::multiplies_sums) {
      if (a_.lse != nullptr) joined.lse = joined_of(B::template reduce<4>(sum_[h], Sum{})).lse;
    }
    if constexpr (is_fp8(S.kv)) joined.out_scale *= value_scale_;
    return joined;
  }

 private:
  // A row's reference is its largest score, in log2 units, when it was raised, and its offset is shift - reference. It
  // is raised again when a score may be more than max_slack above, so sums of values are seldom scaled. Each row
  // decides for itself, whatever rows are beside it. Probabilities of fp8, which ends at 2^-9, are multiplied by
  // 2^shift: a weight is lost below 2^-16 of the largest.
  static constexpr float max_slack = is_fp8(S.kv) ? 2.0f : 8.0f, shift = is_fp8(S.kv) ? 6.0f : 0.0f;
  // f16 ends at 2^-24, where many keys of little weight would lose theirs.
  static constexpr float f16_scale = S.kv == DType::f16 ? 0x1p7f : 1.0f;
  // A lane's sum of a row's probabilities of one tile may be so large, if nobody looks for the largest score.
  static constexpr float most = 0x1p8f;
  // The offset before the first key that a row sees: it makes infinity of any score, and 0 of -inf, one that is masked.
  static constexpr float unseen = 0x1p127f;
  template <bool of_item>
  static constexpr bool looks = of_item || is_fp8(S.kv);

  /// Returns the logarithm of the probability of a score of row h.
  TILEWAVE_DEVICE float exponent(int h, float score) const { return fused(score, scale_of(h), offset_[h]); }

  /// Raises the references of rows of whose largest scores the exponents are greater than `above`. Lanes of a row meet
  /// here alone, which is seldom. Returns whether a row of the wave has another reference.
  TILEWAVE_DEVICE bool raise(const float (&largest)[rows], const Vec<float, rows>& above, Vec<float, rows>& factor) {
    bool raised = false;
    TILEWAVE_UNROLL
    for (int h = 0; h < rows; ++h) {
      const float of_row = B::template reduce<4>(largest[h], Max{});
      const bool rises = exponent(h, of_row) > above[h];
      const float offset = rises ? shift - of_row * scale_of(h) : offset_[h];
      factor[h] = B::exp2(offset - offset_[h]);
      offset_[h] = offset;
      sum_[h] *= factor[h];
      raised = raised || rises;
    }
    return B::any(raised);
  }

  /// Makes probabilities as products take them, those of f16 times f16_scale, and sums of a lane's two rows, in two
  /// chains each. A word of fp8 has two keys of each of two tiles of eight: waves that transpose V put keys where these
  /// stand.
  template <int keys, bool adds = true>
  TILEWAVE_DEVICE void exponentiate(const Scores& scores, Operands& to, float (&sums)[rows]) const {
    constexpr int chains = 2, slices = L::key_slices * keys / P.keys;
    float parts[rows][chains] = {};
    TILEWAVE_UNROLL
    for (int k_slice = 0; k_slice < L::key_slices; ++k_slice) {
      if (k_slice >= slices) {
        to[k_slice] = Chunk{};
        continue;
      }
      TILEWAVE_UNROLL
      for (int w = 0; w < 4; ++w) {
        const int h = w % rows;
        const auto probability = [&](int i) TILEWAVE_INLINE_LAMBDA {
          const float p = B::exp2(exponent(h, scores[i]));
          if constexpr (adds) parts[h][i / 4 % chains] += p;
          return p;
        };
        if constexpr (is_fp8(S.kv)) {
          const int i = 16 * k_slice + w / 2 * 8 + w % 2 * 2;
          const float a = probability(i), b = probability(i + 1), c = probability(i + 4), d = probability(i + 5);
          to[k_slice][w] = B::pack_fp8(a, b, c, d);
        } else {
          const float low = probability(8 * k_slice + 2 * w), high = probability(8 * k_slice + 2 * w + 1);
          to[k_slice][w] =
              S.kv == DType::f16 ? B::pack_f16(low * f16_scale, high * f16_scale) : B::pack_bf16(low, high);
        }
      }
    }
    TILEWAVE_UNROLL
    for (int h = 0; h < rows; ++h) sums[h] = parts[h][0] + parts[h][1];
  }

  static constexpr bool transformed = S.soft_cap || S.alibi;
  /// Returns what scores of a row are multiplied by: the same for all, but for fp8 with scales per head. Those with a
  /// soft cap or slopes are transformed to log2 units before.
  TILEWAVE_DEVICE float scale_of(int h) const { return transformed ? 1.0f : raw_scale_of(h); }
  TILEWAVE_DEVICE float raw_scale_of(int h) const { return is_fp8(S.q) ? scale_[h] : a_.scale_log2; }

  /// Returns this lane's first key of the tile. Element i is key_of(i) behind it.
  TILEWAVE_DEVICE static std::int32_t first_key(std::int32_t tile) { return tile * P.keys + 2 * (B::lane_id() % 4); }
  TILEWAVE_HOST_DEVICE static constexpr std::int32_t key_of(int i) { return i / 4 * 8 + i % 2; }

  /// Applies the soft cap and slopes. Scores become log2 units.
  template <int keys>
  TILEWAVE_DEVICE void transform(std::int32_t tile, Scores& scores) const {
    const std::int32_t first = first_key(tile), behind = item_.sequence.kv_count - item_.sequence.q_count;
    TILEWAVE_UNROLL
    for (int i = 0; i < keys / 2; ++i) {
      scores[i] *= raw_scale_of(i / 2 % 2);
      if constexpr (S.soft_cap) scores[i] = a_.cap_log2 * tanh_of<B>(scores[i]);
      if constexpr (S.alibi) {
        const int h = i / 2 % 2;
        scores[i] -= slope_[h] * abs_of(static_cast<float>(first + key_of(i) - (behind + query(h))));
      }
    }
  }
  /// Keeps scores of which seen(h, key behind this lane's first) is true.
  template <int keys, class Seen>
  TILEWAVE_DEVICE static void mask(Scores& scores, const Seen& seen) {
    TILEWAVE_UNROLL
    for (int h = 0; h < rows; ++h) {
      LaneScores<B, keys>::each(
          h, [&](int i) TILEWAVE_INLINE_LAMBDA { scores[i] = seen(h, key_of(i)) ? scores[i] : minus_infinity; });
    }
  }
  template <int keys>
  TILEWAVE_DEVICE void mask_bits(std::int32_t tile, Scores& scores) const {
    const std::int32_t first = first_key(tile);
    mask<keys>(scores, [&](int h, int key) TILEWAVE_INLINE_LAMBDA {
      const std::int32_t query_of_row = min_of(query(h), item_.sequence.q_count - 1);
      return item_.sequence.template mask_allows<B>(a_, query_of_row, first + key);
    });
  }

  const FlashAttentionArgs& a_;
  const FlashAttentionSections& sections_;
  const FlashAttentionItem& item_;
  std::int32_t row_;
  VisibleKeys visible_[rows], all_see_;
  float slope_[rows]{}, scale_[rows], value_scale_ = 1.0f;
  float offset_[rows], sum_[rows];  // log2 units; sums of this lane's keys
};

}  // namespace tilewave
