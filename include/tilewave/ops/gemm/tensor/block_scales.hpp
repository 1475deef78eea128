// SPDX-License-Identifier: MIT
// Block scales of GemmTensorKernel: how the scales of a stage come to shared memory, and to the lanes that hold its
// sums. L is the GemmTensorLayout of the kernel.
#pragma once

#include "tilewave/ops/gemm/args.hpp"

namespace tilewave {

/// A wave's registers for the block scales of one stage, between device and shared memory, but of gathered rows.
template <class L, GemmPolicy P>
struct GemmFetchedBlockScales {
  using B = typename L::Backend;
  using Shared = typename L::Shared;
  static constexpr int lanes = B::facts.wave_lanes, rows = ceil_div(P.rows, lanes);
  Vec<float, rows> of_a;
  float of_b;

  TILEWAVE_DEVICE void load(const GemmArgs& a, const GemmTile& tile, std::int32_t step) {
    const float* const from = a.a_scale + tile.a_layer * a.a_scale_layer_stride + step * a.a_scale_k_stride;
    TILEWAVE_UNROLL
    for (int i = 0; i < rows; ++i) {
      const std::int32_t row = min_of(tile.first_row + min_of(i * lanes + B::lane_id(), P.rows - 1), tile.row_end - 1);
      of_a[i] = B::load(from + max_of(row, 0) * a.a_scale_stride);
    }
    const int row = 64 * min_of(B::lane_id(), P.columns / 64 - 1);
    of_b = B::load(L::scales_of_b(a, tile, row) + step * a.b_scale_k_stride);
  }
  TILEWAVE_DEVICE void store(Shared& shared, int slot) const {
    TILEWAVE_UNROLL
    for (int i = 0; i < rows; ++i)
      if (i * lanes + B::lane_id() < P.rows) shared.a_scale[slot][i * lanes + B::lane_id()] = of_a[i];
    if (B::lane_id() < P.columns / 64) shared.b_scale[slot][B::lane_id()] = of_b;
  }
};

/// The block scales of a lane's sums of one stage.
template <class L, GemmSpec S, GemmPolicy P>
struct GemmBlockScales {
  using B = typename L::Backend;
  using Shared = typename L::Shared;
  static constexpr int tiles = L::tiles;
  // A has one scale for each of the lane's two rows of a tile, or (swapped) for each of its columns, in pairs. B has
  // one for each 64 rows where a tile may begin in the middle of a block of 128.
  static constexpr int of_a = P.swapped ? L::wave_group_wide / 4 : 2 * tiles;
  static constexpr bool of_blocks = !P.swapped && !S.gated && L::wave_group_wide % gemm_scale_block == 0;
  static constexpr int b_columns = of_blocks ? gemm_scale_block : 64;
  static constexpr int of_b = ceil_div(P.swapped ? L::wave_group_tall : L::wave_group_wide, b_columns);
  Vec<float, of_a> a_scale;
  Vec<float, of_b> b_scale;

  TILEWAVE_DEVICE void read(const Shared& shared, int slot, int wave_group) {
    const int row = P.swapped ? L::wide_row(wave_group) + 2 * (B::lane_id() % 4)
                              : L::tall_row(wave_group) + 16 * L::wave_in_wave_group() + B::lane_id() / 4;
    const int first_b = (P.swapped ? L::tall_row(wave_group) : L::wide_row(wave_group)) / 64;
    TILEWAVE_UNROLL
    for (int i = 0; i < of_a; ++i)
      a_scale[i] = shared.a_scale[slot][row + (P.swapped ? 8 * (i / 2) + i % 2 : 64 * (i / 2) + 8 * (i % 2))];
    TILEWAVE_UNROLL
    for (int i = 0; i < of_b; ++i) b_scale[i] = shared.b_scale[slot][first_b + b_columns / 64 * i];
  }
  /// The scale of element i of tile t.
  TILEWAVE_DEVICE float of(int t, int i) const {
    if constexpr (P.swapped) return a_scale[i / 4 * 2 + i % 2] * b_scale[t];
    return a_scale[2 * t + i / 2 % 2] * b_scale[i / 4 * 8 / b_columns];
  }

  /// The products of A's and B's scales.
  struct Products {
    Vec<float, of_a * of_b> of_all;
    TILEWAVE_DEVICE float of(int t, int i) const { return of_all[2 * t + i / 2 % 2 + of_a * (i / 4 * 8 / b_columns)]; }
  };
  TILEWAVE_DEVICE Products products() const {
    static_assert(!P.swapped, "swapped tiles scale by pairs of columns, not by products of scales");
    Products all;
    TILEWAVE_UNROLL
    for (int i = 0; i < of_a * of_b; ++i) all.of_all[i] = a_scale[i % of_a] * b_scale[i / of_a];
    return all;
  }
};

/// Reads the scales of a lane's two rows of each tile, and of its columns, from device memory, stage by stage.
template <class L, GemmSpec S>
struct GemmScaleReader {
  using B = typename L::Backend;
  using BlockScales = typename L::BlockScales;
  static constexpr int tiles = L::tiles;
  Vec<const float*, 2 * tiles> of_a;
  Vec<const float*, BlockScales::of_b> of_b;
  std::int64_t a_step, b_step;
  std::int32_t left;

  TILEWAVE_DEVICE GemmScaleReader(const GemmArgs& a, const GemmTile& tile, int wave_group,
                                  typename L::Args::Steps steps)
      : a_step(a.a_scale_k_stride), b_step(a.b_scale_k_stride), left(steps.end - steps.first) {
    const float* const first_a = a.a_scale + tile.a_layer * a.a_scale_layer_stride + steps.first * a_step;
    TILEWAVE_UNROLL
    for (int i = 0; i < 2 * tiles; ++i) {
      const std::int32_t row = tile.first_row + L::tall_row(wave_group) + 64 * (i / 2) + 16 * L::wave_in_wave_group() +
                               B::lane_id() / 4 + 8 * (i % 2);
      of_a[i] = first_a + gemm_row_of_a<B, S>(a, min_of(row, tile.row_end - 1)) * a.a_scale_stride;
    }
    TILEWAVE_UNROLL
    for (int i = 0; i < BlockScales::of_b; ++i) {
      of_b[i] = L::scales_of_b(a, tile, L::wide_row(wave_group) + BlockScales::b_columns * i) + steps.first * b_step;
    }
  }
  /// Loads the scales of the next stage, where there is one.
  TILEWAVE_DEVICE void next(BlockScales& s) {
    if (--left < 0) return;
    TILEWAVE_UNROLL
    for (int i = 0; i < 2 * tiles; ++i) {
      s.a_scale[i] = B::load(of_a[i]);
      of_a[i] += a_step;
    }
    TILEWAVE_UNROLL
    for (int i = 0; i < BlockScales::of_b; ++i) {
      s.b_scale[i] = B::load(of_b[i]);
      of_b[i] += b_step;
    }
  }
};

/// The scales of sums that are promoted without a scale.
struct GemmNoScales {
  struct Products {
    TILEWAVE_DEVICE static constexpr float of(int, int) { return 1.0f; }
  };
  TILEWAVE_DEVICE static constexpr float of(int, int) { return 1.0f; }
  TILEWAVE_DEVICE static Products products() { return {}; }
};
struct GemmNoScaleReader {
  template <class Steps>
  TILEWAVE_DEVICE GemmNoScaleReader(const GemmArgs&, const GemmTile&, int, Steps) {}
  template <class Scales>
  TILEWAVE_DEVICE void next(Scales&) const {}
};

}  // namespace tilewave
