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

  static constexpr bool row_scales = S.scale == GemmScale::row;

  /// By all lanes of a group, before a tile's products: the scales it will need are on their way meanwhile. The tall
  /// side's stay with the lanes, the wide side's are the group's.
  TILEWAVE_DEVICE void begin(const Args& a, const GemmTile& tile, int group) {
    if constexpr (row_scales) {
      TILEWAVE_UNROLL
      for (int i = 0; i < 2 * L::tiles; ++i) {
        const InTile at = element(group, i / 2 % tiles_c, 2 * (i % 2));
        tall_scale_[i] = P.swapped ? Epilogue::column_scale(a.gemm, tile, at.column, i / 2 / tiles_c)
                                   : Epilogue::row_scale(a.gemm, tile, at.row);
      }
      TILEWAVE_UNROLL
      for (int r = 0; r < rounds; ++r) {
        const int wide = L::wide_row(group) + min_of(r * L::group_lanes + L::group_lane(), L::group_wide - 1);
        using Rows = typename L::TileRows;
        wide_scale_[r] = P.swapped ? Epilogue::row_scale(a.gemm, tile, wide)
                                   : Epilogue::column_scale(a.gemm, tile, Rows::column(wide), Rows::half(wide));
      }
    }
  }

  /// By all lanes of a group.
  TILEWAVE_DEVICE void write(const Args& a, const GemmTile& tile, int group, Shared& shared, Sums (&sums)[L::tiles]) {
    factor_ = Epilogue::tensor_scale(a.gemm);
    if constexpr (row_scales) {
      TILEWAVE_UNROLL
      for (float& scale : tall_scale_) scale *= factor_;
      B::group_barrier();  // the tile before has been written
      TILEWAVE_UNROLL
      for (int r = 0; r < rounds; ++r) {
        const int at = r * L::group_lanes + L::group_lane();
        if (at < L::group_wide) shared.wide_scale[group][at] = wide_scale_[r];
      }
      B::group_barrier();
    }
    // The common case apart: its code is read anew for every tile, and what it jumps over would be read with it.
    if (boxes && a.wide_stores && a.gemm.bias == nullptr && a.gemm.residual == nullptr) {
      write_parts<false>(a, tile, group, shared, sums);
    } else {
      write_parts<true>(a, tile, group, shared, sums);
    }
  }
  TILEWAVE_DEVICE void finish() {
    if (boxes && L::team_lane() == 0) B::template stores_read<0>();
  }

  /// Blocks of a cluster have a share of K each. Each sums a part of the tile, in the order of ranks, and writes it.
  /// The ring is empty then: such a block has one tile only. The fetching group comes along, see `accompany`.
  TILEWAVE_DEVICE void merge(const Args& a, const GemmTile& tile, int rank, int group, Shared& shared,
                             Sums (&sums)[L::tiles]) {
    static_assert(P.splits == 1 ||
                  P.rows * partial_stride * sizeof(typename L::Sum) <= sizeof(shared.tall) + sizeof(shared.wide));
    accompany_products();
    using Sum = typename L::Sum;
    Sum* const own = reinterpret_cast<Sum*>(shared.tall);
    TILEWAVE_UNROLL
    for (int half = 0; half < L::halves; ++half) {
      TILEWAVE_UNROLL
      for (int t = 0; t < tiles_c; ++t) {
        TILEWAVE_UNROLL
        for (int i = 0; i < wide_c / 2; ++i) own[place(element(group, t, i), half)] = sum_of(sums, half, t, i);
      }
    }
    accompany_partials();
    constexpr int width = 4, lanes = L::groups * L::group_lanes, pieces = P.rows * columns / width;
    const int splits = a.gemm.splits;
    for (int i = rank * lanes + B::block_lane_id(); i < pieces; i += splits * lanes) {
      const InTile first{i / (columns / width), i % (columns / width) * width};
      Vec<float, width> values[L::halves];
      TILEWAVE_UNROLL
      for (int half = 0; half < L::halves; ++half) {
        Vec<Sum, width> all{};
        for (int r = 0; r < splits; ++r) {
          const auto part = *reinterpret_cast<const Vec<Sum, width>*>(B::remote(own + place(first, half), r));
          TILEWAVE_UNROLL
          for (int e = 0; e < width; ++e) all[e] += part[e];
        }
        values[half] = as_floats(all);
      }
      const auto at = [&](int e) TILEWAVE_INLINE_LAMBDA { return InTile{first.row, first.column + e}; };
      Epilogue::apply(a.gemm, a.epilogue, tile, values, at);
      TILEWAVE_UNROLL
      for (int e = 0; e < width; ++e) store(a, tile, at(e), values[0][e]);
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
  // Of a gated spec tiles (swapped) or elements are those of gates, then those of their ups.
  static constexpr int columns = gemm_tile_columns(S, P);
  static constexpr int tiles_c = P.swapped ? L::tiles / L::halves : L::tiles;
  static constexpr int wide_c = P.swapped ? L::group_wide : L::group_wide / L::halves;
  TILEWAVE_DEVICE static int first_tall(int group) { return L::tall_row(group) / (P.swapped ? L::halves : 1); }
  TILEWAVE_DEVICE static int first_wide(int group) { return L::wide_row(group) / (P.swapped ? 1 : L::halves); }
  TILEWAVE_DEVICE static typename L::Sum sum_of(const Sums (&sums)[L::tiles], int half, int t, int i) {
    return P.swapped ? sums[t + half * tiles_c][i] : sums[t][i + half * wide_c / 2];
  }

  /// Where element i of tile t of this lane is.
  TILEWAVE_DEVICE static InTile element(int group, int t, int i) {
    const int lane = B::lane_id(), wave = L::group_wave();
    const int tall = first_tall(group) + 64 * t + 16 * wave + lane / 4 + 8 * (i / 2 % 2);
    const int wide = first_wide(group) + 8 * (i / 4) + 2 * (lane % 4) + i % 2;
    return P.swapped ? InTile{wide, tall} : InTile{tall, wide};
  }
  /// Sums of a tile as rows of C, so that columns are written side by side; a little apart for the sake of the banks.
  static constexpr int partial_stride = P.columns + 4;
  TILEWAVE_DEVICE static int place(InTile e, int half) { return e.row * partial_stride + half * columns + e.column; }
  TILEWAVE_DEVICE static void accompany_products() { B::barrier(); }  // all products are done with the ring
  TILEWAVE_DEVICE static void accompany_partials() {
    B::cluster_arrive();
    B::cluster_wait();
  }

  /// What one box holds: 64 columns of C, of a wave's rows or (swapped) of all of a group's. Values are worked out part
  /// by part: of a whole tile they would need more registers than sums leave.
  static constexpr int part_wide = P.swapped ? wide_c : 64;

  template <bool any>
  TILEWAVE_DEVICE void write_parts(const Args& a, const GemmTile& tile, int group, Shared& shared,
                                   Sums (&sums)[L::tiles]) {
    TILEWAVE_UNROLL
    for (int t = 0; t < tiles_c; ++t) {
      TILEWAVE_UNROLL
      for (int from = 0; from < wide_c; from += part_wide) {
        if (from + part_wide <= wide_c) {
          write_part<any, part_wide>(a, tile, group, shared, sums, t, from);
        } else {
          write_part<any, wide_c % part_wide>(a, tile, group, shared, sums, t, from);
        }
      }
    }
  }

  /// `wide` rows of the wide side, from `from` on, of tile t. `any`: with bias, residual or rows that are not aligned.
  template <bool any, int wide>
  TILEWAVE_DEVICE void write_part(const Args& a, const GemmTile& tile, int group, Shared& shared,
                                  const Sums (&sums)[L::tiles], int t, int from) {
    if constexpr (wide > 0) {
      Vec<float, wide / 2> parts[L::halves];
      TILEWAVE_UNROLL
      for (int half = 0; half < L::halves; ++half) {
        TILEWAVE_UNROLL
        for (int i = 0; i < wide / 2; ++i) parts[half][i] = static_cast<float>(sum_of(sums, half, t, from / 2 + i));
      }
      const Vec<float, wide / 2>& part = parts[0];
      const auto at = [&](int i) TILEWAVE_INLINE_LAMBDA { return element(group, t, from / 2 + i); };
      const float* const wide_scale =
          shared.wide_scale[row_scales ? group : 0] + (row_scales ? from + 2 * (B::lane_id() % 4) : 0);
      const auto scale_of = [&](int i, int half) TILEWAVE_INLINE_LAMBDA {
        if constexpr (!row_scales) return factor_;
        const int of_tall = 2 * (P.swapped ? t + half * tiles_c : t) + i / 2 % 2;
        return tall_scale_[of_tall] * wide_scale[8 * (i / 4) + i % 2 + (P.swapped ? 0 : half * wide_c)];
      };
      Epilogue::template apply<any>(a.gemm, a.epilogue, tile, parts, at, scale_of);
      if (boxes && (!any || a.wide_stores)) {
        if constexpr (boxes) write_box<wide>(a, tile, group, shared, part, t, from);
      } else {
        TILEWAVE_UNROLL
        for (int i = 0; i < wide / 2; ++i) store(a, tile, at(i), part[i]);
      }
    }
  }

  /// Through shared memory, as words of two neighbours of the wide side. A wave's box is its own: no other waits for
  /// it.
  template <int wide>
  TILEWAVE_DEVICE void write_box(const Args& a, const GemmTile& tile, int group, Shared& shared,
                                 const Vec<float, wide / 2>& part, int t, int from) {
    const int lane = B::lane_id(), wave = L::group_wave();
    Chunk* const box = shared.out[group][next_box_] + (P.swapped ? 0 : wave * L::out_rows * 8);
    next_box_ = (next_box_ + 1) % L::out_boxes;
    if (L::team_lane() == 0) B::template stores_read<L::out_boxes - 1>();
    L::team_barrier();
    TILEWAVE_UNROLL
    for (int j = 0; j < wide / 8; j += 2) {
      // Matrix m is rows 8 (j + m / 2) of the wide side by rows 16 wave + 8 (m % 2) of the tall side.
      const int m = lane / 8, pairs = min_of(2, wide / 8 - j);
      Vec<std::uint32_t, 4> words{};
      TILEWAVE_UNROLL
      for (int w = 0; w < 2 * pairs; ++w) {
        const int i = 4 * (j + w / 2) + 2 * (w % 2);
        words[w] = Epilogue::pack(part[i], part[i + 1]);
      }
      if constexpr (P.swapped) {
        const int row = 8 * min_of(j + m / 2, wide / 8 - 1) + lane % 8, unit = 2 * wave + m % 2;
        Chunk* const to = box + row * 8 + (unit ^ row % 8);
        if (pairs == 2) {
          B::template store_matrices<4>(to, words);
        } else {
          B::template store_matrices<2>(to, Vec<std::uint32_t, 2>{{words[0], words[1]}});
        }
      } else {
        static_assert(wide % 16 == 0);
        const int row = 8 * (m % 2) + lane % 8, unit = j + m / 2;
        B::template store_matrices_straight<4>(box + row * 8 + (unit ^ row % 8), words);
      }
    }
    B::shared_written();
    L::team_barrier();
    const std::int32_t row =
        tile.first_row + (P.swapped ? L::wide_row(group) : L::tall_row(group) + 64 * t + 16 * wave);
    const std::int32_t column = tile.first_column + (P.swapped ? first_tall(group) + 64 * t : first_wide(group) + from);
    // A group's rows end where the next group's begin, and the last box of a tile may be narrower.
    const bool whole_rows = S.groups == GemmGroups::one || row + L::out_rows <= tile.row_end;
    const bool whole_units = a.gemm.n % 8 == 0 || column + 64 <= a.gemm.n;  // as the engine writes them
    if ((P.swapped || wide == 64) && whole_rows && whole_units) {
      if (L::team_lane() == 0) {
        if (column < a.gemm.n && row < tile.row_end) B::store_tensor(a.out, column, row, tile.a_layer, box);
        B::stores_end();
      }
    } else {
      copy_out(a, tile, row, column, (P.swapped ? 64 : wide) / 8, box);
    }
  }

  /// Rows of a box that the engine cannot write, 16 bytes a lane; only those that are the tile's.
  TILEWAVE_DEVICE static void copy_out(const Args& a, const GemmTile& tile, std::int32_t first_row,
                                       std::int32_t first_column, int units, const Chunk* box) {
    for (int i = L::team_lane(); i < L::out_rows * units; i += L::team_lanes) {
      const std::int32_t in_box = i / units, unit = i % units;
      const std::int32_t row = first_row + in_box, column = first_column + 8 * unit;
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

  TILEWAVE_DEVICE static void store(const Args& a, const GemmTile& tile, InTile at, float value) {
    const std::int32_t row = tile.first_row + at.row, column = tile.first_column + at.column;
    if (row < tile.row_end && column < a.gemm.n) Epilogue::store(a.gemm, tile, row, column, value);
  }

  int next_box_ = 0;
  float factor_ = 1.0f;
  float tall_scale_[2 * L::tiles];  // of the lane's two rows of each tile
  static constexpr int rounds = ceil_div(L::group_wide, L::group_lanes);
  float wide_scale_[rounds];  // on their way to shared memory
};

}  // namespace tilewave
