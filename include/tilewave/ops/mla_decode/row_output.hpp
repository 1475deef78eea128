// SPDX-License-Identifier: MIT
// How lanes that have columns of a row write them: the row's output, or a partial result for combine.
#pragma once

#include "tilewave/attention/sink.hpp"
#include "tilewave/ops/mla_decode/args.hpp"
#include "tilewave/ops/paged_attention/work_item.hpp"
#include "tilewave/tile/element.hpp"

namespace tilewave {

/// A row of a block whose tokens were all seen: its number in the block and in the sequence, the sum of its
/// probabilities, and the reference that they are relative to, in log2 units.
struct MlaDecodeRow {
  std::int32_t in_block, in_sequence;
  float sum, reference;
};

template <class B, MlaDecodePolicy P>
struct MlaDecodeRowOutput {
  /// each_run(f) calls f with the first column of each run of columns of the lane, and their sums. `first_lane` is the
  /// one lane of the row that writes its lse.
  template <class EachRun>
  TILEWAVE_DEVICE static void write(const PagedAttentionArgs& a, const PagedAttentionWorkItem& item,
                                    const MlaDecodeRow& of, float v_scale, bool first_lane, const EachRun& each_run) {
    const float sum = item.beyond_table ? __builtin_nanf("") : of.sum;
    float lse = sum == 0.0f ? minus_infinity : (of.reference + B::log2(sum)) * ln_2;
    if (item.first_row + of.in_block >= a.rows) return;
    const float scale = sum == 0.0f ? 0.0f : v_scale / sum;
    const QueryRow query = query_row(a, item, of.in_sequence);
    const std::int64_t out_index = query.out_row * a.num_q_heads + query.head;
    if (item.slot < 0) {
      float sink_scale = 1.0f;
      if (a.sinks != nullptr) {
        const JoinedSink joined = join_sink<B>(lse, B::load(a.sinks + query.head));
        sink_scale = joined.out_scale;
        lse = joined.lse;
      }
      auto* const to =
          static_cast<std::uint16_t*>(a.out) + query.out_row * a.out_row_stride + query.head * a.out_head_stride;
      each_run([&]<int n>(int column, const Vec<float, n>& sums) TILEWAVE_INLINE_LAMBDA {
        constexpr int together = min_of(n, 8);
        TILEWAVE_UNROLL
        for (int first = 0; first < n; first += together) {
          Vec<float, together> values;
          TILEWAVE_UNROLL
          for (int i = 0; i < together; ++i) {
            // Combine adds partial results to 0, which turns -0 into +0. Subtracting -0 does the same.
            values[i] = B::subtract(sums[first + i] * scale, -0.0f) * sink_scale;
          }
          B::store(reinterpret_cast<Vec<std::uint32_t, together / 2>*>(to + column + first),
                   narrow<B, DType::bf16, together>(values));
        }
      });
      if (a.lse != nullptr && first_lane) B::store(a.lse + out_index, lse);
    } else {
      const std::int64_t partial =
          P.balanced() ? std::int64_t{item.slot} * P.rows + of.in_block : out_index * a.splits.divisor + item.slot;
      float* const to = a.partial_out + partial * latent_value_size;
      each_run([&]<int n>(int column, const Vec<float, n>& sums) TILEWAVE_INLINE_LAMBDA {
        TILEWAVE_UNROLL
        for (int first = 0; first < n; first += 4) {
          Vec<float, 4> values;
          TILEWAVE_UNROLL
          for (int i = 0; i < 4; ++i) values[i] = sums[first + i] * scale;
          B::store(reinterpret_cast<Vec<float, 4>*>(to + column + first), values);
        }
      });
      if (first_lane) B::store(a.partial_lse + partial, lse);
    }
  }
};

}  // namespace tilewave
