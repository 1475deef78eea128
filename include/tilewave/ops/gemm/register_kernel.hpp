// SPDX-License-Identifier: MIT
// GEMM of few rows on CDNA: rows of both operands come straight to registers, `stages` steps of 128 bytes of K ahead,
// and waves have nothing to do with one another. Preshuffled weights then are whole lines, each read once; A is small
// and stays in L2. Blocks may share K. LDS plan: none. Bound: memory bandwidth of B.
#pragma once

#include "tilewave/ops/gemm/lds_layout.hpp"
#include "tilewave/ops/gemm/step_scales.hpp"

namespace tilewave {

/// Rows of an operand as a wave's lanes read them: `tiles` times `side` of them.
template <class W, int tiles, bool preshuffled>
struct GemmRegisterRows {
  using B = typename W::Backend;
  using Map = typename W::Map;
  static constexpr int side = W::side;
  static constexpr DType type = W::spec.a;
  static constexpr int units = 8 / Map::units;  // of a lane, of each row of a step
  static constexpr int step_bytes = preshuffled ? 8 * 256 : 128, unit_bytes = preshuffled ? 256 : 16;
  struct Step {
    Chunk of[tiles][units];
  };

  typename B::Source source;
  std::int32_t k_bytes;
  std::uint32_t offset[tiles];  // of the lane's first unit

  template <class RowsOf>
  TILEWAVE_DEVICE GemmRegisterRows(const typename B::Source& from, const RowsOf& of, std::int64_t row_stride,
                                   std::int32_t k, int first_row)
      : source(from), k_bytes(k * size_of(type)) {
    const int lane = B::lane_id(), unit = Map::unit(lane);
    TILEWAVE_UNROLL
    for (int i = 0; i < tiles; ++i) {
      const int in_tile = first_row + i * side + Map::row(lane);
      const std::int32_t row = of.row(in_tile);
      const std::int64_t at =
          preshuffled ? row / 16 * (std::int64_t{k_bytes} * 16) + row % 16 * 16 : row * row_stride * size_of(type);
      offset[i] = of.has(in_tile) ? static_cast<std::uint32_t>(at) + unit * unit_bytes : B::Source::nowhere;
    }
  }

  /// `whole`: all of the step's 128 bytes are K's.
  template <bool whole>
  TILEWAVE_DEVICE Step load(std::int32_t step) const {
    Step rows;
    const std::int32_t start = (whole ? step : min_of(step, k_bytes / 128)) * step_bytes;
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
    if (k_bytes % 16 == 0 || (step + 1) * 128 <= k_bytes) return;
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
    return k_bytes - min_of(step, k_bytes / 128 + 1) * 128 - (Map::units * c + Map::unit(B::lane_id())) * 16;
  }
};

template <class B, GemmSpec S, GemmPolicy P, class UserEpilogue = GemmIdentity>
struct GemmRegisterKernel {
  using Room = B;
  using W = GemmWaveTile<B, S, P, UserEpilogue>;
  using Args = typename W::Args;
  static constexpr int block_threads = W::block_threads;
  static constexpr int waves_per_simd = P.waves_per_simd;
  static constexpr bool preshuffled = S.weights == GemmWeights::preshuffled;
  using RowsA = GemmRegisterRows<W, W::tiles_m, false>;
  using RowsB = GemmRegisterRows<W, W::tiles_n, preshuffled>;
  using Scales = GemmStepScales<W, false>;
  static_assert(P.depth == 128);
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
    const RowsA of_a(W::source(g.a, tile.a_layer * g.a_layer_stride, g.a_stride, rows_a, g.k), rows_a, g.a_stride, g.k,
                     W::first_row());
    const RowsB of_b(source_of_b(g, tile, rows_b), rows_b, g.b_stride, g.k, W::first_column());
    Scales scales(a, tile, shared);
    const auto load = [&]<bool whole>(Stage& stage, std::int32_t s) TILEWAVE_INLINE_LAMBDA {
      stage.a = of_a.template load<whole>(s);
      stage.b = of_b.template load<whole>(s);
      stage.scales = scales.load(min_of(s, end - 1));
    };
    const auto products = [&](const Stage& stage) TILEWAVE_INLINE_LAMBDA {
      auto& into = scales.sums_of_step(sums);
      static_for<RowsA::units / W::chunks>([&](auto piece) TILEWAVE_INLINE_LAMBDA {
        TILEWAVE_UNROLL
        for (int i = 0; i < W::tiles_m * W::tiles_n; ++i) {
          Chunk rows[W::chunks], kv[W::chunks];
          TILEWAVE_UNROLL
          for (int c = 0; c < W::chunks; ++c) {
            rows[c] = stage.a.of[i / W::tiles_n][piece * W::chunks + c];
            kv[c] = stage.b.of[i % W::tiles_n][piece * W::chunks + c];
          }
          auto& sum = into[i / W::tiles_n][i % W::tiles_n];
          B::template multiply<S.a, W::side>(kv, rows, sum);
          B::pin(sum);
        }
      });
      scales.fold(stage.scales, sums);
    };
    Stage stage[P.stages];
    static_for<P.stages>([&](auto s) TILEWAVE_INLINE_LAMBDA { load.template operator()<false>(stage[s], step + s); });
    const std::int32_t whole = min_of(end, of_a.k_bytes / 128);
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
    if constexpr (!preshuffled) {
      return W::source(g.b, layer, g.b_stride, of, g.k);
    } else {  // sixteen rows are one that is sixteen times as long
      const std::int32_t blocks = ceil_div(of.span(), 16);
      const char* const at = static_cast<const char*>(g.b) + (layer + std::int64_t{of.first} * g.k) * size_of(S.a);
      return {at, static_cast<std::uint32_t>(std::int64_t{blocks} * 16 * g.k * size_of(S.a))};
    }
  }
};

}  // namespace tilewave
