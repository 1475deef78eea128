// SPDX-License-Identifier: MIT
// Preshuffled weights in a slot of LDS: of each strip of sixteen rows a step of K as it lies in memory, units of 16
// bytes of k one after the other, of each its sixteen rows side by side. A copy brings whole lines, and reads meet no
// bank twice without a swizzle: rows that are served together are units that differ.
#pragma once

#include "tilewave/ops/gemm/wave_tile/wave_tile.hpp"

namespace tilewave {

/// A slot of `rows` rows of an operand, those of a tile, as W::RowsOfB has them.
template <class W, DType T, int rows>
struct GemmLdsStrips {
  using B = typename W::Backend;
  using Map = typename W::Map;
  static constexpr DType type = T;
  static constexpr int strip = 16, row_bytes = bytes_of(type, W::step_k), row_units = row_bytes / 16;
  static constexpr int chunks = B::template product_chunks<type>;
  static constexpr int lane_units = row_units / Map::units, pieces = lane_units / chunks;
  static_assert(lane_units == pieces * chunks && row_units % Map::units == 0 && !is_fp6(type),
                "a row of a step is a whole number of products, and preshuffled fp6 there is none");
  static constexpr int copies = rows * row_units / W::block_threads;  // of a wave for a slot
  static_assert(rows * row_units % W::block_threads == 0 && W::wave_columns % W::side == 0 && W::side % strip == 0,
                "lanes copy equally much, and products begin with a strip");

  /// Where unit c of a row is in the slot; and from a lane's unit of a piece to its next.
  TILEWAVE_HOST_DEVICE static constexpr int place(int row, int c) {
    return (row / strip * row_units + c) * strip + row % strip;
  }
  TILEWAVE_HOST_DEVICE static constexpr int first_unit(int lane) {
    return Map::by_lane ? lane_units * Map::unit(lane) : Map::unit(lane);
  }
  static constexpr int next_unit = (Map::by_lane ? 1 : Map::units) * strip;
  static_assert(lds_conflicts(B::facts.id, [](int lane) { return place(Map::row(lane), first_unit(lane)); }) == 0,
                "lanes that are served together meet no bank twice");

  /// Neighbouring strips lie one after the other, and so do a wave's copies. Gates and ups are where they please.
  static constexpr bool in_order = !W::spec.gated;
  static constexpr int lanes = B::facts.wave_lanes, strip_units = strip * row_units;
  static_assert(!in_order || copies == 1 || copies * lanes % strip_units == 0,
                "a wave's copies are whole strips, which lie one after the other");
  typename B::Source source;
  std::int32_t k_bytes;
  int first;  // in the slot, of this wave's first copy; in units
  int at;     // of this lane's first unit in its row of the wave's first product; in bytes
  // In the source, of this lane's units of the wave's copies, or of its first. Strips that are not there lie beyond.
  std::uint32_t offset[in_order ? 1 : copies];
  Chunk held[W::policy.path == GemmPath::staged ? copies : 1];

  template <class RowsOf>
  TILEWAVE_DEVICE GemmLdsStrips(const void* base, std::int64_t layer_offset, std::int64_t, const RowsOf& rows_of,
                                std::int32_t k, int wave_row)
      : source(W::template strips<T>(base, layer_offset, rows_of, k)),
        k_bytes(bytes_of(type, k)),
        first(B::wave_id() * copies * lanes),
        at(B::opaque(place(wave_row + Map::row(B::lane_id()), first_unit(B::lane_id())) * 16)) {
    if constexpr (in_order) {
      offset[0] = first / strip_units * (k_bytes * strip) + (first % strip_units + B::lane_id()) * 16;
      return;
    }
    TILEWAVE_UNROLL
    for (int i = 0; i < copies; ++i) {
      const int number = first + lanes * i + B::lane_id(), unit = number / strip % row_units;
      const int in_tile = number / strip_units * strip + number % strip;
      const std::int32_t row = rows_of.row(in_tile);
      const std::int64_t from = row / strip * (std::int64_t{k_bytes} * strip) + (unit * strip + row % strip) * 16;
      offset[i] = rows_of.has(in_tile) ? static_cast<std::uint32_t>(from) : B::Source::nowhere;
    }
  }

  template <int i, bool whole>
  TILEWAVE_DEVICE void copy(Chunk* slot, std::int32_t step) const {
    source.copy(slot + first + i * lanes, from<whole>(i, step), start<whole>(i, step));
  }
  template <int i, bool whole>
  TILEWAVE_DEVICE void load(std::int32_t step) {
    held[i] = source.load(from<whole>(i, step), start<whole>(i, step));
  }
  template <int i>
  TILEWAVE_DEVICE void put(Chunk* slot) const {
    slot[first + i * lanes + B::lane_id()] = held[i];
  }
  /// Unit c of a lane for product `tile` of the wave.
  TILEWAVE_DEVICE Chunk read(const Chunk* slot, int tile, int piece, int c) const {
    const char* const from = reinterpret_cast<const char*>(slot) + at;
    return reinterpret_cast<const Chunk*>(from)[(piece * chunks + c) * next_unit + tile * W::side * row_units];
  }
  /// K of preshuffled weights is whole units.
  TILEWAVE_DEVICE void clean(Chunk*) const {}

 private:
  /// A step that is not whole, or beyond K, has units that are nowhere.
  template <bool whole>
  TILEWAVE_DEVICE std::uint32_t from(int i, std::int32_t step) const {
    const std::uint32_t of_copy = offset[in_order ? 0 : i];
    if constexpr (whole) return of_copy;
    // Worked out anew: registers are full of what whole steps need.
    const int unit = (first + lanes * i + B::opaque(std::int32_t{B::lane_id()})) / strip % row_units;
    return std::int64_t{step} * row_bytes + unit * 16 < k_bytes ? of_copy : B::Source::nowhere;
  }
  template <bool whole>
  TILEWAVE_DEVICE std::int32_t start(int i, std::int32_t step) const {
    const std::int32_t of_copy =
        in_order ? i * lanes / strip_units * (k_bytes * strip) + i * lanes % strip_units * 16 : 0;
    return (whole ? step : min_of(step, k_bytes / row_bytes)) * (row_bytes * strip) + of_copy;
  }
};

}  // namespace tilewave
