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

/// What a row's sums are multiplied by, and if they become the output or a partial result.
struct MlaDecodeRowScale {
  float scale, sink_scale;
  bool partial;

  /// Returns the value that a sum becomes. Combine adds partial results to 0, which turns -0 into +0. Subtracting -0
  /// does the same.
  template <class B>
  TILEWAVE_DEVICE float of(float sum) const {
    return partial ? sum * scale : B::subtract(sum * scale, -0.0f) * sink_scale;
  }
};

template <class B, MlaDecodePolicy P>
struct MlaDecodeRowOutput {
  /// Returns the scale of a row. `first_lane` is the one lane of the row that writes its lse.
  TILEWAVE_DEVICE static MlaDecodeRowScale scale(const PagedAttentionArgs& a, const PagedAttentionWorkItem& item,
                                                 const MlaDecodeRow& of, float v_scale, bool first_lane) {
    const float sum = item.beyond_table ? __builtin_nanf("") : of.sum;
    float lse = sum == 0.0f ? minus_infinity : (of.reference + B::log2(sum)) * ln_2;
    const bool writes = first_lane && is_row(a, item, of.in_block);
    MlaDecodeRowScale row{sum == 0.0f ? 0.0f : v_scale / sum, 1.0f, item.slot >= 0};
    const QueryRow query = query_row(a, item, of.in_sequence);
    if (!row.partial) {
      if (a.sinks != nullptr) {
        const JoinedSink joined = join_sink<B>(lse, B::load(a.sinks + query.head));
        row.sink_scale = joined.out_scale;
        lse = joined.lse;
      }
      if (a.lse != nullptr && writes) B::store(a.lse + query.out_row * a.num_q_heads + query.head, lse);
    } else if (writes) {
      B::store(a.partial_lse + partial_of(a, item, of), lse);
    }
    return row;
  }
  TILEWAVE_DEVICE static bool is_row(const PagedAttentionArgs& a, const PagedAttentionWorkItem& item,
                                     std::int32_t in_block) {
    return item.first_row + in_block < a.rows;
  }
  /// Returns the row of the output, or that of the partial result.
  TILEWAVE_DEVICE static std::uint16_t* out(const PagedAttentionArgs& a, const PagedAttentionWorkItem& item,
                                            std::int32_t row) {
    const QueryRow query = query_row(a, item, row);
    return static_cast<std::uint16_t*>(a.out) + query.out_row * a.out_row_stride + query.head * a.out_head_stride;
  }
  TILEWAVE_DEVICE static float* partial_out(const PagedAttentionArgs& a, const PagedAttentionWorkItem& item,
                                            const MlaDecodeRow& of) {
    return a.partial_out + partial_of(a, item, of) * latent_value_size;
  }

  /// each_run(f) calls f with the first column of each run of columns of the lane, and their sums.
  template <class EachRun>
  TILEWAVE_DEVICE static void write(const PagedAttentionArgs& a, const PagedAttentionWorkItem& item,
                                    const MlaDecodeRow& of, float v_scale, bool first_lane, const EachRun& each_run) {
    const MlaDecodeRowScale row = scale(a, item, of, v_scale, first_lane);
    if (!is_row(a, item, of.in_block)) return;
    if (!row.partial) {
      std::uint16_t* const to = out(a, item, of.in_sequence);
      each_run([&]<int n>(int column, const Vec<float, n>& sums) TILEWAVE_INLINE_LAMBDA {
        constexpr int together = min_of(n, 8);
        TILEWAVE_UNROLL
        for (int first = 0; first < n; first += together) {
          Vec<float, together> values;
          TILEWAVE_UNROLL
          for (int i = 0; i < together; ++i) values[i] = row.of<B>(sums[first + i]);
          B::store(reinterpret_cast<Vec<std::uint32_t, together / 2>*>(to + column + first),
                   narrow<B, DType::bf16, together>(values));
        }
      });
    } else {
      float* const to = partial_out(a, item, of);
      each_run([&]<int n>(int column, const Vec<float, n>& sums) TILEWAVE_INLINE_LAMBDA {
        TILEWAVE_UNROLL
        for (int first = 0; first < n; first += 4) {
          Vec<float, 4> values;
          TILEWAVE_UNROLL
          for (int i = 0; i < 4; ++i) values[i] = row.of<B>(sums[first + i]);
          B::store(reinterpret_cast<Vec<float, 4>*>(to + column + first), values);
        }
      });
    }
  }

 private:
  TILEWAVE_DEVICE static std::int64_t partial_of(const PagedAttentionArgs& a, const PagedAttentionWorkItem& item,
                                                 const MlaDecodeRow& of) {
    if constexpr (P.balanced()) return std::int64_t{item.slot} * P.rows + of.in_block;
    const QueryRow query = query_row(a, item, of.in_sequence);
    return (query.out_row * a.num_q_heads + query.head) * a.splits.divisor + item.slot;
  }
};

}  // namespace tilewave
