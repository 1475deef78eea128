// SPDX-License-Identifier: MIT
// Combines the partial results of the splits, with the arithmetic of ops/attention_combine: out = sum_p w_p o_p with
// w_p = exp(lse_p - lse). Then sinks join. Grid: one wave for each output row (sequence, query token, head), `waves`
// rows a block. There is no shared memory. Bound: latency of two reads that depend on each other.
#pragma once

#include "tilewave/attention/partial_sum.hpp"
#include "tilewave/attention/sink.hpp"
#include "tilewave/ops/paged_attention/args.hpp"

namespace tilewave {

template <class B, int head_size, DType out_type = DType::bf16>
struct PagedAttentionCombine {
  using Room = B;
  using Args = PagedAttentionArgs;
  struct Shared {};

  static constexpr int lanes = B::facts.wave_lanes, waves = paged_attention_combine_waves_of_block;
  static constexpr int block_threads = waves * lanes;
  static constexpr int waves_per_simd = 2;
  static constexpr int unit = head_size >= 4 * lanes   ? 4
                              : head_size >= 2 * lanes ? 2
                                                       : 1;  // columns that a lane reads at once
  static constexpr RowPolicy row_policy{
      .lanes = lanes, .rows = waves, .chunks = ceil_div(head_size, unit* lanes), .vec = unit * int{sizeof(float)}};
  static_assert(head_size % unit == 0 && max_splits <= max_partials,
                "a lane's accesses end with the head, and a row has room for all its partials");

  TILEWAVE_DEVICE static void run(const Args& a, Shared&) {
    const std::int32_t row = B::block_id() * waves + B::wave_id();
    if (row >= a.output_rows) return;
    const std::int32_t splits = a.splits.divisor;
    const std::int64_t partial = std::int64_t{row} * splits;
    using Total = PartialSum<B, DType::f32, row_policy, false>;
    Total total = Total::of(
        PartialRow{a.partial_out + partial * head_size, a.partial_lse + partial, head_size, 1, splits}, head_size);

    const std::int32_t out_row = row / a.num_q_heads, head = row - out_row * a.num_q_heads;
    if (a.sinks != nullptr) {
      const JoinedSink joined = join_sink<B>(total.lse, B::load(a.sinks + head));
      total.scale(joined.out_scale);
      total.lse = joined.lse;
    }
    auto* to = static_cast<Storage<out_type>*>(a.out) + out_row * a.out_row_stride + head * a.out_head_stride;
    total.template store<out_type>(to, head_size);
    if (a.lse != nullptr && B::lane_id() == 0) B::store(a.lse + row, total.lse);
  }
};

}  // namespace tilewave
