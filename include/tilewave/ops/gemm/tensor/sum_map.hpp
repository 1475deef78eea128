// SPDX-License-Identifier: MIT
// Where a lane's sums of GemmTensorKernel are in their tile, and how those of blocks that share its K become one:
// through shared memory of a cluster, or through the workspace.
#pragma once

#include "tilewave/ops/gemm/tensor/layout.hpp"

namespace tilewave {

template <class B, GemmSpec S, GemmPolicy P, class UserEpilogue>
class GemmSumMap {
 public:
  using L = GemmTensorLayout<B, S, P, UserEpilogue>;
  using Args = typename L::Args;
  using Shared = typename L::Shared;
  using Sums = typename L::Sums;
  using Epilogue = GemmEpilogue<B, S, UserEpilogue>;
  static constexpr bool quantised = S.out_scale != Scaling::none, per_group = Epilogue::per_group;

  /// Blocks of a cluster have a share of K each. Each sums a part of the tile, in the order of ranks, and writes it.
  /// The ring is empty then: such a block has one tile only. The fetching group comes along, see `join_merge`.
  TILEWAVE_DEVICE void merge(const Args& a, const GemmTile& tile, int rank, int group, Shared& shared,
                             Sums (&sums)[L::tiles]) {
    join_merge_of_products();
    out_factor_ = Epilogue::out_factor(a.gemm);
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
    join_merge_of_partials();
    constexpr int lanes = L::groups * L::group_lanes;
    const int splits = a.gemm.splits;
    for (int i = rank * lanes + B::block_lane_id(); i < pieces; i += splits * lanes) {
      write_piece(a, tile, i, [&](InTile first, int half) TILEWAVE_INLINE_LAMBDA {
        Vec<Sum, piece> all{};
        for (int r = 0; r < splits; ++r) {
          const auto part = *reinterpret_cast<const Vec<Sum, piece>*>(B::remote(own + place(first, half), r));
          TILEWAVE_UNROLL
          for (int e = 0; e < piece; ++e) all[e] += part[e];
        }
        return all;
      });
    }
  }
  /// What the other waves of a block that merges do meanwhile.
  TILEWAVE_DEVICE static void join_merge() {
    join_merge_of_products();
    join_merge_of_partials();
  }

  static constexpr int piece = 4, pieces = P.rows * gemm_tile_columns(S, P) / piece;  // neighbours of a row of a tile

  /// Partial sums of a tile, to where those who add them up will find number `aside`.
  TILEWAVE_DEVICE void store_partial(const Args& a, std::int32_t aside, int group, const Sums (&sums)[L::tiles]) {
    using Sum = typename L::Sum;
    Sum* const to = a.partial + aside * std::int64_t{P.rows * P.columns};
    TILEWAVE_UNROLL
    for (int half = 0; half < L::halves; ++half) {
      TILEWAVE_UNROLL
      for (int t = 0; t < tiles_c; ++t) {
        TILEWAVE_UNROLL
        for (int i = 0; i < wide_c / 2; i += 2) {  // two neighbours of the wide side
          const Vec<Sum, 2> two{{sum_of(sums, half, t, i), sum_of(sums, half, t, i + 1)}};
          if constexpr (P.swapped) {
            B::store(to + place<P.columns>(element(group, t, i), half), two[0]);
            B::store(to + place<P.columns>(element(group, t, i + 1), half), two[1]);
          } else {
            B::store(reinterpret_cast<Vec<Sum, 2>*>(to + place<P.columns>(element(group, t, i), half)), two);
          }
        }
      }
    }
  }
  /// Piece i of a tile whose sums were put aside, added up in their order.
  TILEWAVE_DEVICE void gather(const Args& a, const GemmTile& tile, const GemmStream::Parts& parts, int i) {
    using Sum = typename L::Sum;
    out_factor_ = Epilogue::out_factor(a.gemm);
    write_piece(a, tile, i, [&](InTile at, int half) TILEWAVE_INLINE_LAMBDA {
      Vec<Sum, piece> all{};
      constexpr std::int64_t size = P.rows * P.columns;
      const Sum* from = a.partial + parts.first * size + place<P.columns>(at, half);
      const std::int64_t stride = a.stream.group.divisor * size;
      for (std::int32_t part = 0; part < parts.count; ++part, from += stride) {
        const auto some = B::load(reinterpret_cast<const Vec<Sum, piece>*>(from));
        TILEWAVE_UNROLL
        for (int e = 0; e < piece; ++e) all[e] += some[e];
      }
      return all;
    });
  }

 protected:
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
  template <int stride = partial_stride>
  TILEWAVE_DEVICE static int place(InTile e, int half) {
    return e.row * stride + half * columns + e.column;
  }
  TILEWAVE_DEVICE float scaled(float value) const { return quantised ? value * out_factor_ : value; }
  /// Of a row's columns from `first` in the tile on, among neighbouring `lanes`: what they are multiplied by, whose
  /// inverse is kept.
  template <int lanes>
  TILEWAVE_DEVICE static float keep_scale(const Args& a, const GemmTile& tile, int row, int first, float largest) {
    largest = B::template reduce<lanes>(largest, Max{});
    const std::int32_t in_layer = tile.first_row + row, column = tile.first_column + first;
    if (B::lane_id() % lanes == 0 && in_layer < tile.row_end && column < a.gemm.n)
      Epilogue::store_scale(a.gemm, tile, in_layer, column, largest);
    return quant_factor(S.out, largest);
  }

  TILEWAVE_DEVICE static void store(const Args& a, const GemmTile& tile, InTile at, float value) {
    const std::int32_t row = tile.first_row + at.row, column = tile.first_column + at.column;
    if (row < tile.row_end && column < a.gemm.n) Epilogue::store(a.gemm, tile, row, column, Vec<float, 1>{{value}});
  }

  float out_factor_ = 1.0f;

 private:
  TILEWAVE_DEVICE static void join_merge_of_products() { B::barrier(); }  // all products are done with the ring
  TILEWAVE_DEVICE static void join_merge_of_partials() {
    B::cluster_arrive();
    B::cluster_wait();
  }

  /// Piece i of a tile, of which `sums_of(first, half)` has the sums of all who share its K.
  template <class SumsOf>
  TILEWAVE_DEVICE void write_piece(const Args& a, const GemmTile& tile, int i, const SumsOf& sums_of) {
    const InTile first{i / (columns / piece), i % (columns / piece) * piece};
    Vec<float, piece> values[L::halves];
    TILEWAVE_UNROLL
    for (int half = 0; half < L::halves; ++half) values[half] = as_floats(sums_of(first, half));
    const auto at = [&](int e) TILEWAVE_INLINE_LAMBDA { return InTile{first.row, first.column + e}; };
    Epilogue::apply(a.gemm, a.epilogue, tile, values, at);
    if constexpr (per_group) {  // of which a wave has one
      static_assert(scale_group == piece * B::facts.wave_lanes, "a wave has one group of 128 columns of a row");
      float largest = 0.0f;
      TILEWAVE_UNROLL
      for (int e = 0; e < piece; ++e)
        largest = Epilogue::amax(a.gemm, tile.first_column + at(e).column, largest, values[0][e]);
      out_factor_ =
          keep_scale<B::facts.wave_lanes>(a, tile, first.row, first.column / scale_group * scale_group, largest);
    }
    TILEWAVE_UNROLL
    for (int e = 0; e < piece; ++e) store(a, tile, at(e), scaled(values[0][e]));
  }
};

}  // namespace tilewave
