// SPDX-License-Identifier: MIT
// How GemmTensorKernel's sums leave: as boxes that the copy engine writes, or where it cannot, element by element.
#pragma once

#include "tilewave/ops/gemm/tensor_layout.hpp"

namespace tilewave {

template <class B, GemmSpec S, GemmPolicy P, class UserEpilogue>
struct GemmTensorOutput {
  using L = GemmTensorLayout<B, S, P, UserEpilogue>;
  using Args = typename L::Args;
  using Shared = typename L::Shared;
  using Sums = typename L::Sums;
  using Epilogue = GemmEpilogue<B, S, UserEpilogue>;
  static constexpr bool boxes = S.out != DType::f32;  // 16-bit elements, as store_matrices has them

  TILEWAVE_DEVICE GemmTensorOutput(const Args&, int, Shared&) {}

  /// By all lanes of a group.
  TILEWAVE_DEVICE void write(const Args& a, const GemmTile& tile, int group, Shared& shared, Sums (&sums)[L::tiles]) {
    // A group's rows end where the next group's begin, which a box would overwrite.
    TILEWAVE_UNROLL
    for (int t = 0; t < L::tiles; ++t) {
      Epilogue::apply(a.gemm, a.epilogue, tile, sums[t],
                      [&](int i) TILEWAVE_INLINE_LAMBDA { return element(group, t, i); });
    }
    if (boxes && a.out_by_boxes) {
      if constexpr (boxes) write_boxes(a, tile, group, shared, sums);
    } else {
      write_elements(a, tile, group, sums);
    }
  }
  TILEWAVE_DEVICE void finish() {
    if (boxes && writer()) B::template stores_read<0>();
  }

  /// Blocks of a cluster have a share of K each. Each sums a part of the tile, in the order of ranks, and writes it. The
  /// ring is empty then: such a block has one tile only. The fetching group comes along, see `accompany`.
  TILEWAVE_DEVICE void merge(const Args& a, const GemmTile& tile, int rank, int group, Shared& shared,
                             Sums (&sums)[L::tiles]) {
    static_assert(P.splits == 1 ||
                  P.rows * partial_stride * sizeof(float) <= sizeof(shared.tall) + sizeof(shared.wide));
    accompany_products();
    float* const own = reinterpret_cast<float*>(shared.tall);
    TILEWAVE_UNROLL
    for (int t = 0; t < L::tiles; ++t) {
      TILEWAVE_UNROLL
      for (int i = 0; i < Sums::size; ++i) own[place(element(group, t, i))] = sums[t][i];
    }
    accompany_partials();
    constexpr int width = 4, lanes = L::groups * L::group_lanes, pieces = P.rows * P.columns / width;
    const int splits = a.gemm.splits;
    for (int i = rank * lanes + B::block_lane_id(); i < pieces; i += splits * lanes) {
      const InTile first{i / (P.columns / width), i % (P.columns / width) * width};
      Vec<float, width> values{};
      for (int r = 0; r < splits; ++r) {
        const auto part = *reinterpret_cast<const Vec<float, width>*>(B::remote(own + place(first), r));
        TILEWAVE_UNROLL
        for (int e = 0; e < width; ++e) values[e] += part[e];
      }
      const auto at = [&](int e) TILEWAVE_INLINE_LAMBDA { return InTile{first.row, first.column + e}; };
      Epilogue::apply(a.gemm, a.epilogue, tile, values, at);
      TILEWAVE_UNROLL
      for (int e = 0; e < width; ++e) store(a, tile, at(e), values[e]);
    }
  }
  /// What the other waves of a block that merges do meanwhile.
  TILEWAVE_DEVICE static void accompany() {
    accompany_products();
    accompany_partials();
  }

 private:
  struct InTile {
    int row, column;  // of C
  };
  /// Where element i of tile t of this lane is.
  TILEWAVE_DEVICE static InTile element(int group, int t, int i) {
    const int lane = B::lane_id(), wave = L::group_wave();
    const int tall = L::tall_row(group) + 64 * t + 16 * wave + lane / 4 + 8 * (i / 2 % 2);
    const int wide = L::wide_row(group) + 8 * (i / 4) + 2 * (lane % 4) + i % 2;
    return P.swapped ? InTile{wide, tall} : InTile{tall, wide};
  }
  /// Sums of a tile as rows of C, so that columns are written side by side; a little apart for the sake of the banks.
  static constexpr int partial_stride = P.columns + 4;
  TILEWAVE_DEVICE static int place(InTile e) { return e.row * partial_stride + e.column; }
  TILEWAVE_DEVICE static void accompany_products() { B::barrier(); }  // all products are done with the ring
  TILEWAVE_DEVICE static void accompany_partials() {
    B::cluster_arrive();
    B::cluster_wait();
  }

  TILEWAVE_DEVICE static bool writer() { return L::group_lane() == 0; }

  /// A box at a time: 64 columns of C of a tile of 64 rows, or (swapped) all rows of 64 columns.
  TILEWAVE_DEVICE void write_boxes(const Args& a, const GemmTile& tile, int group, Shared& shared,
                                   Sums (&sums)[L::tiles]) {
    const int lane = B::lane_id(), wave = L::group_wave();
    TILEWAVE_UNROLL
    for (int t = 0; t < L::tiles; ++t) {
      constexpr int box_wide = P.swapped ? L::group_wide : 64;
      TILEWAVE_UNROLL
      for (int from = 0; from < L::group_wide; from += box_wide) {
        Chunk* const box = shared.out[group][next_box_];
        next_box_ = (next_box_ + 1) % L::out_boxes;
        if (writer()) B::template stores_read<L::out_boxes - 1>();
        B::group_barrier();
        TILEWAVE_UNROLL
        for (int j = 0; j < box_wide / 8 && from / 8 + j < L::group_wide / 8; j += 2) {
          const int count = min_of(2, L::group_wide / 8 - from / 8 - j);
          Vec<std::uint32_t, 4> words{};
          TILEWAVE_UNROLL
          for (int m = 0; m < 2 * count; ++m) {
            const int i = 4 * (from / 8 + j + m / 2) + 2 * (m % 2);
            words[m] = Epilogue::pack(sums[t][i], sums[t][i + 1]);
          }
          // Matrix m is 8 columns of the wide side, j + m / 2, by 8 rows of the tall side, 16 wave + 8 (m % 2).
          const int m = lane / 8;
          if constexpr (P.swapped) {
            const int row = min_of(8 * (j + m / 2), L::group_wide - 8) + lane % 8, unit = 2 * wave + m % 2;
            if (count == 2) {
              B::template store_matrices<4>(box + row * 8 + (unit ^ row % 8), words);
            } else {
              B::template store_matrices<2>(box + row * 8 + (unit ^ row % 8),
                                            Vec<std::uint32_t, 2>{{words[0], words[1]}});
            }
          } else {
            const int row = 16 * wave + 8 * (m % 2) + lane % 8, unit = j + m / 2;
            B::template store_matrices_straight<4>(box + row * 8 + (unit ^ row % 8), words);
          }
        }
        B::shared_written();
        B::group_barrier();
        const std::int32_t row = tile.first_row + (P.swapped ? L::wide_row(group) : L::tall_row(group) + 64 * t);
        const std::int32_t column =
            tile.first_column + (P.swapped ? L::tall_row(group) + 64 * t : L::wide_row(group) + from);
        // A group's rows end where the next group's begin, and the last box of a tile may be narrower than a box.
        const int width = P.swapped ? 64 : min_of(64, L::group_wide - from);
        if (width == 64 && (S.groups == GemmGroups::one || row + L::out_rows <= tile.row_end)) {
          if (writer()) {
            if (column < a.gemm.n && row < tile.row_end) B::store_tensor(a.out, column, row, tile.a_layer, box);
            B::stores_end();
          }
        } else {
          copy_out(a, tile, row, column, width / 8, box);
        }
      }
    }
  }

  /// Rows of a box that the engine cannot write, 16 bytes a lane; only those that are the tile's.
  TILEWAVE_DEVICE static void copy_out(const Args& a, const GemmTile& tile, std::int32_t first_row,
                                       std::int32_t first_column, int units, const Chunk* box) {
    for (int i = L::group_lane(); i < L::out_rows * units; i += L::group_lanes) {
      const std::int32_t in_box = i / units, unit = i % units, row = first_row + in_box,
                         column = first_column + 8 * unit;
      if (row >= tile.row_end || column >= a.gemm.n) continue;
      const Chunk values = box[in_box * 8 + (unit ^ in_box % 8)];
      auto* const to = static_cast<std::uint16_t*>(a.gemm.out) + tile.a_layer * a.gemm.out_layer_stride +
                       row * a.gemm.out_stride + column;
      if (column + 8 <= a.gemm.n) {
        B::store(reinterpret_cast<Chunk*>(to), values);
      } else {
        for (int e = 0; e < a.gemm.n - column; ++e)
          B::store(to + e, static_cast<std::uint16_t>(values[e / 2] >> 16 * (e % 2)));
      }
    }
  }

  TILEWAVE_DEVICE static void write_elements(const Args& a, const GemmTile& tile, int group, Sums (&sums)[L::tiles]) {
    TILEWAVE_UNROLL
    for (int t = 0; t < L::tiles; ++t) {
      TILEWAVE_UNROLL
      for (int i = 0; i < Sums::size; ++i) store(a, tile, element(group, t, i), sums[t][i]);
    }
  }
  TILEWAVE_DEVICE static void store(const Args& a, const GemmTile& tile, InTile at, float value) {
    const std::int32_t row = tile.first_row + at.row, column = tile.first_column + at.column;
    if (row < tile.row_end && column < a.gemm.n) Epilogue::store(a.gemm, tile, row, column, value);
  }

  int next_box_ = 0;
};

}  // namespace tilewave
