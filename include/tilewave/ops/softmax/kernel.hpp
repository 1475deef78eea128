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
    const auto at = Tile::place(a.extent, shared);
    const int visible = visible_columns(a, at);
    const void* source = Tile::row(a.x, a.extent, at, a.x_strides);
    Tile x;
    if constexpr (P.held) x.load(source, at, at.first, visible);
    const float scale_log2 = abs_of(a.scale_log2);
    const auto prepare = [&](int from) {
      if (a.scale_log2 < 0.0f) x.negate();
      Vec<float, unit> hidden;  // what is not visible becomes a score of -inf
      TILEWAVE_UNROLL
      for (int e = 0; e < unit; ++e) hidden[e] = minus_infinity;
      x.fill(at, from, visible, hidden);
    };
    if constexpr (P.held) prepare(at.first);
    const auto each = [&](int columns, const auto& body) {
      Tile::tiles(at, columns, [&](int from) {
        if constexpr (!P.held) {
          x.load(source, at, from, visible);
          prepare(from);
        }
        body(from);
      });
    };

    // Of this lane first: `sum` counts in units of exp2(top), the largest score (x scale, in log2 units) or 0 where
    // there is none.
    Vec<float, unit> kept[keep ? P.chunks : 1];  // x, then exp2(score - top)
    float largest = minus_infinity, sum = 0.0f, top = 0.0f;
    each(visible, [&](int) {
      const float before = largest;
      float largest_x = minus_infinity;
      TILEWAVE_UNROLL
      for (int c = 0; c < P.chunks; ++c) {
        const Vec<float, unit> v = x.values(c);
        largest_x = Max{}(largest_x, fold(v, Max{}));
        if constexpr (keep) kept[c] = v;
      }
      largest = Max{}(largest, largest_x * scale_log2);
      top = finite_or_zero(largest);
      x.refresh();
      if constexpr (!P.held) sum *= B::exp2(before - top);
      TILEWAVE_UNROLL
      for (int c = 0; c < P.chunks; ++c) {
        Vec<float, unit> v = keep ? kept[keep ? c : 0] : x.values(c);
        TILEWAVE_UNROLL
        for (int e = 0; e < unit; ++e) v[e] = B::exp2(v[e] * scale_log2 - top);
        sum += fold(v, Sum{});
        if constexpr (keep) kept[c] = v;
      }
    });
    const float lane_largest = largest;
    Vec<float, 2> found;
    found[0] = largest;
    found[1] = sum;
    found = Tile::template reduce_values<0, ScaledSum>(shared, at, found);
    top = finite_or_zero(found[0]);
    sum = found[1];
    if constexpr (P.held) x.refresh();
    const float sum_log2 = B::log2(sum);
    if (a.lse != nullptr && at.leader) B::store(a.lse + at.row, (top + sum_log2) * ln_2);

    const float inverse = sum == 0.0f ? 0.0f : 1.0f / sum;           // NaN stays NaN
    const float kept_scale = B::exp2(lane_largest - top) * inverse;  // 0 for a lane that saw nothing
    Output::template write<0>(
        a.output, a.extent, at, shared, [&](const auto& body) { each(a.extent.columns, body); },
        [&](int chunk, int) TILEWAVE_INLINE_LAMBDA {
          Vec<float, unit> v;
          if constexpr (keep) {
            v = kept[chunk];
            TILEWAVE_UNROLL
            for (int e = 0; e < unit; ++e) v[e] *= kept_scale;
          } else {
            v = x.values(chunk);
            TILEWAVE_UNROLL
            for (int e = 0; e < unit; ++e) {
              const float score = v[e] * scale_log2 - top;
              if constexpr (S.kind == SoftmaxKind::softmax) {
                v[e] = B::exp2(score) * inverse;
              } else {
                v[e] = sum == 0.0f ? minus_infinity : (score - sum_log2) * ln_2;
              }
            }
          }
          return v;
        });
  }

 private:
  using Place = typename Tile::Place;

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

  TILEWAVE_DEVICE static int visible_columns(const Args& a, const Place& at) {
    int visible = a.extent.columns;
    if (a.lengths != nullptr && at.active) {
      visible = min_of(visible, max_of(B::load(a.lengths + a.rows_per_length.quotient(at.row)), 0));
    }
    return max_of(visible - (a.causal_rows.divisor - 1 - a.causal_rows.remainder(at.row)), 0);
  }
};

}  // namespace tilewave
