// SPDX-License-Identifier: MIT
// Softmax and log softmax over rows. Grid: one block, or cluster of P.blocks, per P.rows rows. The lanes of a row keep
// it in registers between statistics and output (P.held), so it is read once and written once; else it is read once
// more for the output. Maximum and sum are found together: of a lane, then of the row in one reduction. Shared memory:
// a few floats per wave. Bound: memory.
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
  static constexpr int unit = Tile::unit;
  static constexpr bool keep = S.kind == SoftmaxKind::softmax && Tile::keeps;
  static constexpr float minus_infinity = -__builtin_inff();
  using Shared = typename Tile::template Shared<2>;  // maximum and sum, found together

  TILEWAVE_DEVICE static void run(const Args& a, Shared& shared) {
    const auto at = Tile::place(a.extent);
    const int visible = visible_columns(a, at);
    const void* source = Tile::row(a.x, a.extent, at, a.x_strides);
    Tile x;
    const auto load = [&](int from) {  // what is not visible becomes a score of -inf
      x.load(source, at, from, visible);
      Vec<float, unit> hidden;
      TILEWAVE_UNROLL
      for (int e = 0; e < unit; ++e) hidden[e] = a.scale_log2 > 0.0f ? minus_infinity : -minus_infinity;
      x.fill(at, from, visible, hidden);
    };
    if constexpr (P.held) load(at.first);
    const auto each = [&](int columns, const auto& body) {
      Tile::tiles(at, columns, [&](int from) {
        if constexpr (P.held) {
          x.refresh();
        } else {
          load(from);
        }
        body(from);
      });
    };
    // In log2 units.
    const auto scores = [&](int chunk) {
      Vec<float, unit> s = x.values(chunk);
      TILEWAVE_UNROLL
      for (int e = 0; e < unit; ++e) s[e] *= a.scale_log2;
      return s;
    };

    // Of this lane first: `sum` counts in units of exp2(top), the largest score or 0 where there is none.
    Vec<float, unit> kept[keep ? P.chunks : 1];  // scores, then exp2(score - top)
    float largest = minus_infinity, sum = 0.0f, top = 0.0f;
    each(visible, [&](int) {
      const float before = largest;
      TILEWAVE_UNROLL
      for (int c = 0; c < P.chunks; ++c) {
        const Vec<float, unit> s = scores(c);
        largest = Max{}(largest, fold(s, Max{}));
        if constexpr (keep) kept[c] = s;
      }
      top = finite_or_zero(largest);
      if constexpr (!keep) x.refresh();
      if constexpr (!P.held) sum *= B::exp2(before - top);
      TILEWAVE_UNROLL
      for (int c = 0; c < P.chunks; ++c) {
        Vec<float, unit> s = keep ? kept[keep ? c : 0] : scores(c);
        TILEWAVE_UNROLL
        for (int e = 0; e < unit; ++e) s[e] = B::exp2(s[e] - top);
        sum += fold(s, Sum{});
        if constexpr (keep) kept[c] = s;
      }
    });
    const float lane_largest = largest;
    Vec<float, 2> found;
    found[0] = largest;
    found[1] = sum;
    found = Tile::template reduce_values<0, ScaledSum>(shared, at, found);
    top = finite_or_zero(found[0]);
    sum = found[1];
    const float sum_log2 = B::log2(sum);
    if (a.lse != nullptr && at.leader) B::store(a.lse + at.row, (top + sum_log2) * ln_2);

    const float inverse = sum == 0.0f ? 0.0f : 1.0f / sum;           // NaN stays NaN
    const float kept_scale = B::exp2(lane_largest - top) * inverse;  // 0 for a lane that saw nothing
    Output::template write<0>(
        a.output, a.extent, at, shared, [&](const auto& body) { each(a.extent.columns, body); },
        [&](int chunk, int) TILEWAVE_INLINE_LAMBDA {
          Vec<float, unit> s;
          if constexpr (keep) {
            s = kept[chunk];
            TILEWAVE_UNROLL
            for (int e = 0; e < unit; ++e) s[e] *= kept_scale;
          } else {
            s = scores(chunk);
            TILEWAVE_UNROLL
            for (int e = 0; e < unit; ++e) {
              if constexpr (S.kind == SoftmaxKind::softmax) {
                s[e] = B::exp2(s[e] - top) * inverse;
              } else {
                s[e] = sum == 0.0f ? minus_infinity : ((s[e] - top) - sum_log2) * ln_2;
              }
            }
          }
          return s;
        });
  }

 private:
  TILEWAVE_DEVICE static float finite_or_zero(float x) { return x == minus_infinity ? 0.0f : x; }

  /// Of a largest score and a sum in units of exp2(it); 0 where there is none.
  struct ScaledSum {
    template <int lanes>
    TILEWAVE_DEVICE static Vec<float, 2> across(Vec<float, 2> v) {
      const float largest = B::template reduce<lanes>(v[0], Max{});
      v[1] = B::template reduce<lanes>(v[1] * B::exp2(v[0] - finite_or_zero(largest)), Sum{});
      v[0] = largest;
      return v;
    }
    TILEWAVE_DEVICE static Vec<float, 2> merge(Vec<float, 2> v, Vec<float, 2> w) {
      const float largest = Max{}(v[0], w[0]), top = finite_or_zero(largest);
      v[1] = v[1] * B::exp2(v[0] - top) + w[1] * B::exp2(w[0] - top);
      v[0] = largest;
      return v;
    }
  };

  TILEWAVE_DEVICE static int visible_columns(const Args& a, const typename Tile::Place& at) {
    int visible = a.extent.columns;
    if (a.lengths != nullptr && at.active) {
      visible = min_of(visible, max_of(B::load(a.lengths + a.rows_per_length.quotient(at.row)), 0));
    }
    return max_of(visible - (a.causal_rows.divisor - 1 - a.causal_rows.remainder(at.row)), 0);
  }
};

}  // namespace tilewave
