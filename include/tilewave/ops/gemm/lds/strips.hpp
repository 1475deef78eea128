// SPDX-License-Identifier: MIT
// Preshuffled weights in a slot of LDS. A slot has a step of K of each strip of sixteen rows, as it lies in memory:
// units of 16 bytes of k one after the other, and the sixteen rows of a unit side by side. A copy reads whole lines.
// LDS reads meet no bank twice without a swizzle, since rows that are served together are different units.
#pragma once

#include "tilewave/ops/gemm/wave_tile/wave_tile.hpp"

namespace tilewave {

/// How strips of `rows` rows of type T lie in a slot, and how lanes read them.
template <class W, DType T, int rows>
struct GemmStripsSlot {
  using B = typename W::Backend;
  using Map = typename W::Map;
  static constexpr DType type = T;
  static constexpr int strip = 16, row_bytes = bytes_of(type, W::step_k), row_units = row_bytes / 16;
  static constexpr int chunks = B::template product_chunks<type>;
  static constexpr int lane_units = row_units / Map::units, k_slices = lane_units / chunks;
  static_assert(lane_units == k_slices * chunks && row_units % Map::units == 0 && !is_fp6(type),
                "a row of a step is a whole number of products, and preshuffled fp6 there is none");
  static_assert(W::wave_columns % W::side == 0 && W::side % strip == 0, "products begin with a strip");

  /// The unit of the slot where unit c of a row lies.
  TILEWAVE_HOST_DEVICE static constexpr int slot_unit(int row, int c) {
    return (row / strip * row_units + c) * strip + row % strip;
  }
  /// The first unit of a row that a lane reads; `next_unit` is how far its next one lies behind it in the slot.
  TILEWAVE_HOST_DEVICE static constexpr int first_unit(int lane) {
    return Map::by_lane ? lane_units * Map::unit(lane) : Map::unit(lane);
  }
  static constexpr int next_unit = (Map::by_lane ? 1 : Map::units) * strip;
  static_assert(lds_conflicts(B::facts.id, [](int lane) { return slot_unit(Map::row(lane), first_unit(lane)); }) == 0,
                "lanes that are served together meet no bank twice");

  int read_offset;  // of this lane's first unit for the wave's first product, in bytes from the slot's start

  TILEWAVE_DEVICE explicit GemmStripsSlot(int wave_row)
      : read_offset(B::opaque(slot_unit(wave_row + Map::row(B::lane_id()), first_unit(B::lane_id())) * 16)) {}

  /// Returns unit c of a lane's operand of the wave's product `tile` in k slice `slice`.
  TILEWAVE_DEVICE Chunk read(const Chunk* slot, int tile, int slice, int c) const {
    const char* const from = reinterpret_cast<const char*>(slot) + read_offset;
    return reinterpret_cast<const Chunk*>(from)[(slice * chunks + c) * next_unit + tile * W::side * row_units];
  }
  /// There is nothing to clear: K of preshuffled weights is whole units.
  TILEWAVE_DEVICE void clean(Chunk*) const {}
};

/// A slot of `rows` rows of an operand, those of a tile that W::TileRowsB names.
template <class W, DType T, int rows>
struct GemmLdsStrips : GemmStripsSlot<W, T, rows> {
  using Slot = GemmStripsSlot<W, T, rows>;
  using B = typename W::Backend;
  using Slot::type, Slot::strip, Slot::row_bytes, Slot::row_units;
  static constexpr int copies = rows * row_units / W::block_threads;  // of a wave for a slot
  static_assert(rows * row_units % W::block_threads == 0, "lanes copy equally much");

  /// Neighbouring strips lie one after the other in memory, and so do a wave's copies. Gates and ups lie apart.
  static constexpr bool in_order = !W::spec.gated;
  static constexpr int lanes = B::facts.wave_lanes, strip_units = strip * row_units;
  static_assert(!in_order || copies == 1 || copies * lanes % strip_units == 0,
                "a wave's copies are whole strips, which lie one after the other");
  typename B::Source source;
  std::int32_t k_bytes;
  int first;  // unit of the slot with which this wave's first copy begins
  // The offset in the source of this lane's unit of each copy; in order, of the first copy alone suffices. Strips that
  // are not there lie beyond the source's end.
  std::uint32_t offset[in_order ? 1 : copies];
  Chunk loaded[W::policy.path == GemmPath::staged ? copies : 1];

  template <class TileRows>
  TILEWAVE_DEVICE GemmLdsStrips(const void* base, std::int64_t layer_offset, std::int64_t, const TileRows& tile_rows,
                                std::int32_t k, int wave_row)
      : Slot(wave_row),
        source(W::template strips<T>(base, layer_offset, tile_rows, k)),
        k_bytes(bytes_of(type, k)),
        first(B::wave_id() * copies * lanes) {
    if constexpr (in_order) {
      offset[0] = first / strip_units * (k_bytes * strip) + (first % strip_units + B::lane_id()) * 16;
      return;
    }
    TILEWAVE_UNROLL
    for (int i = 0; i < copies; ++i) {
      const int number = first + lanes * i + B::lane_id(), unit = number / strip % row_units;
      const int in_tile = number / strip_units * strip + number % strip;
      const std::int32_t row = tile_rows.row(in_tile);
      const std::int64_t from = row / strip * (std::int64_t{k_bytes} * strip) + (unit * strip + row % strip) * 16;
      offset[i] = tile_rows.has(in_tile) ? static_cast<std::uint32_t>(from) : B::Source::nowhere;
    }
  }

  /// Returns the bytes from a tile's strips to those of the tile on the right.
  TILEWAVE_DEVICE std::int32_t next_tile(std::int32_t rows_between) const { return rows_between * k_bytes; }
  /// Copies this lane's unit i of a step from memory to LDS, `tile` bytes behind the tile's. `whole`: all of the step
  /// lies within K.
  template <int i, bool whole>
  TILEWAVE_DEVICE void copy(Chunk* slot, std::int32_t step, std::int32_t tile = 0) const {
    source.copy(slot + first + i * lanes, unit_offset<whole>(i, step), step_offset<whole>(i, step) + tile);
  }
  /// The same copy by way of registers: load now, store later.
  template <int i, bool whole>
  TILEWAVE_DEVICE void load(std::int32_t step) {
    loaded[i] = source.load(unit_offset<whole>(i, step), step_offset<whole>(i, step));
  }
  template <int i>
  TILEWAVE_DEVICE void store(Chunk* slot) const {
    slot[first + i * lanes + B::lane_id()] = loaded[i];
  }

 private:
  /// Units beyond K are nowhere, so that a lane copies zeros. A step that is not whole may have some.
  template <bool whole>
  TILEWAVE_DEVICE std::uint32_t unit_offset(int i, std::int32_t step) const {
    const std::uint32_t own = offset[in_order ? 0 : i];
    if constexpr (whole) return own;
    // The lane's unit is computed again: whole steps fill the registers with their needs.
    const int unit = (first + lanes * i + B::opaque(std::int32_t{B::lane_id()})) / strip % row_units;
    return std::int64_t{step} * row_bytes + unit * 16 < k_bytes ? own : B::Source::nowhere;
  }
  template <bool whole>
  TILEWAVE_DEVICE std::int32_t step_offset(int i, std::int32_t step) const {
    const std::int32_t from_first =
        in_order ? i * lanes / strip_units * (k_bytes * strip) + i * lanes % strip_units * 16 : 0;
    return (whole ? step : min_of(step, k_bytes / row_bytes)) * (row_bytes * strip) + from_first;
  }
};

}  // namespace tilewave
