// SPDX-License-Identifier: MIT
// GEMM of few rows on CDNA: rows of both operands come straight to registers, `stages` steps of 128 bytes of K (with mx
// scales of 128 k) ahead, and waves have nothing to do with one another. Preshuffled weights then are whole lines, each
// read once; A is small and stays in L2. Blocks may share K. LDS plan: none. Bound: memory bandwidth of B.
#pragma once

#include "tilewave/ops/gemm/wave_tile/mx_scales.hpp"
#include "tilewave/ops/gemm/wave_tile/wave_tile.hpp"

namespace tilewave {

/// Rows of an operand as a wave's lanes read them: `tiles` times `side` of them.
template <class W, DType T, int tiles, bool preshuffled>
struct GemmRegisterRows {
  using B = typename W::Backend;
  using Map = typename W::Map;
  static constexpr int side = W::side;
  static constexpr DType type = T;
  static constexpr int row_bytes = bytes_of(type, W::step_k);  // of a step
  static constexpr int units = row_bytes / 16 / Map::units;    // of a lane, of each row of a step
  static constexpr int step_bytes = preshuffled ? 16 * row_bytes : row_bytes, unit_bytes = preshuffled ? 256 : 16;
  struct Step {
    Chunk of[tiles][units];
  };

  typename B::Source source;
  std::int32_t k_bytes;
  std::uint32_t offset[tiles];  // of the lane's first unit

  template <class RowsOf>
  TILEWAVE_DEVICE GemmRegisterRows(const typename B::Source& from, const RowsOf& rows_of, std::int64_t row_stride,
                                   std::int32_t k, int first_row)
      : source(from), k_bytes(bytes_of(type, k)) {
    const int lane = B::lane_id(), unit = Map::unit(lane);
    TILEWAVE_UNROLL
    for (int i = 0; i < tiles; ++i) {
      const int in_tile = first_row + i * side + Map::row(lane);
      const std::int32_t row = rows_of.row(in_tile);
      const std::int64_t at =
          preshuffled ? row / 16 * (std::int64_t{k_bytes} * 16) + row % 16 * 16 : row * row_stride * size_of(type);
      offset[i] = rows_of.has(in_tile) ? static_cast<std::uint32_t>(at) + unit * unit_bytes : B::Source::nowhere;
    }
  }

  /// `whole`: all of the step is K's.
  template <bool whole>
  TILEWAVE_DEVICE Step load(std::int32_t step) const {
    Step rows;
    const std::int32_t start = (whole ? step : min_of(step, k_bytes / row_bytes)) * step_bytes;
    TILEWAVE_UNROLL
    for (int i = 0; i < tiles; ++i) {
      TILEWAVE_UNROLL
      for (int c = 0; c < units; ++c) {
        std::uint32_t from = offset[i] + c * Map::units * unit_bytes;
        if constexpr (!whole) from = left(step, c) > 0 ? from : B::Source::nowhere;
        rows.of[i][c] = source.load(from, start);
      }
    }
    return rows;
  }
  /// Elements beyond K that share 16 bytes with some before become 0. (K of preshuffled weights is whole units.)
  TILEWAVE_DEVICE void clean(Step& rows, std::int32_t step) const {
    if (k_bytes % 16 == 0 || (step + 1) * row_bytes <= k_bytes) return;
    TILEWAVE_UNROLL
    for (int c = 0; c < units; ++c) {
      TILEWAVE_UNROLL
      for (int w = 0; w < 4; ++w) {
        const int kept = left(step, c) - 4 * w;
        const std::uint32_t mask = kept >= 4 ? ~0u : kept <= 0 ? 0u : (1u << 8 * kept) - 1u;
        TILEWAVE_UNROLL
        for (int i = 0; i < tiles; ++i) rows.of[i][c][w] &= mask;
      }
    }
  }

 private:
  /// Bytes of K from the lane's unit c of a step on; negative beyond.
  TILEWAVE_DEVICE std::int32_t left(std::int32_t step, int c) const {
    return k_bytes - min_of(step, k_bytes / row_bytes + 1) * row_bytes -
           (Map::units * c + Map::unit(B::lane_id())) * 16;
  }
};

/// The same of fp6: 24 bytes of a lane are those of a product, in two units. K ends between two.
template <class W, DType T, int tiles>
struct GemmRegisterSixes {
  using B = typename W::Backend;
  using Map = typename W::Map;
  static constexpr int row_bytes = bytes_of(T, W::step_k), lane_bytes = 24;
  static constexpr int pieces = row_bytes / lane_bytes / Map::units, units = 2 * pieces;
  static_assert(pieces * Map::units * lane_bytes == row_bytes, "a step's row of fp6 is a whole number of products");
  struct Step {
    Chunk of[tiles][units];
  };

  typename B::Source source;
  std::int32_t k_bytes;
  std::uint32_t offset[tiles];  // of the lane's first

  template <class RowsOf>
  TILEWAVE_DEVICE GemmRegisterSixes(const typename B::Source& from, const RowsOf& rows_of, std::int64_t row_stride,
                                    std::int32_t k, int first_row)
      : source(from), k_bytes(bytes_of(T, k)) {
    const int lane = B::lane_id();
    TILEWAVE_UNROLL
    for (int i = 0; i < tiles; ++i) {
      const int in_tile = first_row + i * W::side + Map::row(lane);
      const std::int64_t at = rows_of.row(in_tile) * row_stride * size_of(T) + Map::unit(lane) * lane_bytes;
      offset[i] = rows_of.has(in_tile) ? static_cast<std::uint32_t>(at) : B::Source::nowhere;
    }
  }

  template <bool whole>
  TILEWAVE_DEVICE Step load(std::int32_t step) const {
    Step rows;
    const std::int32_t start = (whole ? step : min_of(step, k_bytes / row_bytes)) * row_bytes;
    TILEWAVE_UNROLL
    for (int i = 0; i < tiles; ++i) {
      TILEWAVE_UNROLL
      for (int p = 0; p < pieces; ++p) {
        const int in_step = p * Map::units * lane_bytes;
        std::uint32_t from = offset[i] + in_step;
        if constexpr (!whole) {
          const bool any = std::int64_t{step} * row_bytes + in_step + Map::unit(B::lane_id()) * lane_bytes < k_bytes;
          from = any ? from : B::Source::nowhere;
        }
        const Vec<Chunk, 2> two = source.load_sixes(from, start);
        rows.of[i][2 * p] = two[0];
        rows.of[i][2 * p + 1] = two[1];
      }
    }
    return rows;
  }
  TILEWAVE_DEVICE void clean(Step&, std::int32_t) const {}
};

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
      std::conditional_t<is_fp6(type), GemmRegisterSixes<W, type, tiles>, GemmRegisterRows<W, type, tiles, shuffled>>;
  using RowsA = Rows<S.a, W::tiles_m, false>;
  using RowsB = Rows<S.b, W::tiles_n, preshuffled>;
  using Scales = GemmStepScales<W, false>;
  static constexpr int pieces = RowsA::units / W::Map::chunks_a;
  static_assert(RowsB::units == pieces * W::Map::chunks_b, "a step of A and of B has equally many products");
  using Shared = typename W::Exchange;

  TILEWAVE_DEVICE static void run(const Args& a, Shared& shared) {
    const typename W::Place place(a, B::block_id(), true);
    if (!place.any) return;
    typename W::AllSums sums;
    W::clear(sums);
    const auto steps = a.steps(place.split);
    if (steps.first < steps.end) multiply(a, place.tile, steps, shared, sums);
    W::finish(a, place, shared, sums);
  }

 private:
  struct Stage {
    typename RowsA::Step a;
    typename RowsB::Step b;
    typename Scales::OfStep scales;
  };

  TILEWAVE_DEVICE static void multiply(const Args& a, const GemmTile& tile, typename Args::Steps steps, Shared& shared,
                                       typename W::AllSums& sums) {
    std::int32_t step = steps.first;
    const std::int32_t end = steps.end;
    const GemmArgs& g = a.gemm;
    const typename W::RowsOfA rows_a(g, tile);
    const typename W::RowsOfB rows_b(g, tile);
    const RowsA of_a(W::template source<S.a>(g.a, tile.a_layer * g.a_layer_stride, g.a_stride, rows_a, g.k), rows_a,
                     g.a_stride, g.k, W::first_row());
    const RowsB of_b(source_of_b(g, tile, rows_b), rows_b, g.b_stride, g.k, W::first_column());
    Scales scales(a, tile, shared);
    const auto load = [&]<bool whole>(Stage& stage, std::int32_t s) TILEWAVE_INLINE_LAMBDA {
      stage.a = of_a.template load<whole>(s);
      stage.b = of_b.template load<whole>(s);
      stage.scales = scales.load(min_of(s, end - 1));
    };
    const auto products = [&](const Stage& stage) TILEWAVE_INLINE_LAMBDA {
      auto& into = scales.sums_of_step(sums);
      static_for<pieces>([&](auto piece) TILEWAVE_INLINE_LAMBDA {
        const auto of_piece = scales.of_piece(stage.scales, piece);
        static_for<W::tiles_m * W::tiles_n>([&](auto i) TILEWAVE_INLINE_LAMBDA {
          constexpr int m = i / W::tiles_n, n = i % W::tiles_n;
          Chunk rows[W::Map::chunks_a], kv[W::Map::chunks_b];
          TILEWAVE_UNROLL
          for (int c = 0; c < W::Map::chunks_a; ++c) rows[c] = stage.a.of[m][piece * W::Map::chunks_a + c];
          TILEWAVE_UNROLL
          for (int c = 0; c < W::Map::chunks_b; ++c) kv[c] = stage.b.of[n][piece * W::Map::chunks_b + c];
          Scales::template multiply<m, n>(of_piece, kv, rows, into[m][n]);
          B::keep(into[m][n]);
        });
      });
      scales.fold(stage.scales, sums);
    };
    Stage stage[P.stages];
    static_for<P.stages>([&](auto s) TILEWAVE_INLINE_LAMBDA { load.template operator()<false>(stage[s], step + s); });
    const std::int32_t whole = min_of(end, of_a.k_bytes / RowsA::row_bytes);
    for (; step + 2 * P.stages <= whole; step += P.stages) {
      static_for<P.stages>([&](auto s) TILEWAVE_INLINE_LAMBDA {
        products(stage[s]);
        B::sched_fence();  // else loads get registers of their own, and wait for a copy from there
        load.template operator()<true>(stage[s], step + s + P.stages);
        B::sched_fence();
      });
    }
    for (; step < end; step += P.stages) {
      static_for<P.stages>([&](auto s) TILEWAVE_INLINE_LAMBDA {
        if (step + s >= end) return;
        of_a.clean(stage[s].a, step + s);
        if constexpr (!preshuffled) of_b.clean(stage[s].b, step + s);
        products(stage[s]);
        load.template operator()<false>(stage[s], step + s + P.stages);
      });
    }
  }

  TILEWAVE_DEVICE static typename B::Source source_of_b(const GemmArgs& g, const GemmTile& tile,
                                                        const typename W::RowsOfB& of) {
    const std::int64_t layer = tile.layer * g.b_layer_stride;
    if constexpr (preshuffled) return W::template strips<S.b>(g.b, layer, of, g.k);
    return W::template source<S.b>(g.b, layer, g.b_stride, of, g.k);
  }
};

}  // namespace tilewave
