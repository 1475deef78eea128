// SPDX-License-Identifier: MIT
// Preshuffled int4 weights that are widened on their way into a slot of LDS, once for all rows of the tile. In the slot
// they lie like preshuffled weights of the products' type.
#pragma once

#include "tilewave/ops/gemm/lds/strips.hpp"

namespace tilewave {

/// A slot of `rows` rows of B, those of a tile that W::TileRowsB names, for path staged. An item is the codes of 16 k
/// of a row. They are 8 bytes in memory, beside those of the other rows of the strip, and two units in the slot.
template <class W, int rows>
struct GemmLdsCodes : GemmStripsSlot<W, W::spec.a, rows> {
  using Slot = GemmStripsSlot<W, W::spec.a, rows>;
  using B = typename W::Backend;
  using Slot::strip;
  static constexpr GemmSpec spec = W::spec;
  static constexpr int item_k = 16, row_items = W::step_k / item_k, strip_items = strip * row_items;
  static constexpr int copies = rows * row_items / W::block_threads;  // items of a lane for a slot
  static_assert(rows * row_items % W::block_threads == 0 && spec.scale_k % W::step_k == 0,
                "lanes widen equally much, and a step has one scale and zero point for each row");

  using Codes = Vec<std::uint32_t, 2>;
  using Zero = Packed<DType::i8, 1>;
  using Window = typename B::template Window<true>;
  static constexpr std::uint32_t nowhere = 1u << 31;  // an offset beyond every window

  const char *codes, *zeros;             // of the tile's first row and k
  std::uint32_t code_bytes, zero_bytes;  // of the windows that begin there
  std::int64_t zero_stride;              // from the zero points of a group of k to the next, in bytes
  std::int32_t k;
  std::uint32_t code_offset[copies], zero_offset[spec.zero_points ? copies : 1];  // of this lane's items, in bytes
  Codes loaded[copies];
  Zero zero[spec.zero_points ? copies : 1];

  TILEWAVE_DEVICE GemmLdsCodes(const GemmArgs& g, const GemmTile& tile, int wave_row) : Slot(wave_row), k(g.k) {
    const typename W::TileRowsB tile_rows(g, tile);
    const std::int64_t strip_bytes = std::int64_t{g.k} * strip / 2;
    codes = static_cast<const char*>(g.b) + tile.layer * g.b_layer_stride + tile_rows.first / strip * strip_bytes;
    code_bytes = static_cast<std::uint32_t>(ceil_div(tile_rows.span(), strip) * strip_bytes);
    if constexpr (spec.zero_points) {
      zeros = reinterpret_cast<const char*>(g.b_mx_scale) + tile.layer * g.b_scale_layer_stride + tile_rows.first;
      zero_bytes = static_cast<std::uint32_t>(tile_rows.span());
      zero_stride = g.b_scale_k_stride;
    }
    TILEWAVE_UNROLL
    for (int i = 0; i < copies; ++i) {
      const int number = item(i), in_tile = number / strip_items * strip + number % strip;
      const std::int32_t row = tile_rows.row(in_tile);
      const bool has = tile_rows.has(in_tile);
      code_offset[i] = has ? static_cast<std::uint32_t>(row / strip * strip_bytes +
                                                        (number / strip % row_items * strip + row % strip) * 8)
                           : nowhere;
      if constexpr (spec.zero_points) zero_offset[i] = has ? static_cast<std::uint32_t>(row) : nowhere;
    }
  }

  /// Loads this lane's item i of a step to registers. K is whole steps, but a step may lie beyond its end.
  template <int i, bool whole>
  TILEWAVE_DEVICE void load(std::int32_t step) {
    const std::uint32_t beyond = whole || step < k / W::step_k ? 0 : nowhere;
    const std::uint32_t from = whole || beyond == 0 ? static_cast<std::uint32_t>(step) * (W::step_k * strip / 2) : 0;
    loaded[i] = Window{codes, code_bytes}.template load<Codes>((code_offset[i] | beyond) + from);
    if constexpr (spec.zero_points) {
      const std::int64_t group = beyond == 0 ? step / (spec.scale_k / W::step_k) : 0;
      zero[i] = Window{zeros + group * zero_stride, zero_bytes}.template load<Zero>(zero_offset[i] | beyond);
    }
  }
  /// Widens it and stores it into the slot.
  template <int i>
  TILEWAVE_DEVICE void store(Chunk* slot) const {
    const int number = item(i);
    Chunk* const to = slot + (number / strip * 2) * strip + number % strip;
    to[0] = widened(loaded[i][0], i);
    to[strip] = widened(loaded[i][1], i);
  }

 private:
  /// The number of this lane's item i in the slot.
  TILEWAVE_DEVICE static int item(int i) { return (B::wave_id() * copies + i) * B::facts.wave_lanes + B::lane_id(); }
  TILEWAVE_DEVICE Chunk widened(std::uint32_t word, int i) const {
    constexpr bool bf16 = spec.a == DType::bf16;
    if constexpr (spec.zero_points) {
      const std::uint32_t less = B::template i4_zeros<spec.a>(static_cast<std::int8_t>(zero[i][0]));
      return bf16 ? B::widen_i4(word, less) : B::widen_i4_to_f16(word, less);
    } else {
      return bf16 ? B::widen_i4(word) : B::widen_i4_to_f16(word);
    }
  }
};

}  // namespace tilewave
