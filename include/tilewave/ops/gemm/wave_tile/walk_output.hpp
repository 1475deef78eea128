// SPDX-License-Identifier: MIT
// The output of tiles that lie side by side, through which a block goes (gemm_walks). What their rows have in common is
// loaded once, in front of all copies. A load behind them would wait for them.
#pragma once

#include "tilewave/ops/gemm/wave_tile/wave_tile.hpp"

namespace tilewave {

template <class W>
struct GemmWalkOutput {
  using B = typename W::Backend;
  using Map = typename W::Map;
  static constexpr GemmSpec spec = W::spec;
  static constexpr int tiles_m = W::tiles_m, tiles_n = W::tiles_n;

  float factor;
  std::int32_t out[tiles_m];  // the lane's rows of out, or -1
  float weight[tiles_m];

  TILEWAVE_DEVICE GemmWalkOutput(const GemmArgs& a, const GemmTile& tile) : factor(W::Epilogue::tensor_scale(a)) {
    TILEWAVE_UNROLL
    for (int i = 0; i < tiles_m; ++i) {
      const std::int32_t row = tile.first_row + W::row_of(i), own = min_of(row, tile.row_end - 1);
      const std::int32_t of_out = gemm_row_of_out<B, spec>(a, own);
      out[i] = row < tile.row_end ? of_out : -1;
      weight[i] = spec.scattered && a.row_weights != nullptr ? B::load(a.row_weights + own) : 1.0f;
    }
  }
  /// Writes the sums of `count` rows of products of a wave, without bias and residual. Runs of four neighbours are
  /// aligned.
  TILEWAVE_DEVICE void write(const typename W::Args& a, const GemmTile& tile, int count,
                             typename W::WaveSums& sums) const {
    GemmWalkOutput row = *this;  // its first one is that of the sums which stand first
    for (int i = 0; i < count; ++i) {
      static_for<W::tiles_c>([&](auto j) TILEWAVE_INLINE_LAMBDA { row.write_product(a, tile, i, j, sums[0]); });
      static_for<(tiles_m - 1) * tiles_n>([&](auto at) TILEWAVE_INLINE_LAMBDA {
        sums[at / tiles_n][at % tiles_n] = sums[at / tiles_n + 1][at % tiles_n];
      });
      static_for<tiles_m - 1>(
          [&](auto m) TILEWAVE_INLINE_LAMBDA { row.out[m] = row.out[m + 1], row.weight[m] = row.weight[m + 1]; });
    }
  }

 private:
  TILEWAVE_DEVICE void write_product(const typename W::Args& a, const GemmTile& tile, int i, int j,
                                     const typename W::Sums (&sums)[tiles_n]) const {
    struct InTile {
      int row, column;
    };
    Vec<float, Map::sums> values[W::halves];
    TILEWAVE_UNROLL
    for (int half = 0; half < W::halves; ++half) values[half] = as_floats(sums[j + half * W::tiles_c]);
    const auto at = [&](int e) TILEWAVE_INLINE_LAMBDA { return InTile{W::row_of(i), W::column_of(j, e)}; };
    W::Epilogue::template apply<false>(a.gemm, a.epilogue, tile, values, at,
                                       [&](int, int) TILEWAVE_INLINE_LAMBDA { return factor; });
    if (out[0] < 0) return;
    TILEWAVE_UNROLL
    for (int from = 0; from < Map::sums; from += Map::run) {
      Vec<float, Map::run> run;
      TILEWAVE_UNROLL
      for (int e = 0; e < Map::run; ++e) run[e] = values[0][from + e] * weight[0];
      W::Epilogue::store_in_row(a.gemm, tile, out[0], tile.first_column + W::column_of(j, from), run);
    }
  }
};

}  // namespace tilewave
