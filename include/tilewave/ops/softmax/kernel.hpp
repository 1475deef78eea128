// SPDX-License-Identifier: MIT
// Softmax and log softmax over rows. Grid: one block per P.rows rows. The lanes of a row keep it in registers between
// the maximum, the sum and the output (P.held), so it is read once and written once; else maximum and sum are found
// together in one pass and the row is read once more. Shared memory: a few floats per wave. Bound: memory.
#pragma once

#include "tilewave/ops/softmax/policy.hpp"
#include "tilewave/ops/softmax/problem.hpp"

namespace tilewave {

struct SoftmaxArgs {
  const void* x;
  float* lse;
  const std::int32_t* lengths;
  RowExtent extent;
  RowStrides x_strides;
  RowOutputArgs output;
  FastDiv rows_per_length;
  FastDiv causal_rows;  // by 1 without a causal mask
  float scale_log2;     // scale * log2(e)
};

template <class B, SoftmaxSpec S, SoftmaxPolicy P>
struct Softmax {
  using Room = B;
  using Args = SoftmaxArgs;
  using Tile = Row<B, S.x, P>;
  using Output = RowOutput<B, S.x, RowOutputSpec{S.x, ScaleMode::none}, P>;
  static constexpr int block_threads = P.block_threads(), waves_per_simd = P.waves_per_simd;
  static constexpr int reductions = 2, unit = Tile::unit;
  static constexpr float minus_infinity = -__builtin_inff();
  using Shared = typename Tile::template Shared<reductions>;

  TILEWAVE_DEVICE static void run(const Args& a, Shared& shared) {
    auto at = Tile::place(a.extent);
    const int visible = visible_columns(a, at);
    const void* source = Tile::row(a.x, a.extent, at, a.x_strides);
    Tile x;
    const auto load = [&](int from) {  // what is not visible becomes a score of -inf
      x.load(source, at, from, visible);
      x.fill(at, from, visible, infinity_bits(a.scale_log2 > 0.0f));
    };
    if constexpr (P.held) load(0);
    const auto each = [&](int columns, const auto& body) {
      Tile::tiles(columns, [&](int from) {
        if constexpr (P.held) {
          x.refresh(at);
        } else {
          load(from);
        }
        body(from);
      });
    };
    // Scores in log2 units.
    const auto scores = [&](int chunk) {
      Vec<float, unit> s = x.values(chunk);
      TILEWAVE_UNROLL
      for (int e = 0; e < unit; ++e) s[e] *= a.scale_log2;
      return s;
    };

    // Of this lane first: `sum` counts in units of exp2(top), the largest score or 0 where there is none.
    float largest = minus_infinity, sum = 0.0f, top = 0.0f;
    const auto add_up = [&](int) {
      TILEWAVE_UNROLL
      for (int c = 0; c < P.chunks; ++c) {
        const Vec<float, unit> s = scores(c);
        TILEWAVE_UNROLL
        for (int e = 0; e < unit; ++e) sum += B::exp2(s[e] - top);
      }
    };
    each(visible, [&](int from) {
      const float before = largest;
      TILEWAVE_UNROLL
      for (int c = 0; c < P.chunks; ++c) {
        const Vec<float, unit> s = scores(c);
        TILEWAVE_UNROLL
        for (int e = 0; e < unit; ++e) largest = Max{}(largest, s[e]);
      }
      if constexpr (!P.held) {
        top = finite_or_zero(largest);
        sum *= B::exp2(before - top);
        add_up(from);
      }
    });
    const float lane_top = top;
    largest = Tile::template reduce<0>(shared, at, largest, Max{});
    top = finite_or_zero(largest);
    if constexpr (P.held) {
      each(visible, add_up);
    } else {
      sum *= B::exp2(lane_top - top);
    }
    sum = Tile::template reduce<1>(shared, at, sum, Sum{});
    const float sum_log2 = B::log2(sum);
    if (a.lse != nullptr && at.active && at.lane == 0) B::store(a.lse + at.row, (top + sum_log2) * ln_2);

    const float inverse = sum == 0.0f ? 0.0f : 1.0f / sum;  // NaN stays NaN
    Output::template write<0>(
        a.output, a.extent, at, shared, [&](const auto& body) { each(a.extent.columns, body); },
        [&](int chunk, int) TILEWAVE_INLINE_LAMBDA {
          Vec<float, unit> s = scores(chunk);
          TILEWAVE_UNROLL
          for (int e = 0; e < unit; ++e) {
            if constexpr (S.kind == SoftmaxKind::softmax) {
              s[e] = B::exp2(s[e] - top) * inverse;
            } else {
              s[e] = sum == 0.0f ? minus_infinity : ((s[e] - top) - sum_log2) * ln_2;
            }
          }
          return s;
        });
  }

 private:
  TILEWAVE_DEVICE static Storage<S.x> infinity_bits(bool negative) {
    if constexpr (S.x == DType::f32) {
      return negative ? 0xff800000u : 0x7f800000u;
    } else if constexpr (S.x == DType::bf16) {
      return negative ? 0xff80 : 0x7f80;
    } else {
      return negative ? 0xfc00 : 0x7c00;
    }
  }
  TILEWAVE_DEVICE static float finite_or_zero(float x) { return x == minus_infinity ? 0.0f : x; }

  TILEWAVE_DEVICE static int visible_columns(const Args& a, const typename Tile::Place& at) {
    int visible = a.extent.columns;
    if (a.lengths != nullptr && at.active) {
      visible = min_of(visible, max_of(B::load(a.lengths + a.rows_per_length.quotient(at.row)), 0));
    }
    return max_of(visible - (a.causal_rows.divisor - 1 - a.causal_rows.remainder(at.row)), 0);
  }
};

}  // namespace tilewave
