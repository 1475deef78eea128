// SPDX-License-Identifier: MIT
// Activations of rows, gated or not. Grid: one block for each tile of columns (row_tiles.hpp). Where a row has a scale
// of its own, one block, or one cluster of P.blocks, takes P.rows rows and reads them once if the policy holds them.
// Shared memory: a few floats per wave in that case. Bound: memory. A value costs up to 20 instructions (gelu), two of
// them on the slow units. An SM has time for 27 while a bf16 value is read and written, or for 41 where it is gated.
#pragma once

#include "tilewave/core/launch_arguments.hpp"
#include "tilewave/ops/activation/policy.hpp"
#include "tilewave/ops/activation/problem.hpp"

namespace tilewave {

struct ActivationArgs {
  const void* x;
  const void* up;  // the ups, with Gating::halves
  RowExtent extent;
  RowStrides x_strides, up_strides;
  RowOutputArgs output;
  FastDiv tiles;  // tiles of a row
  float alpha, limit;
};
static_assert(sizeof(ActivationArgs) <= sm90_arguments_with_launch);

template <class B, ActivationSpec S, ActivationPolicy P>
struct Activation {
  using Room = B;
  using Args = ActivationArgs;
  using Tile = Row<B, S.x, P>;
  using Output = RowOutput<B, S.x, S.output(), P>;
  using LaneRow = typename Tile::LaneRow;
  static constexpr int block_threads = P.block_threads(), waves_per_simd = P.waves_per_simd;
  static constexpr int unit = Tile::unit;
  static constexpr bool tiled = S.tiled(), gated = S.gated();
  using Shared = typename Tile::template Shared<1>;

  TILEWAVE_DEVICE static void run(const Args& a, Shared& shared) {
    const LaneRow at = lane_row(a, shared);
    Operands x;
    if constexpr (P.held) x.load(a, at, at.first);
    const auto each = [&](const auto& body) {
      Tile::tiles(at, a.extent.columns, [&](int from) {
        if constexpr (!P.held) x.load(a, at, from);
        body(from);
      });
    };
    Output::template write<0>(a.output, a.extent, at, shared, each,
                              [&](int chunk, int) TILEWAVE_INLINE_LAMBDA { return x.values(a, chunk); });
  }

 private:
  TILEWAVE_DEVICE static LaneRow lane_row(const Args& a, Shared& shared) {
    if constexpr (tiled) {
      return tile_lane_row<B, Tile, P>(a.extent, a.tiles, shared);
    } else {
      return Tile::lane_row(a.extent, shared);
    }
  }

  /// A tile of gates and a tile of ups. With interleaved gating they are the first and the second half of each chunk's
  /// pairs.
  struct Operands {
    Tile first, second;

    TILEWAVE_DEVICE void load(const Args& a, const LaneRow& at, int from) {
      const void* row = Tile::row(a.x, a.extent, at, a.x_strides);
      if constexpr (S.gating == Gating::interleaved) {
        using Packed = typename Tile::Packed;
        const auto one = Tile::template window<S.x>(row, at, from, a.extent.columns);
        const typename Tile::Window pairs{static_cast<const Storage<S.x>*>(one.base) + from, 2 * one.bytes};
        TILEWAVE_UNROLL
        for (int c = 0; c < P.chunks; ++c) {
          const int offset = 2 * Tile::column(at.lane, c) * size_of(S.x);
          first.chunks[c] = pairs.template load_stream<Packed>(offset);
          second.chunks[c] = pairs.template load_stream<Packed>(offset + unit * size_of(S.x));
        }
      } else {
        first.load(row, at, from, a.extent.columns);
        if constexpr (gated) second.load(Tile::row(a.up, a.extent, at, a.up_strides), at, from, a.extent.columns);
      }
    }

    TILEWAVE_DEVICE Vec<float, unit> values(const Args& a, int chunk) const {
      Vec<float, unit> gate = first.values(chunk), up;
      if constexpr (gated) up = second.values(chunk);
      if constexpr (S.gating == Gating::interleaved) {
        Vec<float, 2 * unit> pairs;
        TILEWAVE_UNROLL
        for (int e = 0; e < 2 * unit; ++e) pairs[e] = e < unit ? gate[e % unit] : up[e % unit];
        TILEWAVE_UNROLL
        for (int e = 0; e < unit; ++e) {
          gate[e] = pairs[2 * e];
          up[e] = pairs[2 * e + 1];
        }
      }
      TILEWAVE_UNROLL
      for (int e = 0; e < unit; ++e) {
        if constexpr (S.kind == ActivationKind::swigluoai) {
          gate[e] = ActivationOf<B>::swigluoai(gate[e], up[e], a.alpha, a.limit);
        } else {
          gate[e] = ActivationOf<B>::template apply<S.kind>(gate[e]);
          if constexpr (gated) gate[e] *= up[e];
        }
      }
      return gate;
    }
  };
};

}  // namespace tilewave
