// SPDX-License-Identifier: MIT
// Softmax and log softmax over rows. Grid: one block, or one cluster of P.blocks, per P.rows rows. The lanes of a row
// keep it in registers between statistics and output (P.held), so it is read once and written once; otherwise the
// output reads it once more. Maximum and sum are found together: first of a lane, then of the row in one reduction.
// Shared memory: a few floats per wave. Bound: memory.
//
// Scores are compared as x and scaled as differences. Products of x and the scale would be rounded, or contracted with
// the subtraction and not rounded, which differs by whole powers of two where x is large. Half the difference cannot
// overflow.
#pragma once

#include "tilewave/core/launch_arguments.hpp"
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
  FastDiv causal_rows;            // divides by 1 without a causal mask
  float scale, twice_scale_log2;  // twice_scale_log2 is 2 scale log2(e), or next to 0
};
static_assert(sizeof(SoftmaxArgs) <= sm90_arguments_with_launch);

template <class B, SoftmaxSpec S, SoftmaxPolicy P>
struct Softmax {
  using Room = B;
  using Args = SoftmaxArgs;
  using Tile = Row<B, S.x, P>;
  using Output = RowOutput<B, S.x, RowOutputSpec{S.x, Scaling::none}, P>;
  static constexpr int block_threads = P.block_threads(), waves_per_simd = P.waves_per_simd;
  static constexpr int unit = Tile::unit;
  static constexpr bool keep = S.kind == SoftmaxKind::softmax && Tile::keeps;
  using Shared = typename Tile::template Shared<2>;  // maximum and sum, found together

  TILEWAVE_DEVICE static void run(const Args& a, Shared& shared) {
    const auto at = Tile::lane_row(a.extent, shared);
    const int visible = visible_columns(a, at);
    const void* source = Tile::row(a.x, a.extent, at, a.x_strides);
    Tile x;
    if constexpr (P.held) x.load(source, at, at.first, visible);
    const Scores score{abs_of(a.twice_scale_log2)};
    const auto prepare = [&](int from) {
      if (a.twice_scale_log2 < 0.0f) x.negate();
      Vec<float, unit> hidden;  // hidden columns get a score of -inf
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

    // This lane's results come first: `sum` counts in units of the weight of its largest x.
    Vec<float, unit> kept[keep ? P.chunks : 1];  // x, then weights
    float largest = minus_infinity, sum = 0.0f;
    each(visible, [&](int) {
      const float before = largest;
      float largest_x = minus_infinity;
      TILEWAVE_UNROLL
      for (int c = 0; c < P.chunks; ++c) {
        const Vec<float, unit> v = x.values(c);
        largest_x = Max{}(largest_x, fold(v, Max{}));
        if constexpr (keep) kept[c] = v;
      }
      largest = Max{}(largest, largest_x);
      const float half_top = half_finite(largest);
      x.refresh();
      if constexpr (!P.held) sum *= score.weight(before, half_top);
      TILEWAVE_UNROLL
      for (int c = 0; c < P.chunks; ++c) {
        Vec<float, unit> v = keep ? kept[keep ? c : 0] : x.values(c);
        TILEWAVE_UNROLL
        for (int e = 0; e < unit; ++e) v[e] = score.weight(v[e], half_top);
        sum += fold(v, Sum{});
        if constexpr (keep) kept[c] = v;
      }
    });
    const float lane_largest = largest;
    Vec<float, 2> found;
    found[0] = largest;
    found[1] = sum;
    found = Tile::template reduce_values<0>(shared, at, found, ScaledSum{score});
    const float half_top = half_finite(found[0]);
    sum = found[1];
    if constexpr (P.held) x.refresh();
    const float sum_log2 = B::log2(sum);
    if (a.lse != nullptr && at.leader) {
      B::store(a.lse + at.row, 2.0f * half_top * abs_of(a.scale) + sum_log2 * ln_2);
    }

    const float inverse = sum == 0.0f ? 0.0f : 1.0f / sum;                    // a NaN stays NaN
    const float kept_scale = score.weight(lane_largest, half_top) * inverse;  // 0 for a lane that saw no column
    const float unseen = S.kind == SoftmaxKind::softmax ? 0.0f : minus_infinity;
    Output::template write<0>(
        a.output, a.extent, at, shared, [&](const auto& body) { each(a.extent.columns, body); },
        [&](int chunk, int from) TILEWAVE_INLINE_LAMBDA {
          Vec<float, unit> v;
          if constexpr (keep) {
            v = kept[chunk];
            TILEWAVE_UNROLL
            for (int e = 0; e < unit; ++e) v[e] *= kept_scale;
          } else {
            v = x.values(chunk);
            TILEWAVE_UNROLL
            for (int e = 0; e < unit; ++e) {
              if constexpr (S.kind == SoftmaxKind::softmax) {
                v[e] = score.weight(v[e], half_top) * inverse;
              } else {
                v[e] = sum == 0.0f ? minus_infinity : (score.below(v[e], half_top) - sum_log2) * ln_2;
              }
            }
          }
          const int left = visible - from - Tile::column(at.lane, chunk);
          if (left < unit) {  // if the row has a NaN, its hidden columns have one by now, too
            TILEWAVE_UNROLL
            for (int e = 0; e < unit; ++e) v[e] = e < left ? v[e] : unseen;
          }
          return v;
        });
  }

 private:
  using LaneRow = typename Tile::LaneRow;

  /// Returns half the largest x, or 0 where there is none.
  TILEWAVE_DEVICE static float half_finite(float x) { return x == minus_infinity ? 0.0f : 0.5f * x; }

  struct Scores {
    float twice_scale_log2;
    /// Returns the score of x less that of the largest, in log2 units. It is the same with and without contraction,
    /// because halves are exact.
    TILEWAVE_DEVICE float below(float x, float half_top) const { return (0.5f * x - half_top) * twice_scale_log2; }
    TILEWAVE_DEVICE float weight(float x, float half_top) const { return B::exp2(below(x, half_top)); }
  };

  /// Reduces pairs of a largest x and a sum in units of its weight; the sum is 0 where there is no x.
  struct ScaledSum {
    Scores score;
    template <int lanes>
    TILEWAVE_DEVICE Vec<float, 2> across(Vec<float, 2> v) const {
      const float largest = B::template reduce<lanes>(v[0], Max{});
      v[1] = B::template reduce<lanes>(v[1] * score.weight(v[0], half_finite(largest)), Sum{});
      v[0] = largest;
      return v;
    }
    TILEWAVE_DEVICE Vec<float, 2> merge(Vec<float, 2> v, Vec<float, 2> w) const {
      const float largest = Max{}(v[0], w[0]), half_top = half_finite(largest);
      v[1] = v[1] * score.weight(v[0], half_top) + w[1] * score.weight(w[0], half_top);
      v[0] = largest;
      return v;
    }
  };

  TILEWAVE_DEVICE static int visible_columns(const Args& a, const LaneRow& at) {
    int visible = a.extent.columns;
    if (a.lengths != nullptr && at.active) {
      visible = min_of(visible, max_of(B::load(a.lengths + a.rows_per_length.quotient(at.row)), 0));
    }
    return max_of(visible - (a.causal_rows.divisor - 1 - a.causal_rows.remainder(at.row)), 0);
  }
};

}  // namespace tilewave
