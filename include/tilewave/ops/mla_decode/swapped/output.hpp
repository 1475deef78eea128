// SPDX-License-Identifier: MIT
// At the end of an item both wave groups add up their sums in the place of q, half of the dimensions at a time, and
// write whole rows of them: the output, or a partial result.
#pragma once

#include "tilewave/ops/mla_decode/swapped/softmax.hpp"

namespace tilewave {

template <class B, class L, class Softmax = MlaDecodeSwappedSoftmax<B, L>>
class MlaDecodeSwappedOutput {
  static constexpr int block_waves = L::groups * L::group_waves, wave_rows = L::rows / block_waves;

 public:
  TILEWAVE_DEVICE MlaDecodeSwappedOutput(const MlaDecodeArgs& args, const PagedAttentionWorkItem& item,
                                         typename L::Shared& shared, int group, int wave)
      : a_(args.attention), item_(item), shared_(shared), group_(group), block_wave_(group * L::group_waves + wave) {}

  /// Sums and references of both groups are there, and nobody reads q any more.
  template <class Meet>
  TILEWAVE_DEVICE void write(const Softmax& softmax, const typename L::Sums& out, const Meet& meet) {
    float factor[Softmax::lane_rows], of_units = 1.0f, unit = 1.0f;
    TILEWAVE_UNROLL
    for (int i = 0; i < Softmax::lane_rows; ++i) factor[i] = softmax.factor(i, common(Softmax::row(i)));
    if constexpr (L::grouped) {
      of_units = Softmax::unit_factor(shared_.unit[group_], common_unit());
      unit = L::power(common_unit());
    }
    const float scale = finish_row(block_wave_ + B::lane_id() % wave_rows * block_waves);
    auto* const staged = reinterpret_cast<float*>(shared_.q);
    const auto write_half = [&](int half) TILEWAVE_INLINE_LAMBDA {
      meet();
      TILEWAVE_ROLL
      for (int i = 0; i < wave_rows; ++i)
        write_row(block_wave_ + i * block_waves, half, B::shuffle(scale, i), unit, staged);
      if (half == 0) meet();
    };
    // The code runs once an item, so each line of it may be a read of memory.
    if constexpr (L::Sums::parts == L::half_boxes) {  // each group has half of the dimensions
      TILEWAVE_ROLL
      for (int half = 0; half < 2; ++half) {
        if (group_ == half) put<false>(half, out, factor, of_units, staged);
        write_half(half);
      }
    } else {
      TILEWAVE_UNROLL
      for (int half = 0; half < 2; ++half) {
        if (group_ == 1) put<false>(half, out, factor, of_units, staged);
        meet();
        if (group_ == 0) put<true>(half, out, factor, of_units, staged);
        write_half(half);
      }
    }
  }

 private:
  /// Returns which partial result is row r's.
  TILEWAVE_DEVICE std::int64_t partial(int r, const QueryRow& query) const {
    if constexpr (L::policy.balanced()) return std::int64_t{item_.slot} * L::rows + r;
    return (query.out_row * a_.num_q_heads + query.head) * a_.splits.divisor + item_.slot;
  }
  TILEWAVE_DEVICE std::uint32_t common_unit() const { return max_of(shared_.unit[0], shared_.unit[1]); }
  TILEWAVE_DEVICE float common(int row) const { return Max{}(shared_.reference[0][row], shared_.reference[1][row]); }

  /// Returns the factor of the lane's row of the block, and writes its lse, if the lane is the first that has it.
  TILEWAVE_DEVICE float finish_row(int r) const {
    const float reference = common(r), base = reference == minus_infinity ? 0.0f : reference;
    float total = 0.0f;
    TILEWAVE_UNROLL
    for (int g = 0; g < L::groups; ++g) {
      const auto sums = *reinterpret_cast<const Vec<float, 4>*>(shared_.of_wave[g][r]);
      total += B::exp2(shared_.reference[g][r] - base) * (sums[0] + sums[1] + (sums[2] + sums[3]));
    }
    if (item_.beyond_table) total = __builtin_nanf("");
    float scale = 1.0f;
    if constexpr (L::one_scale) scale = B::load(a_.k_scale);
    scale = total == 0.0f ? 0.0f : scale / total;
    float lse = total == 0.0f ? minus_infinity : (reference - Softmax::shift + B::log2(total)) * ln_2;
    const std::int32_t row = item_.first_row + r;
    const QueryRow query = query_row(a_, item_, min_of(row, a_.rows - 1));
    if (item_.slot < 0 && a_.sinks != nullptr) {
      const JoinedSink joined = join_sink<B>(lse, B::load(a_.sinks + query.head));
      scale *= joined.out_scale;
      lse = joined.lse;
    }
    if (row < a_.rows && B::lane_id() < wave_rows) {
      if (item_.slot >= 0) {
        B::store(a_.partial_lse + partial(r, query), lse);
      } else if (a_.lse != nullptr) {
        B::store(a_.lse + query.out_row * a_.num_q_heads + query.head, lse);
      }
    }
    return scale;
  }

  /// Puts half of the group's sums into rows, or adds them to those that are there.
  template <bool adds>
  TILEWAVE_DEVICE void put(int half, const typename L::Sums& out, const float (&factor)[Softmax::lane_rows],
                           float of_units, float* staged) const {
    TILEWAVE_UNROLL
    for (int box = 0; box < L::half_boxes; ++box) {
      const int block = half * L::half_boxes + box;
      const float of_block = L::is_wide(block) ? 1.0f : of_units;
      TILEWAVE_UNROLL
      for (int e = 0; e < L::rows / 2; ++e) {
        const int i = 2 * (e / 4) + e % 2;
        const int dimension =
            64 * box + 16 * (block_wave_ % L::group_waves) + L::dimension_of(B::lane_id() / 4, e / 2 % 2, block);
        float& at = staged[Softmax::row(i) * L::staged_row + dimension];
        // Both halves are written out, or registers would have an index that is not known.
        constexpr bool one_half = L::Sums::parts == L::half_boxes;
        const float own = one_half || half == 0 ? out.of[box][e] : out.of[L::Sums::parts - L::half_boxes + box][e];
        const float sum = own * (factor[i] * of_block);
        at = adds ? at + sum : sum;
      }
    }
  }

  TILEWAVE_DEVICE void write_row(int r, int half, float scale, float unit, const float* staged) const {
    const std::int32_t row = item_.first_row + r;
    if (row >= a_.rows) return;
    const auto* const from = reinterpret_cast<const Vec<float, 4>*>(staged + r * L::staged_row);
    const QueryRow query = query_row(a_, item_, row);
    const auto of = [&](int dimension)
                        TILEWAVE_INLINE_LAMBDA { return L::is_wide(dimension / 64) ? scale : scale * unit; };
    if (item_.slot >= 0) {  // neighbouring lanes have neighbouring chunks
      auto* const to = reinterpret_cast<Vec<float, 4>*>(a_.partial_out + partial(r, query) * latent_value_size +
                                                        half * L::half_dimensions);
      for (int n = B::lane_id(); n < L::half_dimensions / 4; n += L::lanes)
        B::store(to + n, scaled(from[n], of(half * L::half_dimensions + 4 * n)));
      return;
    }
    const int dimension = half * L::half_dimensions + 8 * B::lane_id();
    const Vec<float, 4> low = from[2 * B::lane_id()], high = from[2 * B::lane_id() + 1];
    scale = of(dimension);
    auto* const to = static_cast<std::uint16_t*>(a_.out) + query.out_row * a_.out_row_stride +
                     query.head * a_.out_head_stride + dimension;
    Chunk words;
    TILEWAVE_UNROLL
    for (int w = 0; w < 2; ++w) {
      // Combine adds partial results to 0, which turns -0 into +0. So does this.
      words[w] = B::round_bf16(fused(low[2 * w], scale, 0.0f), fused(low[2 * w + 1], scale, 0.0f));
      words[2 + w] = B::round_bf16(fused(high[2 * w], scale, 0.0f), fused(high[2 * w + 1], scale, 0.0f));
    }
    B::store(reinterpret_cast<Chunk*>(to), words);
  }
  TILEWAVE_DEVICE static Vec<float, 4> scaled(const Vec<float, 4>& v, float scale) {
    return {{v[0] * scale, v[1] * scale, v[2] * scale, v[3] * scale}};
  }

  const PagedAttentionArgs& a_;
  const PagedAttentionWorkItem& item_;
  typename L::Shared& shared_;
  int group_, block_wave_;
};

}  // namespace tilewave
