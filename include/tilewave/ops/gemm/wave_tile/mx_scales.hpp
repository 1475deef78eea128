// SPDX-License-Identifier: MIT
// MX scales, which the product instruction takes beside its operands. A step is 128 k, for which a row has four scales
// of 32 k each. They lie as shuffled_scale says: the 8 scales of 256 k of 32 rows are a tile of 64 words. A step's
// scales are half of the bytes of each word.
#pragma once

#include "tilewave/ops/gemm/wave_tile/block_scales.hpp"

namespace tilewave {

/// Products with MX scales, and the layout of a tile of scales.
template <class W>
struct GemmMxProducts {
  using B = typename W::Backend;
  using Map = typename W::Map;
  struct StepScales {};
  static constexpr int period = 1;
  struct SliceScales {
    std::uint32_t a[W::tiles_m], b[W::tiles_n];  // e8m0 codes in the low bytes
  };
  static constexpr int tile_bytes = 256, tile_rows = 32, step_scales_of_row = 4;
  static_assert(W::step_k == step_scales_of_row * mx_group, "a step has four scales of each row");

  /// Returns the bytes from a tile of scales to that of the next 32 rows. The tile of the next 256 k lies beside it.
  TILEWAVE_DEVICE static std::int32_t stride(std::int32_t k) { return ceil_div(k, 8 * mx_group) * tile_bytes; }
  /// Returns where in its tile the word lies that has scale `index` of a step for a row; in bytes.
  TILEWAVE_DEVICE static int word(int row, int index) { return (index * 16 + row % 16) * 4; }
  /// Returns which byte of that word is the row's in this step.
  TILEWAVE_DEVICE static int byte(int row, std::int32_t step) { return (step & 1) * 2 + row % tile_rows / 16; }
  /// Returns which of a step's four scales is that of the 32 k that this lane has in a k slice.
  TILEWAVE_DEVICE static int scale_index(int slice) { return slice * Map::units + Map::unit(B::lane_id()); }

  template <int m, int n>
  TILEWAVE_DEVICE static void multiply(const SliceScales& scales, const Chunk (&kv)[Map::chunks_b],
                                       const Chunk (&rows)[Map::chunks_a], typename W::Sums& sums) {
    const std::uint32_t kv_scales[] = {scales.b[n]}, row_scales[] = {scales.a[m]};
    B::template multiply_mx<W::spec.b, W::spec.a, W::side>(kv, rows, kv_scales, row_scales, sums);
  }
  template <int tiles_m>
  TILEWAVE_DEVICE void accumulate(const StepScales&, typename W::WaveSums&) const {}
  TILEWAVE_DEVICE typename W::WaveSums& step_sums(typename W::WaveSums& sums) const { return sums; }
};

/// MX scales through LDS: whole tiles of scales are copied beside A's rows of their step. Each wave copies one tile of
/// A's scales and, if there are as many, one of B's.
///
/// Contiguous groups begin anywhere, and gathered rows lie anywhere: rows r and r + 16 of the tile, which share words
/// where 32 rows lie in order, have words of their own then. A wave copies the words of sixteen rows twice.
template <class W>
requires(W::spec.scale == Scaling::mx) struct GemmStepScales<W, true> : GemmMxProducts<W> {
  using Base = GemmMxProducts<W>;
  using Base::tile_bytes, Base::tile_rows;
  using typename Base::B, typename Base::Map, typename Base::SliceScales, typename Base::StepScales;
  static constexpr bool anywhere = detail::gemm_mx_rows_anywhere(W::spec);
  static constexpr int halves_a = anywhere ? 2 : 1;
  static constexpr int copies = halves_a + 1;            // of a wave for a step
  static constexpr int reads = W::tiles_m + W::tiles_n;  // of a wave for a k slice
  static_assert(W::side == tile_rows, "a product's 32 rows have one tile of scales");
  struct BlockScales {
    std::uint8_t a[W::waves][halves_a * tile_bytes], b[W::waves][tile_bytes];
  };
  template <int slots>
  struct InLds {
    alignas(16) BlockScales scales[slots];
  };

  template <class Shared>
  TILEWAVE_DEVICE GemmStepScales(const typename W::Args& args, const GemmTile& tile, Shared& shared)
      : lds_(shared.scales), steps_(args.k_steps), row_scales_(args.gemm.k / mx_group) {
    const GemmArgs& g = args.gemm;
    const int lane = B::lane_id(), row = Map::row(lane);
    const auto locate = [&](ScaleTile& to, const std::uint8_t* base, const auto& rows) TILEWAVE_INLINE_LAMBDA {
      const int in_tile = B::wave_id() * tile_rows;
      to.base = base + rows.first / tile_rows * std::int64_t{Base::stride(g.k)};
      to.offset = rows.has(in_tile)
                      ? static_cast<std::uint32_t>(rows.row(in_tile) / tile_rows * Base::stride(g.k)) + lane * 4
                      : B::Source::nowhere;
    };
    const typename W::TileRowsA rows_a(g, tile);
    if constexpr (anywhere) {
      locate_rows(rows_a, g);
    } else {
      locate(a_[0], g.a_mx_scale + tile.a_layer * g.a_scale_layer_stride, rows_a);
    }
    locate(b_, g.b_mx_scale + tile.layer * g.b_scale_layer_stride, typename W::TileRowsB(g, tile));
    TILEWAVE_UNROLL
    for (int slice = 0; slice < k_slices; ++slice) {
      const int index = Map::by_lane ? Map::unit(lane) * k_slices + slice : Base::scale_index(slice);
      code_offset_[slice] = Base::word(row, index) + Base::byte(row, 0);
    }
  }

  template <int i>
  TILEWAVE_DEVICE void copy(std::int32_t step, int slot) const {
    const ScaleTile& tile = i < halves_a ? a_[min_of(i, halves_a - 1)] : b_;
    BlockScales& all = lds_[slot];
    std::uint8_t* const to = i < halves_a ? all.a[B::wave_id()] + i * tile_bytes : all.b[B::wave_id()];
    typename B::Source{tile.base, B::Source::nowhere - 4}.copy_word(to, tile.offset,
                                                                    (min_of(step, steps_ - 1) >> 1) * tile_bytes);
  }
  template <int i>
  TILEWAVE_DEVICE void read(SliceScales& to, std::int32_t step, int slot, int slice) const {
    const int at = code_offset_[slice] + Base::byte(0, step);
    if constexpr (i < W::tiles_n) {
      to.b[i] = lds_[slot].b[W::first_column() / tile_rows + i][at];
    } else {
      constexpr int m = i - W::tiles_n;
      to.a[m] = lds_[slot].a[W::first_row() / tile_rows + m][anywhere ? at + moved_[m] : at];
    }
  }
  TILEWAVE_DEVICE StepScales load(std::int32_t, int) const { return {}; }

  /// The scales that pad the last tile may be NaN, and zeros times NaN are no zeros. So clean() clears them.
  TILEWAVE_DEVICE bool ends_within(std::int32_t step) const {
    return (step + 1) * Base::step_scales_of_row > row_scales_;
  }
  TILEWAVE_DEVICE void clean(std::int32_t step, int slot) const {
    auto* const words = reinterpret_cast<std::uint32_t*>(&lds_[slot]);
    for (int i = B::block_lane_id(); i < static_cast<int>(sizeof(BlockScales) / 4); i += W::block_threads)
      if (step * Base::step_scales_of_row + i / 16 % Base::step_scales_of_row >= row_scales_) words[i] = 0;
  }

 private:
  static constexpr int k_slices = Base::step_scales_of_row / Map::units;
  struct ScaleTile {
    const std::uint8_t* base;
    std::uint32_t offset;
  };
  /// Finds the words of this wave's 32 rows wherever they lie, and where this lane finds codes of its rows in them.
  TILEWAVE_DEVICE void locate_rows(const typename W::TileRowsA& rows, const GemmArgs& g) {
    const int lane = B::lane_id();
    const std::int32_t first = rows.first - rows.first % tile_rows;  // so that offsets fit 32 bits
    const auto place = [&](int in_tile) TILEWAVE_INLINE_LAMBDA {
      return rows.has(in_tile) ? rows.first - first + rows.row(in_tile) : 0;
    };
    TILEWAVE_UNROLL
    for (int half = 0; half < halves_a; ++half) {
      const int in_tile = B::wave_id() * tile_rows + half * 16 + lane % 16;
      const std::int32_t at = place(in_tile);
      a_[half].base = g.a_mx_scale + first / tile_rows * std::int64_t{Base::stride(g.k)};
      a_[half].offset = rows.has(in_tile)
                            ? static_cast<std::uint32_t>(at / tile_rows) * Base::stride(g.k) + Base::word(at, lane / 16)
                            : B::Source::nowhere;
    }
    const int row = Map::row(lane);
    TILEWAVE_UNROLL
    for (int m = 0; m < W::tiles_m; ++m)
      moved_[m] =
          row / 16 * tile_bytes + Base::byte(place(W::first_row() + m * tile_rows + row), 0) - Base::byte(row, 0);
  }

  BlockScales* lds_;
  ScaleTile a_[halves_a], b_;             // that this wave copies
  int moved_[anywhere ? W::tiles_m : 1];  // with `anywhere`: from a code's place where rows lie in order to its own
  std::int32_t steps_, row_scales_;
  int code_offset_[k_slices];  // of this lane's codes, in bytes from the start of a tile
};

/// MX scales straight to registers.
template <class W>
requires(W::spec.scale == Scaling::mx) struct GemmStepScales<W, false> : GemmMxProducts<W> {
  using Base = GemmMxProducts<W>;
  using typename Base::B, typename Base::Map, typename Base::SliceScales;
  static constexpr int k_slices = Base::step_scales_of_row / Map::units;
  struct StepScales {
    std::uint32_t a[W::tiles_m][k_slices], b[W::tiles_n][k_slices];  // words with codes of other rows and steps as well
    std::int32_t step;
  };

  template <class Shared>
  TILEWAVE_DEVICE GemmStepScales(const typename W::Args& args, const GemmTile& tile, Shared&)
      : row_scales_(args.gemm.k / mx_group) {
    const GemmArgs& g = args.gemm;
    const typename W::TileRowsA tile_rows_a(g, tile);
    const typename W::TileRowsB tile_rows_b(g, tile);
    const auto first_tile = [&](const std::uint8_t* scales, std::int64_t layer, std::int32_t first)
                                TILEWAVE_INLINE_LAMBDA {
                                  return scales + layer + first / Base::tile_rows * std::int64_t{Base::stride(g.k)};
                                };
    a_ = first_tile(g.a_mx_scale, tile.a_layer * g.a_scale_layer_stride, tile_rows_a.first);
    b_ = first_tile(g.b_mx_scale, tile.layer * g.b_scale_layer_stride, tile_rows_b.first);
    const auto locate = [&](ScaleRow& to, const auto& rows, int in_tile) TILEWAVE_INLINE_LAMBDA {
      const std::int32_t row = rows.first % Base::tile_rows + (rows.has(in_tile) ? rows.row(in_tile) : 0);
      to.offset = static_cast<std::uint32_t>(row / Base::tile_rows) * Base::stride(g.k) + Base::word(row, 0);
      to.shift = Base::byte(row, 0) * 8;
    };
    const int row = Map::row(B::lane_id());
    TILEWAVE_UNROLL
    for (int i = 0; i < W::tiles_m; ++i) locate(rows_a_[i], tile_rows_a, W::first_row() + i * W::side + row);
    TILEWAVE_UNROLL
    for (int i = 0; i < W::tiles_n; ++i) locate(rows_b_[i], tile_rows_b, W::first_column() + i * W::side + row);
  }

  TILEWAVE_DEVICE StepScales load(std::int32_t step, int = 0) const {
    StepScales scales;
    scales.step = step;
    TILEWAVE_UNROLL
    for (int slice = 0; slice < k_slices; ++slice) {
      // Values beyond K are zeros, so any scale serves that is not NaN: the last one is taken.
      const int index = min_of(Base::scale_index(slice), row_scales_ - 1 - step * Base::step_scales_of_row);
      const std::uint32_t at = (step >> 1) * Base::tile_bytes + Base::word(0, index);
      const auto word = [&](const std::uint8_t* base, const ScaleRow& row) TILEWAVE_INLINE_LAMBDA {
        return B::load(reinterpret_cast<const std::uint32_t*>(base + (row.offset + at)));
      };
      TILEWAVE_UNROLL
      for (int i = 0; i < W::tiles_m; ++i) scales.a[i][slice] = word(a_, rows_a_[i]);
      TILEWAVE_UNROLL
      for (int i = 0; i < W::tiles_n; ++i) scales.b[i][slice] = word(b_, rows_b_[i]);
    }
    return scales;
  }
  /// Shifts the codes of a k slice into the low bytes, where the product takes them.
  TILEWAVE_DEVICE SliceScales slice_scales(const StepScales& step, int slice) const {
    SliceScales codes;
    const int shift = Base::byte(0, step.step) * 8;
    TILEWAVE_UNROLL
    for (int i = 0; i < W::tiles_m; ++i) codes.a[i] = step.a[i][slice] >> (rows_a_[i].shift + shift);
    TILEWAVE_UNROLL
    for (int i = 0; i < W::tiles_n; ++i) codes.b[i] = step.b[i][slice] >> (rows_b_[i].shift + shift);
    return codes;
  }
  template <int tiles_m>
  TILEWAVE_DEVICE void accumulate(const StepScales&, typename W::WaveSums&) const {}

 private:
  struct ScaleRow {
    std::uint32_t offset;  // of this lane's words, in bytes from a_ or b_
    int shift;             // in bits, to the row's byte
  };
  const std::uint8_t *a_, *b_;
  std::int32_t row_scales_;
  ScaleRow rows_a_[W::tiles_m], rows_b_[W::tiles_n];
};

}  // namespace tilewave
