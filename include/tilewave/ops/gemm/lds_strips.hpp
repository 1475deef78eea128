// SPDX-License-Identifier: MIT
// Preshuffled weights in a slot of LDS: of each strip of sixteen rows a step of K as it lies in memory, units of 16
// bytes of k one after the other, of each its sixteen rows side by side. A copy brings whole lines, and reads meet no
// bank twice without a swizzle: rows that are served together are units that differ.
#pragma once

#include "tilewave/ops/gemm/lds_layout.hpp"

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
  static_assert(lane_units == pieces * chunks && row_units % Map::units == 0 && !is_fp6(type));
  static constexpr int copies = rows * row_units / W::block_threads;  // of a wave for a slot
  static_assert(rows * row_units % W::block_threads == 0 && W::wave_columns % W::side == 0 && W::side % strip == 0);

  /// Where unit c of a row is in the slot; and from a lane's unit of a piece to its next.
  TILEWAVE_HOST_DEVICE static constexpr int place(int row, int c) {
    return (row / strip * row_units + c) * strip + row % strip;
  }
  TILEWAVE_HOST_DEVICE static constexpr int first_unit(int lane) {
    return Map::by_lane ? lane_units * Map::unit(lane) : Map::unit(lane);
  }
  static constexpr int next_unit = (Map::by_lane ? 1 : Map::units) * strip;
  static_assert(lds_conflicts(B::facts.id, [](int lane) { return place(Map::row(lane), first_unit(lane)); }) == 0);

  typename B::Source source;
  std::int32_t k_bytes;
  int first;                     // in the slot, of this wave's first copy; in units
  int at;                        // of this lane's first unit in its row of the wave's first product
  std::uint32_t offset[copies];  // in the source, of this lane's units of the wave's copies
  Chunk held[W::policy.path == GemmPath::staged ? copies : 1];

  template <class RowsOf>
  TILEWAVE_DEVICE GemmLdsStrips(const void* base, std::int64_t layer_offset, std::int64_t, const RowsOf& rows_of,
                                std::int32_t k, int wave_row)
      : source(W::template strips<T>(base, layer_offset, rows_of, k)),
        k_bytes(bytes_of(type, k)),
        first(B::wave_id() * copies * B::facts.wave_lanes),
        at(place(wave_row + Map::row(B::lane_id()), first_unit(B::lane_id()))) {
    TILEWAVE_UNROLL
    for (int i = 0; i < copies; ++i) {
      const int row = row_of(i);
      const std::int32_t in_matrix = rows_of.row(row);
      const std::int64_t from =
          in_matrix / strip * (std::int64_t{k_bytes} * strip) + (unit_of(i) * strip + in_matrix % strip) * 16;
      offset[i] = rows_of.has(row) ? static_cast<std::uint32_t>(from) : B::Source::nowhere;
    }
  }

  template <int i, bool whole>
  TILEWAVE_DEVICE void copy(Chunk* slot, std::int32_t step) const {
    source.copy(slot + first + i * B::facts.wave_lanes, from<whole>(i, step), start<whole>(step));
  }
  template <int i, bool whole>
  TILEWAVE_DEVICE void load(std::int32_t step) {
    held[i] = source.load(from<whole>(i, step), start<whole>(step));
  }
  template <int i>
  TILEWAVE_DEVICE void put(Chunk* slot) const {
    slot[first + i * B::facts.wave_lanes + B::lane_id()] = held[i];
  }
  /// Unit c of a lane for product `tile` of the wave.
  TILEWAVE_DEVICE Chunk read(const Chunk* slot, int tile, int piece, int c) const {
    return slot[at + (piece * chunks + c) * next_unit + tile * W::side * row_units];
  }
  /// K of preshuffled weights is whole units.
  TILEWAVE_DEVICE void clean(Chunk*) const {}

 private:
  TILEWAVE_DEVICE int unit_number(int i) const { return first + B::facts.wave_lanes * i + B::lane_id(); }
  TILEWAVE_DEVICE int row_of(int i) const {
    const int number = unit_number(i);
    return number / (strip * row_units) * strip + number % strip;
  }
  TILEWAVE_DEVICE int unit_of(int i) const { return unit_number(i) / strip % row_units; }
  /// A step that is not whole, or beyond K, has units that are nowhere.
  template <bool whole>
  TILEWAVE_DEVICE std::uint32_t from(int i, std::int32_t step) const {
    if constexpr (whole) return offset[i];
    return std::int64_t{step} * row_bytes + unit_of(i) * 16 < k_bytes ? offset[i] : B::Source::nowhere;
  }
  template <bool whole>
  TILEWAVE_DEVICE std::int32_t start(std::int32_t step) const {
    return (whole ? step : min_of(step, k_bytes / row_bytes)) * row_bytes * strip;
  }
};

}  // namespace tilewave
