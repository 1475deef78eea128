// SPDX-License-Identifier: MIT
// The end of kernels of few rows: sums of waves are added up in order and written.
#pragma once

#include "tilewave/ops/gemm/epilogue.hpp"

namespace tilewave {

/// Elements 2 h and 2 h + 1 of lane l's atom have column 2 (l / 4) + h of the strip. Their rows of the panel are
/// 2 (l % 4) and the next one. Item i is lane i % lanes of panel i / lanes % panels, then strips.
template <class L, GemmSpec S, class UserEpilogue>
struct GemmFewRowsOutput {
  using B = typename L::Backend;
  using Args = typename L::Args;
  using Sums = typename L::Sums;
  using Atom = typename L::Atom;
  using Epilogue = GemmEpilogue<B, S, UserEpilogue>;
  static constexpr int lanes = L::lanes, panels = L::panels, block_threads = L::block_threads;

  struct InTile {
    int row, column;
  };
  /// Adds up the sums of all waves of a group in their order, and writes them. `count`: strips of C of the block.
  TILEWAVE_DEVICE static void finish(const Args& a, const GemmTile& tile, int count, const Sums& sums) {
    const GemmArgs gemm = L::epilogue_args(a);
    const float factor = Epilogue::out_factor(gemm);
    const int items = count * panels * lanes;
    TILEWAVE_ROLL
    for (int i = B::block_lane_id(); i < items; i += block_threads) {
      if (tile.first_row + row_of(i) >= a.m) continue;
      write(a, gemm, tile, i, factor, sum_of_waves(i, count, sums));
    }
  }
  /// The first of the two rows of item i: lane i % lanes of panel i / lanes % panels, then strips.
  TILEWAVE_DEVICE static int row_of(int i) { return 8 * (i / lanes % panels) + 2 * (i % 4); }
  struct Halves {
    Vec<float, 4> of[L::halves];
  };
  TILEWAVE_DEVICE static Halves sum_of_waves(int i, int count, const Sums& sums) {
    const int lane = i % lanes, panel = i / lanes % panels, strip = i / lanes / panels;
    const int group = L::groups == 1 ? 0 : ((strip + 1) * L::groups - 1) / count,
              of_group = strip - L::first_of_group(count, group);
    constexpr int at_once = L::sums_at_once;
    static_assert(L::waves % at_once == 0, "sums of all waves are added up, so many at a time");
    Halves merged{};
    TILEWAVE_ROLL
    for (int w = 0; w < L::waves; w += at_once) {
      TILEWAVE_UNROLL
      for (int i = 0; i < at_once; ++i) {
        TILEWAVE_UNROLL
        for (int half = 0; half < L::halves; ++half) {
          const Atom wave_sums = sums[group][w + i][half * L::group_strips + of_group][panel][lane];
          TILEWAVE_UNROLL
          for (int e = 0; e < 4; ++e) merged.of[half][e] += wave_sums[e];
        }
      }
    }
    return merged;
  }
  TILEWAVE_DEVICE static void write(const Args& a, const GemmArgs& gemm, const GemmTile& tile, int i, float factor,
                                    Halves merged) {
    const InTile first{row_of(i), 16 * (i / lanes / panels) + 2 * (i % lanes / 4)};
    const auto at = [&](int e) TILEWAVE_INLINE_LAMBDA { return InTile{first.row + e % 2, first.column + e / 2}; };
    Epilogue::apply(gemm, a.epilogue, tile, merged.of, at);
    TILEWAVE_UNROLL
    for (int r = 0; r < 2; ++r) {
      const Vec<float, 2> pair{{merged.of[0][r] * factor, merged.of[0][2 + r] * factor}};
      const std::int32_t row = tile.first_row + first.row + r, column = tile.first_column + first.column;
      if (row >= a.m) continue;
      if constexpr (size_of(S.out) > 1) {
        if (a.wide && (L::whole_strips || column + 1 < a.n)) {
          Epilogue::store(gemm, tile, row, column, pair);
          continue;
        }
      }
      TILEWAVE_UNROLL
      for (int c = 0; c < 2; ++c)
        if (L::whole_strips || column + c < a.n) Epilogue::store(gemm, tile, row, column + c, Vec<float, 1>{{pair[c]}});
    }
  }
};

}  // namespace tilewave
