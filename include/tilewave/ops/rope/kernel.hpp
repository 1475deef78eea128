// SPDX-License-Identifier: MIT
// Rotary position embedding of q and k, in place or not. Grid: one block per P.rows heads; heads of q and k of a token
// are neighbours. P.lanes lanes hold a head, with two accesses each whose elements rotate together, so no lane needs
// another's. Positions and heads are fetched together, and the rows of the tables after the positions. No LDS. Bound:
// memory.
#pragma once

#include "tilewave/core/launch_arguments.hpp"
#include "tilewave/ops/rope/policy.hpp"
#include "tilewave/ops/rope/problem.hpp"
#include "tilewave/ops/rope/rotation.hpp"

namespace tilewave {

struct RopeArgs {
  struct Tensor {
    const void* x;
    void* out;
    HeadStrides strides, out_strides;
  };
  Tensor q, k;
  const void* cos;
  const void* sin;
  IndexList positions;
  FastDiv heads;  // heads of q and k together
  std::int32_t rows, q_heads;
  std::int32_t head_size, rotary, table_rows;
  std::int64_t table_stride;
};
static_assert(sizeof(RopeArgs) <= sm90_arguments_with_launch);

template <class B, RopeSpec S, RopePolicy P>
struct Rope {
  using Room = B;
  using Args = RopeArgs;
  struct Shared {};
  static constexpr int block_threads = P.block_threads(), waves_per_simd = P.waves_per_simd;
  static constexpr int unit = P.vec / size_of(S.x), pairs = P.chunks / 2;
  using Angles = Rotation<B, kernel_spec(S), unit>;
  using Access = Packed<S.x, unit>;
  using Window = typename B::template Window<false>;
  static_assert(P.chunks % 2 == 0 && P.lanes <= B::facts.wave_lanes * 2,
                "a lane has both halves of its pairs, and a head at most two waves");

  TILEWAVE_DEVICE static void run(const Args& a, Shared&) {
    const int thread = B::block_lane_id(), lane = thread % P.lanes;
    const std::int32_t wanted = B::block_id() * P.rows + thread / P.lanes, row = min_of(wanted, a.rows - 1);
    const std::int32_t token = a.heads.quotient(row), of_token = row - token * a.heads.divisor;
    const bool is_k = of_token >= a.q_heads;
    const std::int64_t head = is_k ? of_token - a.q_heads : of_token;
    const auto of = [&](auto q, auto k) {
      return is_k ? k : q;
    };  // returned by value: a choice of addresses would be fetched late
    const auto offset = [&](const HeadStrides& q, const HeadStrides& k) {
      return token * of(q.token, k.token) + head * of(q.head, k.head);
    };
    const auto* x = static_cast<const Storage<S.x>*>(of(a.q.x, a.k.x)) + offset(a.q.strides, a.k.strides);
    auto* out = static_cast<Storage<S.x>*>(of(a.q.out, a.k.out)) + offset(a.q.out_strides, a.k.out_strides);
    const std::uint32_t bytes = a.head_size * size_of(S.x);
    const int last = a.head_size - unit;  // lanes behind the head's end read this again

    const Vec<std::uint32_t, 2> position = a.positions.template load<B>(token);
    RotationSlot at[pairs];
    Access low[pairs], high[pairs];
    const Window source{B::opaque(x), bytes};
    TILEWAVE_UNROLL
    for (int i = 0; i < pairs; ++i) {
      at[i] = Angles::slot(lane + i * P.lanes, a.rotary);
      low[i] = source.template load_stream_inside<Access>(min_of(at[i].low, last) * size_of(S.x));
      high[i] = source.template load_stream_inside<Access>(min_of(at[i].high, last) * size_of(S.x));
    }
    B::sched_fence();  // nothing is waited for before all loads are issued
    const bool known = a.positions.below(position, a.table_rows);
    const std::int64_t angles = (known ? position[0] : 0) * a.table_stride;
    Angles rotation[pairs];
    TILEWAVE_UNROLL
    for (int i = 0; i < pairs; ++i) {
      rotation[i].load(static_cast<const Storage<S.table>*>(a.cos) + angles,
                       static_cast<const Storage<S.table>*>(a.sin) + angles, at[i].rotates ? at[i].column : 0);
    }
    B::sched_fence();
    TILEWAVE_UNROLL
    for (int i = 0; i < pairs; ++i) {
      Vec<float, unit> first = widen<B, S.x, unit>(low[i]), second = widen<B, S.x, unit>(high[i]);
      rotation[i].rotate(known, first, second);
      const Access rotated_low = narrow<B, S.x, unit>(first), rotated_high = narrow<B, S.x, unit>(second);
      TILEWAVE_UNROLL
      for (int w = 0; w < Access::size; ++w) {
        low[i][w] = at[i].rotates ? rotated_low[w] : low[i][w];
        high[i][w] = at[i].rotates ? rotated_high[w] : high[i][w];
      }
      // In place, elements that do not rotate are already where they belong.
      const Window target{B::opaque(out), wanted == row && (at[i].rotates || out != x) ? bytes : 0};
      target.store_stream(at[i].low * size_of(S.x), low[i]);
      target.store_stream(at[i].high * size_of(S.x), high[i]);
    }
  }
};

}  // namespace tilewave
