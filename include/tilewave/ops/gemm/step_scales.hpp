// SPDX-License-Identifier: MIT
// Block scales: a step is 128 k, whose sum is multiplied by one number for each row of A and each 128 rows of B.
#pragma once

#include "tilewave/ops/gemm/lds_layout.hpp"

namespace tilewave {

/// Without block scales: nothing to do.
template <class B, GemmSpec S, GemmPolicy P, class UserEpilogue>
struct GemmStepScales {
  using W = GemmWaveTile<B, S, P, UserEpilogue>;
  struct OfStep {};
  TILEWAVE_DEVICE GemmStepScales(const typename W::Args&, const GemmTile&) {}
  TILEWAVE_DEVICE OfStep load(std::int32_t) const { return {}; }
  TILEWAVE_DEVICE void fold(const OfStep&, typename W::AllSums&) {}
  TILEWAVE_DEVICE typename W::AllSums& sums_of_step(typename W::AllSums& sums) { return sums; }
};

template <class B, GemmSpec S, GemmPolicy P, class UserEpilogue>
requires(S.scale == GemmScale::block) struct GemmStepScales<B, S, P, UserEpilogue> {
  using W = GemmWaveTile<B, S, P, UserEpilogue>;
  struct OfStep {
    float a[W::tiles_m] = {}, b = 0;
  };
  static_assert(gemm_scale_block % W::wave_columns == 0 && P.columns % gemm_scale_block == 0);

  TILEWAVE_DEVICE GemmStepScales(const typename W::Args& args, const GemmTile& tile) {
    const GemmArgs& g = args.gemm;
    const std::int32_t last = tile.row_end - 1, row = tile.first_row + W::first_row() + W::Map::row(B::lane_id());
    const float* const of_a = g.a_scale + tile.a_layer * g.a_scale_layer_stride;
    TILEWAVE_UNROLL
    for (int i = 0; i < W::tiles_m; ++i) a_at_[i] = of_a + min_of(row + i * W::side, last) * g.a_scale_stride;
    const std::int32_t column = min_of(tile.first_column + W::first_column(), g.n - 1);
    b_at_ = g.b_scale + tile.layer * g.b_scale_layer_stride + column / gemm_scale_block * g.b_scale_stride;
    a_k_stride_ = g.a_scale_k_stride;
    b_k_stride_ = g.b_scale_k_stride;
    W::clear(part_);
  }
  TILEWAVE_DEVICE OfStep load(std::int32_t step) const {
    OfStep scales;
    TILEWAVE_UNROLL
    for (int i = 0; i < W::tiles_m; ++i) scales.a[i] = B::load(a_at_[i] + step * a_k_stride_);
    scales.b = B::load(b_at_ + step * b_k_stride_);
    return scales;
  }
  /// The sums of a step so far, scaled, become part of all; those of the next begin.
  TILEWAVE_DEVICE void fold(const OfStep& scales, typename W::AllSums& sums) {
    TILEWAVE_UNROLL
    for (int i = 0; i < W::tiles_m; ++i) {
      const float scale = scales.a[i] * scales.b;
      TILEWAVE_UNROLL
      for (int j = 0; j < W::tiles_n; ++j) {
        TILEWAVE_UNROLL
        for (int e = 0; e < W::Map::sums; ++e) sums[i][j][e] += part_[i][j][e] * scale;
      }
    }
    W::clear(part_);
  }
  TILEWAVE_DEVICE typename W::AllSums& sums_of_step(typename W::AllSums&) { return part_; }

 private:
  const float* a_at_[W::tiles_m];
  const float* b_at_;
  std::int64_t a_k_stride_, b_k_stride_;
  typename W::AllSums part_;
};

}  // namespace tilewave
