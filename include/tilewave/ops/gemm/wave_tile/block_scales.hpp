// SPDX-License-Identifier: MIT
// Block scales: a step is 128 k, whose sum is multiplied by one number for each row of A and each 128 rows of B.
#pragma once

#include "tilewave/ops/gemm/wave_tile/wave_tile.hpp"

namespace tilewave {

/// Products whose operands have no scales of their own.
template <class W>
struct GemmPlainProducts {
  struct OfPiece {};
  static constexpr int reads = 0;  // from LDS, of a wave for a piece

  template <int i>
  TILEWAVE_DEVICE void read(OfPiece&, std::int32_t, int, int) const {}
  template <class OfStep>
  TILEWAVE_DEVICE OfPiece of_piece(const OfStep&, int) const {
    return {};
  }
  TILEWAVE_DEVICE bool ends_within(std::int32_t) const { return false; }
  TILEWAVE_DEVICE void clean(std::int32_t, int) const {}
  /// Product [m][n] of a wave.
  template <int m, int n>
  TILEWAVE_DEVICE static void multiply(const OfPiece&, const Chunk (&kv)[W::Map::chunks_b],
                                       const Chunk (&rows)[W::Map::chunks_a], typename W::Sums& sums) {
    W::Backend::template multiply<W::spec.a, W::side>(kv, rows, sums);
  }
};

/// Without scales of steps: nothing to do. `copied`: scales come into LDS with A's rows of their step; a load would
/// wait for all copies.
template <class W, bool copied>
struct GemmStepScales : GemmPlainProducts<W> {
  struct OfStep {};
  template <int slots>
  struct InLds {};
  static constexpr int copies = 0;  // of a wave for a step

  template <class Shared>
  TILEWAVE_DEVICE GemmStepScales(const typename W::Args&, const GemmTile&, Shared&) {}
  TILEWAVE_DEVICE OfStep load(std::int32_t, int = 0) const { return {}; }
  TILEWAVE_DEVICE void fold(const OfStep&, typename W::AllSums&) {}
  TILEWAVE_DEVICE typename W::AllSums& sums_of_step(typename W::AllSums& sums) { return sums; }
};

template <class W, bool copied>
requires(W::spec.scale == Scaling::per_block) struct GemmStepScales<W, copied> : GemmPlainProducts<W> {
  using B = typename W::Backend;
  struct OfStep {
    float a[W::tiles_m] = {}, b[W::halves] = {};
  };
  static constexpr int lanes = B::facts.wave_lanes;
  struct Nothing {};
  template <int slots>
  struct Places {
    float scales[slots][W::waves][2][lanes];  // of A's rows; of B's, each half in its share of the places
  };
  template <int slots>
  using InLds = std::conditional_t<copied, Places<slots>, Nothing>;
  static constexpr int copies = copied ? 2 : 0;

  template <class Shared>
  TILEWAVE_DEVICE GemmStepScales(const typename W::Args& args, const GemmTile& tile, Shared& shared) {
    const GemmArgs& g = args.gemm;
    const std::int32_t last = tile.row_end - 1, first = tile.first_row + W::first_row();
    a_ = g.a_scale + tile.a_layer * g.a_scale_layer_stride;
    const std::int32_t column = min_of(tile.first_column + W::first_column() / W::halves, g.n - 1);
    TILEWAVE_UNROLL
    for (int half = 0; half < W::halves; ++half) {
      const std::int32_t block = gemm_row_of_b<W::spec>(g, column, half) / gemm_scale_block;
      b_[half] = g.b_scale + tile.layer * g.b_scale_layer_stride + block * g.b_scale_stride;
    }
    TILEWAVE_UNROLL
    for (int i = 0; i < rows; ++i) {
      const int row = copied ? B::lane_id() : i * W::side + W::Map::row(B::lane_id());
      row_[i] = min_of(first + row, last) * g.a_scale_stride;
    }
    if constexpr (W::halves > 1) {
      b_reach_ = static_cast<std::uint32_t>(B::uniform(static_cast<std::int32_t>((b_[1] - b_[0]) * sizeof(float))));
    }
    a_k_stride_ = g.a_scale_k_stride;
    b_k_stride_ = g.b_scale_k_stride;
    steps_ = args.k_steps;
    if constexpr (copied) shared_ = &shared.scales[0][B::wave_id()];
    W::clear(part_);
  }

  template <int i>
  TILEWAVE_DEVICE void copy(std::int32_t step, int slot) const {
    const std::int32_t at = min_of(step, steps_ - 1);
    float* const to = shared_[slot * W::waves][i];
    if constexpr (i == 0) {
      const typename B::Source source{a_ + at * a_k_stride_, B::Source::nowhere - 4};
      source.copy_word(to, static_cast<std::uint32_t>(row_[0] * sizeof(float)), 0);
    } else {
      const typename B::Source source{b_[0] + at * b_k_stride_, b_reach_ + 4u};
      source.copy_word(to, W::halves > 1 && B::lane_id() >= share ? b_reach_ : 0, 0);
    }
  }
  TILEWAVE_DEVICE OfStep load(std::int32_t step, int slot = 0) const {
    OfStep scales;
    TILEWAVE_UNROLL
    for (int i = 0; i < W::tiles_m; ++i) {
      if constexpr (copied) {
        scales.a[i] = shared_[slot * W::waves][0][i * W::side + W::Map::row(B::lane_id())];
      } else {
        scales.a[i] = B::load(a_ + row_[i] + step * a_k_stride_);
      }
    }
    TILEWAVE_UNROLL
    for (int half = 0; half < W::halves; ++half) {
      if constexpr (copied) {
        scales.b[half] = shared_[slot * W::waves][1][half * share];
      } else {
        scales.b[half] = B::load(b_[half] + step * b_k_stride_);
      }
    }
    return scales;
  }
  /// The sums of a step so far, scaled, become part of all; those of the next begin.
  TILEWAVE_DEVICE void fold(const OfStep& scales, typename W::AllSums& sums) {
    TILEWAVE_UNROLL
    for (int i = 0; i < W::tiles_m; ++i) {
      TILEWAVE_UNROLL
      for (int j = 0; j < W::tiles_n; ++j) {
        const float scale = scales.a[i] * scales.b[j / W::tiles_c];
        TILEWAVE_UNROLL
        for (int e = 0; e < W::Map::sums; ++e) sums[i][j][e] += part_[i][j][e] * scale;
        B::keep(sums[i][j]);
      }
    }
    W::clear(part_);
  }
  TILEWAVE_DEVICE typename W::AllSums& sums_of_step(typename W::AllSums&) { return part_; }

 private:
  static constexpr int rows = copied ? 1 : W::tiles_m;
  const float *a_, *b_[W::halves];
  std::int64_t row_[rows], a_k_stride_, b_k_stride_;
  std::int32_t steps_;
  static constexpr int share = lanes / W::halves;
  std::uint32_t b_reach_ = 0;  // bytes from the first half's scales to the last's
  float (*shared_)[2][lanes] = nullptr;
  typename W::AllSums part_;
};

}  // namespace tilewave
