// SPDX-License-Identifier: MIT
// RMSNorm and LayerNorm. Grid: one block per P.rows rows. The lanes of a row keep it in registers between the
// statistics and the output (P.held), so it is read once and written once. Shared memory: a few floats per wave. Bound:
// memory.
#pragma once

#include "tilewave/ops/norm/policy.hpp"
#include "tilewave/ops/norm/problem.hpp"
#include "tilewave/tile/column_values.hpp"

namespace tilewave {

struct NormArgs {
  const void* x;
  const void* weight;
  const void* bias;
  const void* residual;
  void* residual_out;
  const void* smooth;
  float* mean;
  float* rstd;
  RowExtent extent;
  RowStrides x_strides, residual_strides, residual_out_strides;
  RowOutputArgs output;
  float eps, per_column;  // 1 / columns
};

template <class B, NormSpec S, NormPolicy P>
struct Norm {
  using Room = B;
  using Args = NormArgs;
  using Tile = Row<B, S.x, P>;
  using Output = RowOutput<B, S.x, RowOutputSpec{S.out, S.scale}, P>;
  using Weight = ColumnValues<B, S.weight, Tile::unit>;
  static constexpr int block_threads = P.block_threads(), waves_per_simd = P.waves_per_simd;
  static constexpr int reductions = 3, unit = Tile::unit;
  using Shared = typename Tile::template Shared<reductions>;

  TILEWAVE_DEVICE static void run(const Args& a, Shared& shared) {
    const auto at = Tile::place(a.extent);
    const int columns = a.extent.columns;
    const void* source = Tile::row(a.x, a.extent, at, a.x_strides);
    Tile x;
    if (P.held || a.residual != nullptr) {
      const void* residual = Tile::row(a.residual, a.extent, at, a.residual_strides);
      void* sum = Tile::row(a.residual_out, a.extent, at, a.residual_out_strides);
      Tile::tiles(columns, [&](int from) {
        x.load(source, at, from, columns);
        if (a.residual == nullptr) return;
        add(x, residual, at, from, columns);
        x.store(sum, at, from, columns);
      });
      if (a.residual != nullptr) source = sum;
    }
    const auto each = [&](const auto& body) {
      Tile::tiles(columns, [&](int from) {
        if constexpr (!P.held) x.load(source, at, from, columns);
        body(from);
      });
    };

    float mean = 0.0f;
    if constexpr (S.kind == NormKind::layer) {
      float sum = 0.0f;
      each([&](int) {
        TILEWAVE_UNROLL
        for (int c = 0; c < P.chunks; ++c) {
          const Vec<float, unit> v = x.values(c);
          TILEWAVE_UNROLL
          for (int e = 0; e < unit; ++e) sum += v[e];
        }
      });
      mean = Tile::template reduce<0>(shared, at, sum, Sum{}) * a.per_column;
    }
    float squares = 0.0f;
    each([&](int from) {
      TILEWAVE_UNROLL
      for (int c = 0; c < P.chunks; ++c) {
        if (S.kind == NormKind::layer && from + Tile::column(at.lane, c) >= columns) continue;  // zeros, not the mean
        const Vec<float, unit> v = x.values(c);
        TILEWAVE_UNROLL
        for (int e = 0; e < unit; ++e) squares += (v[e] - mean) * (v[e] - mean);
      }
    });
    squares = Tile::template reduce<1>(shared, at, squares, Sum{});
    const float rstd = B::rsqrt(squares * a.per_column + a.eps);
    if (at.active && at.lane == 0) {
      if (a.mean != nullptr) B::store(a.mean + at.row, mean);
      if (a.rstd != nullptr) B::store(a.rstd + at.row, rstd);
    }

    Output::template write<2>(a.output, a.extent, at, shared, each, [&](int chunk, int from) {
      const int column =
          min_of(from + Tile::column(at.lane, chunk), columns - unit);  // what lies beyond is not written
      Weight weight;
      weight.load(a.weight, column);
      Vec<float, unit> v = x.values(chunk);
      const Vec<float, unit> w = weight.values();
      TILEWAVE_UNROLL
      for (int e = 0; e < unit; ++e) v[e] = (v[e] - mean) * rstd * w[e];
      if (a.bias != nullptr) {
        Weight bias;
        bias.load(a.bias, column);
        const Vec<float, unit> b = bias.values();
        TILEWAVE_UNROLL
        for (int e = 0; e < unit; ++e) v[e] += b[e];
      }
      if (S.scale != ScaleMode::none && a.smooth != nullptr) {
        ColumnValues<B, S.x, unit> smooth;
        smooth.load(a.smooth, column);
        const Vec<float, unit> s = smooth.values();
        TILEWAVE_UNROLL
        for (int e = 0; e < unit; ++e) v[e] *= s[e];
      }
      return v;
    });
  }

 private:
  TILEWAVE_DEVICE static void add(Tile& x, const void* residual, const typename Tile::Place& at, int from,
                                  int columns) {
    Tile r;
    r.load(residual, at, from, columns);
    TILEWAVE_UNROLL
    for (int c = 0; c < P.chunks; ++c) {
      Vec<float, unit> sum = x.values(c);
      const Vec<float, unit> other = r.values(c);
      TILEWAVE_UNROLL
      for (int e = 0; e < unit; ++e) sum[e] += other[e];
      x.pieces[c] = narrow<B, S.x, unit>(sum);
    }
  }
};

}  // namespace tilewave
