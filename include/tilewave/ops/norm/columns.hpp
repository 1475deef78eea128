// SPDX-License-Identifier: MIT
// What a norm multiplies its columns by and adds to them: weight, bias and smooth scale, and when they are loaded.
#pragma once

#include "tilewave/ops/norm/policy.hpp"
#include "tilewave/ops/norm/problem.hpp"
#include "tilewave/tile/column_vector.hpp"

namespace tilewave {

struct NormMean {
  float* mean;
};
struct NormSmooth {
  const void* smooth;
};
struct NormNoMean {};
struct NormNoSmooth {};

/// Kernels receive only what their spec can use, so that it comes with the launch.
template <NormSpec S>
struct NormArgs : std::conditional_t<S.kind == NormKind::layer, NormMean, NormNoMean>,
                  std::conditional_t<S.scale != Scaling::none, NormSmooth, NormNoSmooth> {
  const void* x;
  RowExtent extent;
  float eps;
  RowStrides x_strides;
  const void* residual;
  void* residual_out;
  RowStrides residual_strides, residual_out_strides;
  const void* weight;
  const void* bias;
  float* rstd;
  RowOutputArgs output;
};

/// Weight, bias and smooth scale of the next chunks. They are loaded `ahead` chunks early: a load behind a store would
/// also wait for the store (CDNA counts both in vmcnt), and one chunk at a time would pay a latency for each.
template <class B, NormSpec S, NormPolicy P>
struct NormColumns {
  using Args = NormArgs<S>;
  using Tile = Row<B, S.x, P>;
  static constexpr int unit = Tile::unit;
  static constexpr bool quantised = S.scale != Scaling::none;
  // RMSNorm rarely has a bias, so it waits for that behind its stores and keeps no registers for it.
  static constexpr bool early_bias = S.kind == NormKind::layer || !P.wide(S.x);
  static constexpr int registers =
      ((1 + early_bias) * max_of(unit * size_of(S.weight), 4) + quantised * max_of(P.vec, 4)) / 4;
  // The row takes its part of the registers that the claimed occupancy leaves, and the arithmetic gets 48.
  static constexpr int left = B::facts.register_file_lanes / P.waves_per_simd - P.chunks * max_of(P.vec, 4) / 4 - 48;
  static constexpr int ahead = max_of(1, min_of(P.chunks, left / registers));

  ColumnVector<B, S.weight, unit> weight[ahead], bias[early_bias ? ahead : 1];
  ColumnVector<B, S.x, unit> smooth[quantised ? ahead : 1];

  /// Loads chunks [first, last). An absent bias is not loaded. Where the output is quantised, an absent bias and smooth
  /// scale are empty windows instead, because clang spills around more branches.
  TILEWAVE_DEVICE void load(const Args& a, const typename Tile::LaneRow& at, int first, int last, int from) {
    load(weight, a.weight, a, at, first, last, from);
    if constexpr (early_bias) {
      if (quantised || a.bias != nullptr) load(bias, a.bias, a, at, first, last, from);
    }
    if constexpr (quantised) load(smooth, a.smooth, a, at, first, last, from);
  }
  /// Computes v = (v rstd + shift) weight + bias, times the smooth scale; these two are optional. RMSNorm has no shift.
  TILEWAVE_DEVICE void apply(const Args& a, const typename Tile::LaneRow& at, int chunk, int from, float rstd,
                             float shift, Vec<float, unit>& v) {
    const Vec<float, unit> w = weight[chunk % ahead].values();
    TILEWAVE_UNROLL
    for (int e = 0; e < unit; ++e) {
      v[e] *= rstd;
      if constexpr (S.kind == NormKind::layer) v[e] += shift;
      v[e] *= w[e];
    }
    if (a.bias != nullptr) {
      if constexpr (!early_bias) load(bias, a.bias, a, at, chunk, chunk + 1, from);
      const Vec<float, unit> b = bias[early_bias ? chunk % ahead : 0].values();
      TILEWAVE_UNROLL
      for (int e = 0; e < unit; ++e) v[e] += b[e];
    }
    if constexpr (quantised) {
      if (a.smooth == nullptr) return;
      const Vec<float, unit> s = smooth[chunk % ahead].values();
      TILEWAVE_UNROLL
      for (int e = 0; e < unit; ++e) v[e] *= s[e];
    }
  }

 private:
  template <DType T, int n>
  TILEWAVE_DEVICE static void load(ColumnVector<B, T, unit> (&to)[n], const void* from_data, const Args& a,
                                   const typename Tile::LaneRow& at, int first, int last, int from) {
    const auto window =
        Tile::template shared_window<T>(from_data, from, from_data == nullptr ? from : a.extent.columns);
    TILEWAVE_UNROLL
    for (int c = first; c < last; ++c) to[c % n].load(window, Tile::column(at.lane, c));
  }
};

}  // namespace tilewave
