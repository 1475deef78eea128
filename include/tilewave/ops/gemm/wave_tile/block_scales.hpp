// SPDX-License-Identifier: MIT
// Scales that apply to the sum of a step, and their interface. With block scales a step is 128 k, and its sum is
// multiplied by one number for each row of A and each 128 rows of B. GemmStepScales<W, through_lds> also exists for
// products without such scales, where it does nothing, and for MX scales (mx_scales.hpp).
#pragma once

#include "tilewave/ops/gemm/wave_tile/wave_tile.hpp"

namespace tilewave {

/// Products whose instruction takes no scales.
template <class W>
struct GemmPlainProducts {
  struct SliceScales {};            // scales of the products of a k slice
  static constexpr int reads = 0;   // from LDS, of a wave for a k slice
  static constexpr int period = 1;  // steps whose sums are scaled together

  template <int i>
  TILEWAVE_DEVICE void read(SliceScales&, std::int32_t, int, int) const {}
  template <class StepScales>
  TILEWAVE_DEVICE SliceScales slice_scales(const StepScales&, int) const {
    return {};
  }
  TILEWAVE_DEVICE bool ends_within(std::int32_t) const { return false; }
  TILEWAVE_DEVICE void clean(std::int32_t, int) const {}
  /// Adds product [m][n] of a wave to the sums.
  template <int m, int n>
  TILEWAVE_DEVICE static void multiply(const SliceScales&, const Chunk (&kv)[W::Map::chunks_b],
                                       const Chunk (&rows)[W::Map::chunks_a], typename W::Sums& sums) {
    W::Backend::template multiply<W::spec.a, W::side>(kv, rows, sums);
  }
};

/// Products without scales of steps: there is nothing to do. With `through_lds`, scales are copied into LDS beside A's
/// rows of their step, because a load would wait for all copies. Without it, they are loaded to registers.
template <class W, bool through_lds>
struct GemmStepScales : GemmPlainProducts<W> {
  struct StepScales {};  // a lane's scales of a step
  template <int slots>
  struct InLds {};
  static constexpr int copies = 0;  // of a wave for a step

  template <class Shared>
  TILEWAVE_DEVICE GemmStepScales(const typename W::Args&, const GemmTile&, Shared&) {}
  TILEWAVE_DEVICE StepScales load(std::int32_t, int = 0) const { return {}; }
  template <int tiles_m>
  TILEWAVE_DEVICE void accumulate(const StepScales&, typename W::WaveSums&) {}
  TILEWAVE_DEVICE typename W::WaveSums& step_sums(typename W::WaveSums& sums) { return sums; }
};

/// Block scales. Products go to sums of their own, which accumulate() scales and adds to the wave's after each step.
template <class W, bool through_lds>
requires(W::spec.scale == Scaling::per_block) struct GemmStepScales<W, through_lds> : GemmPlainProducts<W> {
  using B = typename W::Backend;
  struct StepScales {
    float a[W::tiles_m] = {}, b[W::halves] = {};
  };
  static constexpr int lanes = B::facts.wave_lanes, half_lanes = lanes / W::halves;
  struct Nothing {};
  /// Each wave copies its own scales: [0] has those of its 64 rows of A, [1] that of B, once in each of half_lanes
  /// lanes for the gates and, in the other lanes, for the ups.
  template <int slots>
  struct WaveScales {
    float scales[slots][W::waves][2][lanes];
  };
  template <int slots>
  using InLds = std::conditional_t<through_lds, WaveScales<slots>, Nothing>;
  static constexpr int copies = through_lds ? 2 : 0;

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
      const int row = through_lds ? B::lane_id() : i * W::side + W::Map::row(B::lane_id());
      a_offset_[i] = gemm_row_of_a<B, W::spec>(g, min_of(first + row, last)) * g.a_scale_stride;
    }
    if constexpr (W::halves > 1) {
      up_offset_ = static_cast<std::uint32_t>(B::uniform(static_cast<std::int32_t>((b_[1] - b_[0]) * sizeof(float))));
    }
    a_k_stride_ = g.a_scale_k_stride;
    b_k_stride_ = g.b_scale_k_stride;
    steps_ = args.k_steps;
    if constexpr (through_lds) lds_ = &shared.scales[0][B::wave_id()];
    W::clear(step_sums_);
  }

  /// Returns how far the scales of B of the tile on the right lie behind a tile's, in elements.
  TILEWAVE_DEVICE static std::int32_t next_tile(const GemmArgs& g) {
    return static_cast<std::int32_t>(gemm_row_of_b<W::spec>(g, W::tile_columns, 0) / gemm_scale_block *
                                     g.b_scale_stride);
  }
  /// Copy i for a step of the tile whose scales of B lie `tile` elements behind those of the block's first.
  template <int i>
  TILEWAVE_DEVICE void copy(std::int32_t step, int slot, std::int32_t tile = 0) const {
    const std::int32_t at = min_of(step, steps_ - 1);
    float* const to = lds_[slot * W::waves][i];
    if constexpr (i == 0) {
      const typename B::Source source{a_ + at * a_k_stride_, B::Source::nowhere - 4};
      source.copy_word(to, static_cast<std::uint32_t>(a_offset_[0] * sizeof(float)), 0);
    } else {
      const typename B::Source source{b_[0] + tile + at * b_k_stride_, up_offset_ + 4u};
      source.copy_word(to, W::halves > 1 && B::lane_id() >= half_lanes ? up_offset_ : 0, 0);
    }
  }
  TILEWAVE_DEVICE StepScales load(std::int32_t step, int slot = 0) const {
    StepScales scales;
    TILEWAVE_UNROLL
    for (int i = 0; i < W::tiles_m; ++i) {
      if constexpr (through_lds) {
        scales.a[i] = lds_[slot * W::waves][0][i * W::side + W::Map::row(B::lane_id())];
      } else {
        scales.a[i] = B::load(a_ + a_offset_[i] + step * a_k_stride_);
      }
    }
    TILEWAVE_UNROLL
    for (int half = 0; half < W::halves; ++half) {
      if constexpr (through_lds) {
        scales.b[half] = lds_[slot * W::waves][1][half * half_lanes];
      } else {
        scales.b[half] = B::load(b_[half] + step * b_k_stride_);
      }
    }
    return scales;
  }
  /// Scales the sums of a step, adds them to the wave's and clears them for the next step. It takes `tiles_m` rows of
  /// products.
  template <int tiles_m>
  TILEWAVE_DEVICE void accumulate(const StepScales& scales, typename W::WaveSums& sums) {
    TILEWAVE_UNROLL
    for (int i = 0; i < tiles_m; ++i) {
      TILEWAVE_UNROLL
      for (int j = 0; j < W::tiles_n; ++j) {
        const float scale = scales.a[i] * scales.b[j / W::tiles_c];
        TILEWAVE_UNROLL
        for (int e = 0; e < W::Map::sums; ++e) sums[i][j][e] += step_sums_[i][j][e] * scale;
        B::keep(sums[i][j]);
      }
    }
    W::clear(step_sums_);
  }
  TILEWAVE_DEVICE typename W::WaveSums& step_sums(typename W::WaveSums&) { return step_sums_; }

 private:
  static constexpr int rows = through_lds ? 1 : W::tiles_m;  // whose scales a lane copies or loads
  const float *a_, *b_[W::halves];
  std::int64_t a_offset_[rows], a_k_stride_, b_k_stride_;
  std::int32_t steps_;
  std::uint32_t up_offset_ = 0;  // from the gate's scale to the up's, in bytes
  float (*lds_)[2][lanes] = nullptr;
  typename W::WaveSums step_sums_;
};

}  // namespace tilewave
