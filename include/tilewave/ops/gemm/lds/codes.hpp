// SPDX-License-Identifier: MIT
// Preshuffled weights of four bits that are widened on their way into a slot of LDS, once for all rows of the tile. In
// the slot they lie like preshuffled weights of the products' type. Codes of MXFP4 are widened with a quarter of their
// scales: then all are exact, the least as subnormals, and the largest, 6 times 2^127, fits.
#pragma once

#include "tilewave/ops/gemm/lds/strips.hpp"
#include "tilewave/ops/gemm/wave_tile/code_offset.hpp"
#include "tilewave/ops/gemm/wave_tile/scaled_fp4.hpp"

namespace tilewave {

/// A slot of `rows` rows of B, those of a tile that W::TileRowsB names, for path staged. An item is the codes of 16 k
/// of a row. They are 8 bytes in memory, beside those of the other rows of the strip, and two units in the slot, or one
/// of fp8.
template <class W, int rows>
struct GemmLdsCodes : GemmStripsSlot<W, W::spec.a, rows> {
  using Slot = GemmStripsSlot<W, W::spec.a, rows>;
  using B = typename W::Backend;
  using Slot::strip;
  static constexpr GemmSpec spec = W::spec;
  static constexpr int item_k = 16, row_items = W::step_k / item_k, strip_items = strip * row_items;
  static constexpr int item_units = item_k * size_of(spec.a) / 16;    // in the slot
  static constexpr int copies = rows * row_items / W::block_threads;  // items of a lane for a slot
  static_assert(rows * row_items % W::block_threads == 0, "lanes widen equally much");
  static_assert(spec.mxfp4() || spec.scale_k % W::step_k == 0, "a step has one scale of int4 for each row");

  using Codes = Vec<std::uint32_t, 2>;
  using Byte = Packed<DType::i8, 1>;  // of an item: its zero point, or the scale of MXFP4
  using Window = typename B::template Window<true>;
  static constexpr std::uint32_t nowhere = 1u << 31;  // an offset beyond every window
  static constexpr bool has_bytes = spec.zero_points || spec.mxfp4();
  using Scaled = GemmScaledFp4<B>;
  static constexpr float factor = spec.mxfp4() ? Scaled::factor : 1.0f;  // what makes sums of these weights those of B

  const char *codes, *bytes;             // of the tile's first row and k
  std::uint32_t code_bytes, byte_count;  // of the windows that begin there
  std::int64_t byte_stride;              // from those of a group of k to the next
  std::int32_t k;
  std::uint32_t code_offset[copies], byte_offset[has_bytes ? copies : 1];  // of this lane's items, in bytes
  Codes loaded[copies];
  Byte byte[has_bytes ? copies : 1];

  TILEWAVE_DEVICE GemmLdsCodes(const GemmArgs& g, const GemmTile& tile, int wave_row) : Slot(wave_row), k(g.k) {
    const typename W::TileRowsB tile_rows(g, tile);
    const std::int64_t strip_bytes = std::int64_t{g.k} * strip / 2;
    codes = static_cast<const char*>(g.b) + tile.layer * g.b_layer_stride + tile_rows.first / strip * strip_bytes;
    code_bytes = static_cast<std::uint32_t>(ceil_div(tile_rows.span(), strip) * strip_bytes);
    if constexpr (has_bytes) {
      const void* const of_all = spec.mxfp4() ? g.b_group_scale : g.b_mx_scale;
      bytes = static_cast<const char*>(of_all) + tile.layer * g.b_scale_layer_stride + tile_rows.first;
      byte_count = static_cast<std::uint32_t>(tile_rows.span());
      byte_stride = g.b_scale_k_stride;
    }
    TILEWAVE_UNROLL
    for (int i = 0; i < copies; ++i) {
      const int number = item(i), in_tile = number / strip_items * strip + number % strip;
      const std::int32_t row = tile_rows.row(in_tile);
      const bool has = tile_rows.has(in_tile);
      code_offset[i] = has ? gemm_code_offset(row, first_k(i), strip_bytes) : nowhere;
      if constexpr (has_bytes) byte_offset[i] = has ? static_cast<std::uint32_t>(row) : nowhere;
    }
  }

  /// Loads this lane's item i of a step to registers. A step may lie beyond K, as a whole or in part.
  template <int i, bool whole>
  TILEWAVE_DEVICE void load(std::int32_t step) {
    const std::int64_t first = std::int64_t{step} * W::step_k;
    const bool begins = whole || first < k;  // the wave's step is within K, and so is this lane's item
    const std::uint32_t beyond = whole || first + first_k(i) < k ? 0 : nowhere;
    const std::uint32_t from = begins ? static_cast<std::uint32_t>(step) * (W::step_k * strip / 2) : 0;
    loaded[i] = Window{codes, code_bytes}.template load<Codes>((code_offset[i] | beyond) + from);
    if constexpr (spec.mxfp4()) {  // a wave's items have scales of two groups
      const char* const group = bytes + (begins ? step * groups * byte_stride : 0);
      const auto own = static_cast<std::uint32_t>(first_k(i) / spec.scale_k * byte_stride);
      const auto count = static_cast<std::uint32_t>((groups - 1) * byte_stride) + byte_count;
      byte[i] = Window{group, count}.template load<Byte>((byte_offset[i] | beyond) + own);
    } else if constexpr (spec.zero_points) {
      const std::int64_t group = begins ? step / (spec.scale_k / W::step_k) : 0;
      byte[i] = Window{bytes + group * byte_stride, byte_count}.template load<Byte>(byte_offset[i] | beyond);
    }
  }
  /// Widens it and stores it into the slot.
  template <int i>
  TILEWAVE_DEVICE void store(Chunk* slot) const {
    const int number = item(i);
    Chunk* const to = slot + (number / strip * item_units) * strip + number % strip;
    if constexpr (is_fp8(spec.a)) {
      const auto first = B::widen_i4_to_fp8(loaded[i][0]), last = B::widen_i4_to_fp8(loaded[i][1]);
      to[0] = {{first[0], first[1], last[0], last[1]}};
    } else if constexpr (spec.mxfp4()) {
      store_scaled(loaded[i], byte[i][0], to);
    } else {
      to[0] = widened(loaded[i][0], i);
      to[strip] = widened(loaded[i][1], i);
    }
  }

 private:
  static constexpr int groups = max_of(1, W::step_k / spec.scale_k);  // of scales in a step

  /// The number of this lane's item i in the slot, and its first k in a step.
  TILEWAVE_DEVICE static int item(int i) { return (B::wave_id() * copies + i) * B::facts.wave_lanes + B::lane_id(); }
  TILEWAVE_DEVICE static int first_k(int i) { return item(i) / strip % row_items * item_k; }

  TILEWAVE_DEVICE Chunk widened(std::uint32_t word, int i) const {
    constexpr bool bf16 = spec.a == DType::bf16;
    if constexpr (spec.zero_points) {
      const std::uint32_t less = B::template i4_zeros<spec.a>(static_cast<std::int8_t>(byte[i][0]));
      return bf16 ? B::widen_i4(word, less) : B::widen_i4_to_f16(word, less);
    } else {
      return bf16 ? B::widen_i4(word) : B::widen_i4_to_f16(word);
    }
  }
  /// Conversions that scale are taken where all scales of the wave are such that weights are normal numbers of bf16.
  TILEWAVE_DEVICE static void store_scaled(const Codes& two, std::uint32_t scale, Chunk* to) {
    if (!B::any(!Scaled::converts(scale))) [[likely]] {
      for (int half = 0; half < 2; ++half) to[half * strip] = Scaled::template widened<true>(two[half], scale);
      return;
    }
    for (int half = 0; half < 2; ++half) to[half * strip] = Scaled::template widened<false>(two[half], scale);
  }
};

}  // namespace tilewave
