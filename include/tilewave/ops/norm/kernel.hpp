// SPDX-License-Identifier: MIT
// RMSNorm and LayerNorm. Grid: one block, or cluster of P.blocks, per P.rows rows. The lanes of a row keep it in registers between the
// statistics and the output (P.held), so it is read once and written once. Shared memory: a few floats per wave. Bound:
// memory.
#pragma once

#include "tilewave/ops/norm/policy.hpp"
#include "tilewave/ops/norm/problem.hpp"

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

/// Values for `unit` columns that every row shares.
template <class B, DType T, int unit>
struct ColumnValues {
  static constexpr int per_load = min_of(unit, 16 / size_of(T));
  Packed<T, per_load> parts[unit / per_load];

  TILEWAVE_DEVICE void load(const void* data, int column) {
    TILEWAVE_UNROLL
    for (int i = 0; i < unit / per_load; ++i) {
      parts[i] =
          B::load(reinterpret_cast<const Packed<T, per_load>*>(static_cast<const Storage<T>*>(data) + column) + i);
    }
  }
  TILEWAVE_DEVICE Vec<float, unit> values() const {
    Vec<float, unit> all;
    TILEWAVE_UNROLL
    for (int i = 0; i < unit / per_load; ++i) {
      const Vec<float, per_load> part = widen<B, T, per_load>(parts[i]);
      TILEWAVE_UNROLL
      for (int e = 0; e < per_load; ++e) all[i * per_load + e] = part[e];
    }
    return all;
  }
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
    // Short rows are bound by latency, so the weights are loaded behind the row and not behind the statistics.
    constexpr bool early = P.held && P.chunks <= 4;
    Weight weights[early ? P.chunks : 1];
    if (a.residual != nullptr) {
      const void* residual = Tile::row(a.residual, a.extent, at, a.residual_strides);
      void* sum = Tile::row(a.residual_out, a.extent, at, a.residual_out_strides);
      Tile::tiles(at, columns, [&](int from) {
        x.load(source, at, from, columns);
        add(x, residual, at, from, columns);
        x.store(sum, at, from, columns);
      });
      source = sum;
    } else if constexpr (P.held) {
      x.load(source, at, at.first, columns);
    }
    const auto weight_column = [&](int chunk, int from) {
      return min_of(from + Tile::column(at.lane, chunk), columns - unit);  // what lies beyond is not written
    };
    if constexpr (early) {
      TILEWAVE_UNROLL
      for (int c = 0; c < P.chunks; ++c) weights[c].load(a.weight, weight_column(c, at.first));
    }
    Tile::meet();
    const auto each = [&](const auto& body) {
      Tile::tiles(at, columns, [&](int from) {
        if constexpr (!P.held) x.load(source, at, from, columns);
        body(from);
      });
    };

    // What is normalised, in f32: x, then x - mean.
    Vec<float, unit> kept[keep ? P.chunks : 1] = {};
    float mean = 0.0f;
    const auto values = [&](int chunk) {
      if constexpr (keep) {
        return kept[chunk];
      } else {
        Vec<float, unit> v = x.values(chunk);
        TILEWAVE_UNROLL
        for (int e = 0; e < unit; ++e) v[e] -= mean;
        return v;
      }
    };
    if constexpr (keep) {
      TILEWAVE_UNROLL
      for (int c = 0; c < P.chunks; ++c) kept[c] = x.values(c);
    }
    if constexpr (S.kind == NormKind::layer) {
      float sum = 0.0f;
      each([&](int) {
        TILEWAVE_UNROLL
        for (int c = 0; c < P.chunks; ++c) sum += fold(values(c), Sum{});
      });
      mean = Tile::template reduce<0>(shared, at, sum, Sum{}) * a.per_column;
      if constexpr (P.held && !keep) x.forget_values();
      if constexpr (keep) {
        TILEWAVE_UNROLL
        for (int c = 0; c < P.chunks; ++c) {
          TILEWAVE_UNROLL
          for (int e = 0; e < unit; ++e) kept[c][e] -= mean;
        }
      }
    }
    float squares = 0.0f;
    each([&](int from) {
      TILEWAVE_UNROLL
      for (int c = 0; c < P.chunks; ++c) {
        if (S.kind == NormKind::layer && from + Tile::column(at.lane, c) >= columns) continue;  // zeros, not the mean
        Vec<float, unit> v = values(c);
        TILEWAVE_UNROLL
        for (int e = 0; e < unit; ++e) v[e] *= v[e];
        squares += fold(v, Sum{});
      }
    });
    squares = Tile::template reduce<1>(shared, at, squares, Sum{});
    if constexpr (P.held && !keep) x.forget_values();
    const float rstd = B::rsqrt(squares * a.per_column + a.eps);
    if (at.leader) {
      if (a.mean != nullptr) B::store(a.mean + at.row, mean);
      if (a.rstd != nullptr) B::store(a.rstd + at.row, rstd);
    }

    Output::template write<2>(a.output, a.extent, at, shared, each, [&](int chunk, int from) {
      const int column = weight_column(chunk, from);
      if constexpr (!early) weights[0].load(a.weight, column);
      Vec<float, unit> v = values(chunk);
      const Vec<float, unit> w = weights[early ? chunk : 0].values();
      TILEWAVE_UNROLL
      for (int e = 0; e < unit; ++e) v[e] = v[e] * rstd * w[e];
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
  static constexpr bool keep = keeps_values(P, S.x);

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
