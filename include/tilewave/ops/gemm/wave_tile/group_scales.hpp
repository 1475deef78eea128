// SPDX-License-Identifier: MIT
// Scales of int4 weights that are widened on their way into LDS. Each column has one for a group of k, which is one
// step or two. Products go to sums of their own, which accumulate() scales and adds to the wave's after each group.
#pragma once

#include "tilewave/ops/gemm/wave_tile/block_scales.hpp"

namespace tilewave {

template <class W, bool through_lds>
requires(W::spec.four_bit() && !W::spec.mxfp4()) struct GemmStepScales<W, through_lds> : GemmPlainProducts<W> {
  using B = typename W::Backend;
  using Map = typename W::Map;
  static constexpr GemmSpec spec = W::spec;
  static constexpr DType type = spec.group_scale();
  static constexpr int period = spec.scale_k / W::step_k;
  static constexpr int runs = Map::sums / Map::run;  // of neighbouring columns in a lane's sums of a product
  using RunScales = Packed<type, Map::run>;
  using Window = typename B::template Window<true>;
  static constexpr std::uint32_t nowhere = 1u << 31;  // an offset beyond every window
  struct StepScales {
    RunScales of[W::tiles_n][runs] = {};
  };
  template <int slots>
  struct InLds {};
  static constexpr int copies = 0;

  template <class Shared>
  TILEWAVE_DEVICE GemmStepScales(const typename W::Args& args, const GemmTile& tile, Shared&) {
    const GemmArgs& g = args.gemm;
    const typename W::TileRowsB tile_rows(g, tile);
    scales_ = static_cast<const char*>(g.b_group_scale) +
              (tile.layer * g.b_scale_layer_stride + tile_rows.first) * size_of(type);
    bytes_ = static_cast<std::uint32_t>(tile_rows.span()) * size_of(type);
    stride_ = g.b_scale_k_stride * size_of(type);
    last_ = args.k_steps - 1;
    TILEWAVE_UNROLL
    for (int j = 0; j < W::tiles_n; ++j) {
      TILEWAVE_UNROLL
      for (int run = 0; run < runs; ++run) {
        const int column = W::first_column() + j * Map::columns + Map::kv_row(B::lane_id(), run * Map::run);
        offset_[j][run] =
            tile_rows.has(column) ? static_cast<std::uint32_t>(tile_rows.row(column) * size_of(type)) : nowhere;
      }
    }
    W::clear(step_sums_);
  }

  TILEWAVE_DEVICE StepScales load(std::int32_t step, int = 0) const {
    const Window group{scales_ + min_of(step, last_) / period * stride_, bytes_};
    StepScales scales;
    TILEWAVE_UNROLL
    for (int j = 0; j < W::tiles_n; ++j) {
      TILEWAVE_UNROLL
      for (int run = 0; run < runs; ++run) scales.of[j][run] = group.template load<RunScales>(offset_[j][run]);
    }
    return scales;
  }
  /// Scales the sums of a group, adds them to the wave's and clears them for the next.
  template <int tiles_m>
  TILEWAVE_DEVICE void accumulate(const StepScales& scales, typename W::WaveSums& sums) {
    TILEWAVE_UNROLL
    for (int j = 0; j < W::tiles_n; ++j) {
      TILEWAVE_UNROLL
      for (int run = 0; run < runs; ++run) {
        const Vec<float, Map::run> factors = widen<B, type, Map::run>(scales.of[j][run]);
        TILEWAVE_UNROLL
        for (int i = 0; i < W::tiles_m; ++i) {
          TILEWAVE_UNROLL
          for (int e = 0; e < Map::run; ++e)
            sums[i][j][run * Map::run + e] += step_sums_[i][j][run * Map::run + e] * factors[e];
        }
      }
      TILEWAVE_UNROLL
      for (int i = 0; i < W::tiles_m; ++i) B::keep(sums[i][j]);
    }
    W::clear(step_sums_);
  }
  TILEWAVE_DEVICE typename W::WaveSums& step_sums(typename W::WaveSums&) { return step_sums_; }

 private:
  const char* scales_;                      // of the tile's first column and k
  std::uint32_t bytes_;                     // of a group of k, from there
  std::int64_t stride_;                     // from a group of k to the next, in bytes
  std::int32_t last_;                       // step of K
  std::uint32_t offset_[W::tiles_n][runs];  // of this lane's runs, in bytes
  typename W::WaveSums step_sums_;
};

}  // namespace tilewave
