// SPDX-License-Identifier: MIT
// MX scales: a step is 128 k, of which a row has four. They lie as shuffled_scale says: 32 rows by 8 groups of 32 k are
// a tile of 64 words, and a step's are half of the bytes of each word.
#pragma once

#include "tilewave/ops/gemm/wave_tile/block_scales.hpp"

namespace tilewave {

/// What both kernels have in common.
template <class W>
struct GemmMxProducts {
  using B = typename W::Backend;
  using Map = typename W::Map;
  struct OfStep {};
  struct OfPiece {
    std::uint32_t a[W::tiles_m], b[W::tiles_n];  // in the low bytes
  };
  static constexpr int tile_bytes = 256, tile_rows = 32, step_groups = 4;
  static_assert(W::step_k == step_groups * mx_group, "a step has four scales of each row");

  /// From a tile of scales to the one of the next rows; those of the next k lie beside it.
  TILEWAVE_DEVICE static std::int32_t stride(std::int32_t k) { return ceil_div(k, 8 * mx_group) * tile_bytes; }
  /// Where the word of a row and of one of a step's groups is in its tile, and which byte is the row's in this step.
  TILEWAVE_DEVICE static int word(int row, int group) { return (group * 16 + row % 16) * 4; }
  TILEWAVE_DEVICE static int byte(int row, std::int32_t step) { return (step & 1) * 2 + row % tile_rows / 16; }
  /// Of the 32 k of this lane in a piece.
  TILEWAVE_DEVICE static int group(int piece) { return piece * Map::units + Map::unit(B::lane_id()); }

  template <int m, int n>
  TILEWAVE_DEVICE static void multiply(const OfPiece& of, const Chunk (&kv)[Map::chunks_b],
                                       const Chunk (&rows)[Map::chunks_a], typename W::Sums& sums) {
    const std::uint32_t of_kv[] = {of.b[n]}, of_rows[] = {of.a[m]};
    B::template multiply_mx<W::spec.b, W::spec.a, W::side>(kv, rows, of_kv, of_rows, sums);
  }
  TILEWAVE_DEVICE void fold(const OfStep&, typename W::AllSums&) const {}
  TILEWAVE_DEVICE typename W::AllSums& sums_of_step(typename W::AllSums& sums) const { return sums; }
};

/// Through LDS: whole tiles come with A's rows of their step, each wave copies one of A's and, of as many as there are,
/// one of B's.
template <class W>
requires(W::spec.scale == Scaling::mx) struct GemmStepScales<W, true> : GemmMxProducts<W> {
  using Base = GemmMxProducts<W>;
  using Base::tile_bytes, Base::tile_rows;
  using typename Base::B, typename Base::Map, typename Base::OfPiece, typename Base::OfStep;
  static constexpr int copies = 2, reads = W::tiles_m + W::tiles_n;  // of a wave for a step; for a piece
  static_assert(W::side == tile_rows, "a product's 32 rows have one tile of scales");
  struct Places {
    std::uint8_t of_a[W::waves][tile_bytes], of_b[W::waves][tile_bytes];
  };
  template <int slots>
  struct InLds {
    alignas(16) Places scales[slots];
  };

  template <class Shared>
  TILEWAVE_DEVICE GemmStepScales(const typename W::Args& args, const GemmTile& tile, Shared& shared)
      : places_(shared.scales), steps_(args.k_steps), groups_(args.gemm.k / mx_group) {
    const GemmArgs& g = args.gemm;
    const int lane = B::lane_id(), row = Map::row(lane);
    const auto find = [&](Tile& to, const std::uint8_t* base, const auto& rows) TILEWAVE_INLINE_LAMBDA {
      const int in_tile = B::wave_id() * tile_rows;
      to.base = base + rows.first / tile_rows * std::int64_t{Base::stride(g.k)};
      to.offset = rows.has(in_tile)
                      ? static_cast<std::uint32_t>(rows.row(in_tile) / tile_rows * Base::stride(g.k)) + lane * 4
                      : B::Source::nowhere;
    };
    find(a_, g.a_mx_scale + tile.a_layer * g.a_scale_layer_stride, typename W::RowsOfA(g, tile));
    find(b_, g.b_mx_scale + tile.layer * g.b_scale_layer_stride, typename W::RowsOfB(g, tile));
    TILEWAVE_UNROLL
    for (int p = 0; p < pieces; ++p) {
      const int group = Map::by_lane ? Map::unit(lane) * pieces + p : Base::group(p);
      at_[p] = Base::word(row, group) + Base::byte(row, 0);
    }
  }

  template <int i>
  TILEWAVE_DEVICE void copy(std::int32_t step, int slot) const {
    const Tile& tile = i == 0 ? a_ : b_;
    Places& to = places_[slot];
    typename B::Source{tile.base, B::Source::nowhere - 4}.copy_word(
        (i == 0 ? to.of_a : to.of_b)[B::wave_id()], tile.offset, (min_of(step, steps_ - 1) >> 1) * tile_bytes);
  }
  template <int i>
  TILEWAVE_DEVICE void read(OfPiece& to, std::int32_t step, int slot, int piece) const {
    const int at = at_[piece] + Base::byte(0, step);
    if constexpr (i < W::tiles_n) {
      to.b[i] = places_[slot].of_b[W::first_column() / tile_rows + i][at];
    } else {
      to.a[i - W::tiles_n] = places_[slot].of_a[W::first_row() / tile_rows + i - W::tiles_n][at];
    }
  }
  TILEWAVE_DEVICE OfStep load(std::int32_t, int) const { return {}; }

  /// What pads the scales of the last groups may be NaN, which no 0 makes right.
  TILEWAVE_DEVICE bool ends_within(std::int32_t step) const { return (step + 1) * Base::step_groups > groups_; }
  TILEWAVE_DEVICE void clean(std::int32_t step, int slot) const {
    auto* const words = reinterpret_cast<std::uint32_t*>(&places_[slot]);
    for (int i = B::block_lane_id(); i < static_cast<int>(sizeof(Places) / 4); i += W::block_threads)
      if (step * Base::step_groups + i / 16 % Base::step_groups >= groups_) words[i] = 0;
  }

 private:
  static constexpr int pieces = Base::step_groups / Map::units;
  struct Tile {
    const std::uint8_t* base;
    std::uint32_t offset;
  };
  Places* places_;
  Tile a_, b_;  // which this wave copies
  std::int32_t steps_, groups_;
  int at_[pieces];  // of this lane's codes in a tile
};

/// Straight to registers.
template <class W>
requires(W::spec.scale == Scaling::mx) struct GemmStepScales<W, false> : GemmMxProducts<W> {
  using Base = GemmMxProducts<W>;
  using typename Base::B, typename Base::Map, typename Base::OfPiece;
  static constexpr int pieces = Base::step_groups / Map::units;
  struct OfStep {
    std::uint32_t a[W::tiles_m][pieces], b[W::tiles_n][pieces];  // with the codes of other rows and steps
    std::int32_t step;
  };

  template <class Shared>
  TILEWAVE_DEVICE GemmStepScales(const typename W::Args& args, const GemmTile& tile, Shared&)
      : groups_(args.gemm.k / mx_group) {
    const GemmArgs& g = args.gemm;
    const typename W::RowsOfA rows_a(g, tile);
    const typename W::RowsOfB rows_b(g, tile);
    const auto base = [&](const std::uint8_t* of, std::int64_t layer, std::int32_t first) TILEWAVE_INLINE_LAMBDA {
      return of + layer + first / Base::tile_rows * std::int64_t{Base::stride(g.k)};
    };
    a_ = base(g.a_mx_scale, tile.a_layer * g.a_scale_layer_stride, rows_a.first);
    b_ = base(g.b_mx_scale, tile.layer * g.b_scale_layer_stride, rows_b.first);
    const auto find = [&](Row& to, const auto& rows, int in_tile) TILEWAVE_INLINE_LAMBDA {
      const std::int32_t row = rows.first % Base::tile_rows + (rows.has(in_tile) ? rows.row(in_tile) : 0);
      to.at = static_cast<std::uint32_t>(row / Base::tile_rows) * Base::stride(g.k) + Base::word(row, 0);
      to.shift = Base::byte(row, 0) * 8;
    };
    const int row = Map::row(B::lane_id());
    TILEWAVE_UNROLL
    for (int i = 0; i < W::tiles_m; ++i) find(of_a_[i], rows_a, W::first_row() + i * W::side + row);
    TILEWAVE_UNROLL
    for (int i = 0; i < W::tiles_n; ++i) find(of_b_[i], rows_b, W::first_column() + i * W::side + row);
  }

  TILEWAVE_DEVICE OfStep load(std::int32_t step, int = 0) const {
    OfStep scales;
    scales.step = step;
    TILEWAVE_UNROLL
    for (int p = 0; p < pieces; ++p) {
      // Beyond K are zeros times any scale that is not NaN for being none.
      const int group = min_of(Base::group(p), groups_ - 1 - step * Base::step_groups);
      const std::uint32_t at = (step >> 1) * Base::tile_bytes + Base::word(0, group);
      const auto word = [&](const std::uint8_t* base, const Row& row) TILEWAVE_INLINE_LAMBDA {
        return B::load(reinterpret_cast<const std::uint32_t*>(base + (row.at + at)));
      };
      TILEWAVE_UNROLL
      for (int i = 0; i < W::tiles_m; ++i) scales.a[i][p] = word(a_, of_a_[i]);
      TILEWAVE_UNROLL
      for (int i = 0; i < W::tiles_n; ++i) scales.b[i][p] = word(b_, of_b_[i]);
    }
    return scales;
  }
  TILEWAVE_DEVICE OfPiece of_piece(const OfStep& of, int piece) const {
    OfPiece codes;
    const int shift = Base::byte(0, of.step) * 8;
    TILEWAVE_UNROLL
    for (int i = 0; i < W::tiles_m; ++i) codes.a[i] = of.a[i][piece] >> (of_a_[i].shift + shift);
    TILEWAVE_UNROLL
    for (int i = 0; i < W::tiles_n; ++i) codes.b[i] = of.b[i][piece] >> (of_b_[i].shift + shift);
    return codes;
  }
  TILEWAVE_DEVICE void fold(const OfStep&, typename W::AllSums&) const {}

 private:
  struct Row {
    std::uint32_t at;  // of this lane's words, from a_ or b_
    int shift;         // to the row's byte
  };
  const std::uint8_t *a_, *b_;
  std::int32_t groups_;
  Row of_a_[W::tiles_m], of_b_[W::tiles_n];
};

}  // namespace tilewave
