// SPDX-License-Identifier: MIT
// GEMM with few rows of A on CDNA. Grid: one block for each tile of C, or with P.splits several that share its K. A
// wave has its own part of the tile and loads the rows of both operands straight to registers. It loads `stages` steps
// ahead, each of 128 bytes of K, or of 128 values with MX scales. Waves neither share data nor wait for one another.
// With preshuffled weights a wave reads whole lines, each once; A is small and stays in L2. LDS plan: none, but for
// scales of the output. Bound: memory bandwidth of B.
#pragma once

#include "tilewave/ops/gemm/wave_tile/mx_scales.hpp"
#include "tilewave/ops/gemm/wave_tile/wave_tile.hpp"

namespace tilewave {

/// The rows of an operand that a wave reads: `tiles` times `side` of them.
template <class W, DType T, int tiles, bool preshuffled>
struct GemmRegisterRows {
  using B = typename W::Backend;
  using Map = typename W::Map;
  static constexpr int side = W::side;
  static constexpr DType type = T;
  static constexpr int row_bytes = bytes_of(type, W::step_k);     // of a step
  static constexpr int unit_count = row_bytes / 16 / Map::units;  // of 16 bytes, which a lane has of each row of a step
  static constexpr int step_bytes = preshuffled ? 16 * row_bytes : row_bytes, unit_bytes = preshuffled ? 256 : 16;
  struct Step {
    Chunk units[tiles][unit_count];
  };

  typename B::Source source;
  std::int32_t k_bytes;
  std::uint32_t offset[tiles];  // of the lane's first unit of a row, in bytes from the source's start

  template <class TileRows>
  TILEWAVE_DEVICE GemmRegisterRows(const typename B::Source& from, const TileRows& tile_rows, std::int64_t row_stride,
                                   std::int32_t k, int first_row)
      : source(from), k_bytes(bytes_of(type, k)) {
    const int lane = B::lane_id(), unit = Map::unit(lane);
    TILEWAVE_UNROLL
    for (int i = 0; i < tiles; ++i) {
      const int in_tile = first_row + i * side + Map::row(lane);
      const std::int32_t row = tile_rows.row(in_tile);
      const std::int64_t at =
          preshuffled ? row / 16 * (std::int64_t{k_bytes} * 16) + row % 16 * 16 : row * row_stride * size_of(type);
      offset[i] = tile_rows.has(in_tile) ? static_cast<std::uint32_t>(at) + unit * unit_bytes : B::Source::nowhere;
    }
  }

  /// Loads a step of all rows. `whole`: all of the step lies within K.
  template <bool whole>
  TILEWAVE_DEVICE Step load(std::int32_t step) const {
    Step rows;
    const std::int32_t start = (whole ? step : min_of(step, k_bytes / row_bytes)) * step_bytes;
    TILEWAVE_UNROLL
    for (int i = 0; i < tiles; ++i) {
      TILEWAVE_UNROLL
      for (int c = 0; c < unit_count; ++c) {
        std::uint32_t from = offset[i] + c * Map::units * unit_bytes;
        if constexpr (!whole) from = bytes_left(step, c) > 0 ? from : B::Source::nowhere;
        rows.units[i][c] = source.load(from, start);
      }
    }
    return rows;
  }
  /// Clears elements beyond K that share 16 bytes with the last ones. K of preshuffled weights is whole units.
  TILEWAVE_DEVICE void clean(Step& rows, std::int32_t step) const {
    if (k_bytes % 16 == 0 || (step + 1) * row_bytes <= k_bytes) return;
    TILEWAVE_UNROLL
    for (int c = 0; c < unit_count; ++c) {
      TILEWAVE_UNROLL
      for (int w = 0; w < 4; ++w) {
        const int kept = bytes_left(step, c) - 4 * w;
        const std::uint32_t mask = kept >= 4 ? ~0u : kept <= 0 ? 0u : (1u << 8 * kept) - 1u;
        TILEWAVE_UNROLL
        for (int i = 0; i < tiles; ++i) rows.units[i][c][w] &= mask;
      }
    }
  }

 private:
  /// Returns the bytes of K from the lane's unit c of a step on, negative beyond K.
  TILEWAVE_DEVICE std::int32_t bytes_left(std::int32_t step, int c) const {
    return k_bytes - min_of(step, k_bytes / row_bytes + 1) * row_bytes -
           (Map::units * c + Map::unit(B::lane_id())) * 16;
  }
};

/// The same for fp6. The 24 bytes of a lane for a product are loaded as two units. K ends between products.
template <class W, DType T, int tiles>
struct GemmRegisterFp6Rows {
  using B = typename W::Backend;
  using Map = typename W::Map;
  static constexpr int row_bytes = bytes_of(T, W::step_k), lane_bytes = 24;
  static constexpr int k_slices = row_bytes / lane_bytes / Map::units, unit_count = 2 * k_slices;
  static_assert(k_slices * Map::units * lane_bytes == row_bytes, "a step's row of fp6 is a whole number of products");
  struct Step {
    Chunk units[tiles][unit_count];
  };

  typename B::Source source;
  std::int32_t k_bytes;
  std::uint32_t offset[tiles];  // of the lane's first bytes of a row, from the source's start

  template <class TileRows>
  TILEWAVE_DEVICE GemmRegisterFp6Rows(const typename B::Source& from, const TileRows& tile_rows,
                                      std::int64_t row_stride, std::int32_t k, int first_row)
      : source(from), k_bytes(bytes_of(T, k)) {
    const int lane = B::lane_id();
    TILEWAVE_UNROLL
    for (int i = 0; i < tiles; ++i) {
      const int in_tile = first_row + i * W::side + Map::row(lane);
      const std::int64_t at = tile_rows.row(in_tile) * row_stride * size_of(T) + Map::unit(lane) * lane_bytes;
      offset[i] = tile_rows.has(in_tile) ? static_cast<std::uint32_t>(at) : B::Source::nowhere;
    }
  }

  template <bool whole>
  TILEWAVE_DEVICE Step load(std::int32_t step) const {
    Step rows;
    const std::int32_t start = (whole ? step : min_of(step, k_bytes / row_bytes)) * row_bytes;
    TILEWAVE_UNROLL
    for (int i = 0; i < tiles; ++i) {
      TILEWAVE_UNROLL
      for (int slice = 0; slice < k_slices; ++slice) {
        const int in_step = slice * Map::units * lane_bytes;
        std::uint32_t from = offset[i] + in_step;
        if constexpr (!whole) {
          const bool exists = std::int64_t{step} * row_bytes + in_step + Map::unit(B::lane_id()) * lane_bytes < k_bytes;
          from = exists ? from : B::Source::nowhere;
        }
        const Vec<Chunk, 2> two = source.load_sixes(from, start);
        rows.units[i][2 * slice] = two[0];
        rows.units[i][2 * slice + 1] = two[1];
      }
    }
    return rows;
  }
  TILEWAVE_DEVICE void clean(Step&, std::int32_t) const {}
};

/// The kernel. Its main loop has P.stages steps in registers or under way.
template <class B, GemmSpec S, GemmPolicy P, class UserEpilogue = GemmIdentity>
struct GemmRegisterKernel {
  using Room = B;
  using W = GemmWaveTile<B, S, P, UserEpilogue>;
  using Args = typename W::Args;
  static constexpr int block_threads = W::block_threads;
  static constexpr int waves_per_simd = P.waves_per_simd;
  static constexpr bool preshuffled = S.weights == GemmWeights::preshuffled;
  template <DType type, int tiles, bool shuffled>
  using Rows =
      std::conditional_t<is_fp6(type), GemmRegisterFp6Rows<W, type, tiles>, GemmRegisterRows<W, type, tiles, shuffled>>;
  using RowsA = Rows<S.a, W::tiles_m, false>;
  using RowsB = Rows<S.b, W::tiles_n, preshuffled>;
  using Scales = GemmStepScales<W, false>;
  static constexpr int k_slices = RowsA::unit_count / W::Map::chunks_a;  // of a step
  static_assert(RowsB::unit_count == k_slices * W::Map::chunks_b, "a step of A and of B has equally many products");
  using Shared = typename W::Exchange;

  TILEWAVE_DEVICE static void run(const Args& a, Shared& shared) {
    const typename W::BlockWork work(a, B::block_id(), true);
    if (!work.exists) return;
    typename W::WaveSums sums;
    W::clear(sums);
    const auto steps = a.steps(work.split);
    if (steps.first < steps.end) multiply(a, work.tile, steps, shared, sums);
    W::finish(a, work, shared, sums);
  }

 private:
  /// A step of a wave's operands and scales.
  struct Stage {
    typename RowsA::Step a;
    typename RowsB::Step b;
    typename Scales::StepScales scales;
  };

  TILEWAVE_DEVICE static void multiply(const Args& a, const GemmTile& tile, typename Args::Steps steps, Shared& shared,
                                       typename W::WaveSums& sums) {
    std::int32_t step = steps.first;
    const std::int32_t end = steps.end;
    const GemmArgs& g = a.gemm;
    const typename W::TileRowsA tile_rows_a(g, tile);
    const typename W::TileRowsB tile_rows_b(g, tile);
    const RowsA rows_a(W::template source<S.a>(g.a, tile.a_layer * g.a_layer_stride, g.a_stride, tile_rows_a, g.k),
                       tile_rows_a, g.a_stride, g.k, W::first_row());
    const RowsB rows_b(source_of_b(g, tile, tile_rows_b), tile_rows_b, g.b_stride, g.k, W::first_column());
    Scales scales(a, tile, shared);
    const auto load = [&]<bool whole>(Stage& stage, std::int32_t s) TILEWAVE_INLINE_LAMBDA {
      stage.a = rows_a.template load<whole>(s);
      stage.b = rows_b.template load<whole>(s);
      stage.scales = scales.load(min_of(s, end - 1));
    };
    const auto products = [&](const Stage& stage) TILEWAVE_INLINE_LAMBDA {
      auto& into = scales.step_sums(sums);
      static_for<k_slices>([&](auto slice) TILEWAVE_INLINE_LAMBDA {
        const auto slice_scales = scales.slice_scales(stage.scales, slice);
        static_for<W::tiles_m * W::tiles_n>([&](auto i) TILEWAVE_INLINE_LAMBDA {
          constexpr int m = i / W::tiles_n, n = i % W::tiles_n;
          Chunk rows[W::Map::chunks_a], kv[W::Map::chunks_b];
          TILEWAVE_UNROLL
          for (int c = 0; c < W::Map::chunks_a; ++c) rows[c] = stage.a.units[m][slice * W::Map::chunks_a + c];
          TILEWAVE_UNROLL
          for (int c = 0; c < W::Map::chunks_b; ++c) kv[c] = stage.b.units[n][slice * W::Map::chunks_b + c];
          Scales::template multiply<m, n>(slice_scales, kv, rows, into[m][n]);
          B::keep(into[m][n]);
        });
      });
      scales.template accumulate<W::tiles_m>(stage.scales, sums);
    };
    Stage stage[P.stages];
    static_for<P.stages>([&](auto s) TILEWAVE_INLINE_LAMBDA { load.template operator()<false>(stage[s], step + s); });
    const std::int32_t whole = min_of(end, rows_a.k_bytes / RowsA::row_bytes);
    for (; step + 2 * P.stages <= whole; step += P.stages) {
      static_for<P.stages>([&](auto s) TILEWAVE_INLINE_LAMBDA {
        products(stage[s]);
        B::sched_fence();  // Without it, loads get registers of their own, and wait for a copy from there.
        load.template operator()<true>(stage[s], step + s + P.stages);
        B::sched_fence();
      });
    }
    for (; step < end; step += P.stages) {
      static_for<P.stages>([&](auto s) TILEWAVE_INLINE_LAMBDA {
        if (step + s >= end) return;
        rows_a.clean(stage[s].a, step + s);
        if constexpr (!preshuffled) rows_b.clean(stage[s].b, step + s);
        products(stage[s]);
        load.template operator()<false>(stage[s], step + s + P.stages);
      });
    }
  }

  TILEWAVE_DEVICE static typename B::Source source_of_b(const GemmArgs& g, const GemmTile& tile,
                                                        const typename W::TileRowsB& tile_rows) {
    const std::int64_t layer = tile.layer * g.b_layer_stride;
    if constexpr (preshuffled) return W::template strips<S.b>(g.b, layer, tile_rows, g.k);
    return W::template source<S.b>(g.b, layer, g.b_stride, tile_rows, g.k);
  }
};

}  // namespace tilewave
