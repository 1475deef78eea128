// SPDX-License-Identifier: MIT
// Combines partial attention results.
//
// Grid: P.rows output rows a block, rows x heads with heads fastest. P.lanes lanes hold one output row and walk its
// partials (attention/partial_sum.hpp). There is no shared memory. Bound: bytes of the partials, or two reads that
// depend on each other.
#pragma once

#include "tilewave/attention/partial_sum.hpp"
#include "tilewave/core/launch_arguments.hpp"
#include "tilewave/ops/attention_combine/policy.hpp"
#include "tilewave/ops/attention_combine/problem.hpp"

namespace tilewave {

struct AttentionCombineArgs {
  const void* x;
  const float* x_lse;
  void* out;
  float* lse;  // may be null
  PartialStrides x_strides, x_lse_strides;
  CombinedStrides out_strides, lse_strides;
  FastDiv heads;
  std::int32_t output_rows;  // rows * heads
  std::int32_t partials, head_size;
};
static_assert(sizeof(AttentionCombineArgs) <= sm90_arguments_with_launch);

template <class B, AttentionCombineSpec S, AttentionCombinePolicy P>
struct AttentionCombine {
  using Room = B;
  using Args = AttentionCombineArgs;
  using Total = PartialSum<B, S.x, P, true>;
  struct Shared {};

  static constexpr int block_threads = P.block_threads();
  static constexpr int waves_per_simd = P.waves_per_simd;

  TILEWAVE_DEVICE static void run(const Args& a, Shared&) {
    const std::int32_t wanted = B::block_id() * P.rows + row_in_block();
    // Lanes beyond the last row compute it again, since all lanes of a wave work together.
    const std::int32_t output_row = min_of(wanted, a.output_rows - 1);
    const std::int64_t row = a.heads.quotient(output_row), head = output_row - row * a.heads.divisor;

    const auto* x = static_cast<const Storage<S.x>*>(a.x) + row * a.x_strides.row + head * a.x_strides.head;
    const float* x_lse = a.x_lse + row * a.x_lse_strides.row + head * a.x_lse_strides.head;
    const Total total =
        Total::of(PartialRow{x, x_lse, a.x_strides.partial, a.x_lse_strides.partial, a.partials}, a.head_size);
    if (wanted > output_row) return;

    auto* out = static_cast<Storage<S.out>*>(a.out) + row * a.out_strides.row + head * a.out_strides.head;
    total.template store<S.out>(out, a.head_size);
    if (a.lse != nullptr && Total::lane() == 0) {
      B::store(a.lse + row * a.lse_strides.row + head * a.lse_strides.head, total.lse);
    }
  }

 private:
  TILEWAVE_DEVICE static std::int32_t row_in_block() {
    return P.lanes == B::facts.wave_lanes ? B::wave_id() : B::block_lane_id() / P.lanes;
  }
};

}  // namespace tilewave
