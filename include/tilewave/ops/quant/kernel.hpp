// SPDX-License-Identifier: MIT
// Quantisation and dequantisation of rows. Grid: one block, or one cluster of P.blocks, per P.rows rows. A row is read
// once where the policy holds it or no scale is searched. Shared memory: a few floats per wave. Bound: memory.
//
// Two launches before find the scale of a whole tensor: every wave writes the largest magnitude in the rows that its
// block walks over, then one block makes a scale of those partial results. Nothing has to be initialised, as an atomic
// maximum would need. A maximum does not depend on the order, so the bits are the same from run to run.
#pragma once

#include "tilewave/core/launch_arguments.hpp"
#include "tilewave/ops/quant/policy.hpp"
#include "tilewave/ops/quant/problem.hpp"
#include "tilewave/tile/column_vector.hpp"

namespace tilewave {

struct QuantArgs {
  const void* x;
  const void* smooth;
  RowExtent extent;
  RowStrides x_strides;
  RowOutputArgs output;
};
static_assert(sizeof(QuantArgs) <= sm90_arguments_with_launch);

template <class B, QuantSpec S, QuantPolicy P>
struct Quant {
  using Room = B;
  using Args = QuantArgs;
  using Tile = Row<B, S.x, P>;
  using Output = RowOutput<B, S.x, S.output(), P>;
  using LaneRow = typename Tile::LaneRow;
  static constexpr int block_threads = P.block_threads(), waves_per_simd = P.waves_per_simd;
  static constexpr int unit = Tile::unit;
  static constexpr QuantKind kind = S.kind();
  using Shared = typename Tile::template Shared<1>;

  TILEWAVE_DEVICE static void run(const Args& a, Shared& shared) {
    convert(a, Tile::lane_row(a.extent, shared), shared);
  }
  /// Converts the row of this lane.
  TILEWAVE_DEVICE static void convert(const Args& a, const LaneRow& at, Shared& shared) {
    const void* source = Tile::row(a.x, a.extent, at, a.x_strides);
    Tile x;
    if constexpr (P.held) x.load(source, at, at.first, a.extent.columns);
    float scale = 1.0f;
    if constexpr (kind == QuantKind::dequantise && S.scale != Scaling::per_group) {
      scale = B::load(scales(a) + (S.scale == Scaling::per_token && at.active ? at.row : 0));
    }
    const auto each = [&](const auto& body) {
      Tile::tiles(at, a.extent.columns, [&](int from) {
        if constexpr (P.held) {
          x.refresh();
        } else {
          x.load(source, at, from, a.extent.columns);
        }
        body(from);
      });
    };
    Output::template write<0>(a.output, a.extent, at, shared, each, [&](int chunk, int from) TILEWAVE_INLINE_LAMBDA {
      if constexpr (kind == QuantKind::quantise) return values(a, x, at, chunk, from);
      Vec<float, unit> v = x.values(chunk);
      if constexpr (S.scale == Scaling::per_group) {  // a chunk lies in one group; values beyond are not written
        const int group = min_of(from + Tile::column(at.lane, chunk), a.extent.columns - unit) / scale_group;
        scale = B::load(scales(a) + (at.active ? at.row : 0) * a.output.scale_stride + group * a.output.of_groups);
      }
      TILEWAVE_UNROLL
      for (int e = 0; e < unit; ++e) v[e] *= scale;
      return v;
    });
  }

  TILEWAVE_DEVICE static const float* scales(const Args& a) { return static_cast<const float*>(a.output.scale); }

  /// Returns the values of a loaded tile that are quantised.
  TILEWAVE_DEVICE static Vec<float, unit> values(const Args& a, const Tile& x, const LaneRow& at, int chunk, int from) {
    Vec<float, unit> v = x.values(chunk);
    if (a.smooth != nullptr) {
      ColumnVector<B, S.x, unit> smooth;
      smooth.load(Tile::template shared_window<S.x>(a.smooth, from, a.extent.columns), Tile::column(at.lane, chunk));
      const Vec<float, unit> s = smooth.values();
      TILEWAVE_UNROLL
      for (int e = 0; e < unit; ++e) v[e] *= s[e];
    }
    return v;
  }
};

/// The most partial results of a tensor's largest magnitude. There are enough waves to keep the memory busy, and so few
/// that one block reads them with two accesses a lane.
inline constexpr int quant_partials = 8192;

struct QuantAmaxArgs {
  QuantArgs in;
  float* partials;        // [grid, waves of a block]
  std::int32_t row_step;  // rows that the grid covers at a time
};

template <class B, QuantSpec S, QuantPolicy P>
struct QuantAmax {
  using Room = B;
  using Args = QuantAmaxArgs;
  using Quantised = Quant<B, S, P>;
  using Tile = typename Quantised::Tile;
  static constexpr int block_threads = P.block_threads(), waves_per_simd = P.waves_per_simd;
  static constexpr int waves = block_threads / B::facts.wave_lanes;
  struct Shared {};

  TILEWAVE_DEVICE static void run(const Args& a, Shared& shared) {
    const RowExtent& extent = a.in.extent;
    auto at = Tile::lane_row(extent, shared);
    float largest = 0.0f;
    for (std::int32_t first = B::block_id() * P.rows; first < extent.rows; first += a.row_step) {
      at.row = first + at.slot;
      at.active = at.row < extent.rows;
      const void* source = Tile::row(a.in.x, extent, at, a.in.x_strides);
      Tile::tiles(at, extent.columns, [&](int from) {
        Tile x;
        x.load(source, at, from, extent.columns);
        TILEWAVE_UNROLL
        for (int c = 0; c < P.chunks; ++c) {  // x is zeros beyond the row
          largest = Quantised::Output::amax(largest, Quantised::values(a.in, x, at, c, from));
        }
      });
    }
    largest = B::template reduce<B::facts.wave_lanes>(largest, Max{});
    float* partial =
        a.partials + B::block_id() * waves + B::wave_id();  // wave_id is a collective, so it stays out of the branch
    if (B::lane_id() == 0) B::store(partial, largest);
  }
};

struct QuantScaleArgs {
  const float* partials;  // [count]
  std::int32_t count;     // a multiple of 4, at most quant_partials
  float* scale;           // [1]
};

/// The partial results are read as a row, too.
constexpr RowPolicy quant_partials_policy() {
  return {.lanes = 1024, .chunks = quant_partials / 4096, .waves_per_simd = 8};
}

template <class B, DType type>
struct QuantScale {
  using Room = B;
  using Args = QuantScaleArgs;
  using Tile = Row<B, DType::f32, quant_partials_policy()>;
  using Output = RowOutput<B, DType::f32, RowOutputSpec{type, Scaling::per_tensor}, quant_partials_policy()>;
  static constexpr int block_threads = 1024, waves_per_simd = 8, chunks = quant_partials_policy().chunks;
  using Shared = typename Tile::template Shared<1>;

  TILEWAVE_DEVICE static void run(const Args& a, Shared& shared) {
    const auto at = Tile::lane_row(RowExtent{.rows = 1, .columns = a.count}, shared);
    Tile x;
    x.load(a.partials, at, 0, a.count);
    float largest = 0.0f;
    TILEWAVE_UNROLL
    for (int c = 0; c < chunks; ++c) largest = Output::amax(largest, x.values(c));
    largest = Tile::template reduce<0>(shared, at, largest, Max{});
    if (at.leader) B::store(a.scale, quant_scale(Output::type, largest));
  }
};

}  // namespace tilewave
