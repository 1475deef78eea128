// SPDX-License-Identifier: MIT
// Rows of one operand in a slot of LDS, where k lies side by side in memory. A slot has a step of K of each row: 128
// bytes, of fp6 96 and of fp4 64. Copies fill the slot in order, row after row. For the swizzle, each lane therefore
// permutes the address in memory from which it copies.
#pragma once

#include "tilewave/ops/gemm/wave_tile/wave_tile.hpp"
#include "tilewave/tile/shared_tile.hpp"

namespace tilewave {

/// The rows of a tile that W::TileRowsA or W::TileRowsB names, `rows` of them. A wave makes `copies` copies for a slot,
/// of 16 bytes (a unit) a lane.
template <class W, DType T, int rows>
struct GemmLdsRows : SharedTile<W, T, rows, false> {
  using Slot = SharedTile<W, T, rows, false>;
  using B = typename W::Backend;
  using Slot::copies, Slot::row_units, Slot::row_bytes, Slot::k_bytes, Slot::permute;
  static constexpr int k_slices = Slot::k_slices;

  typename B::Source source;
  std::int64_t stride;           // from a row to the next in memory, in bytes
  int first;                     // unit of the slot with which this wave's first copy begins
  std::uint32_t offset[copies];  // of this lane's units of the wave's copies, in bytes from the source's start
  Chunk loaded[W::policy.path == GemmPath::staged ? copies : 1];

  template <class TileRows>
  TILEWAVE_DEVICE GemmLdsRows(const void* base, std::int64_t layer_offset, std::int64_t row_stride,
                              const TileRows& tile_rows, std::int32_t k, int wave_row)
      : Slot(k, wave_row),
        source(W::template source<T>(base, layer_offset, row_stride, tile_rows, k)),
        stride(row_stride * size_of(Slot::type)),
        first(B::wave_id() * copies * B::facts.wave_lanes) {
    const int lane = B::lane_id();
    TILEWAVE_UNROLL
    for (int i = 0; i < copies; ++i) {
      const int r = row_of(i, lane);
      offset[i] = tile_rows.has(r) ? static_cast<std::uint32_t>(tile_rows.row(r) * stride + unit_of(i, lane) * 16)
                                   : B::Source::nowhere;
    }
  }

  /// Returns the bytes from a tile's rows to those of the tile on the right.
  TILEWAVE_DEVICE std::int32_t next_tile(std::int32_t rows_between) const {
    return static_cast<std::int32_t>(rows_between * stride);
  }
  /// Copies this lane's unit i of a step from memory to LDS, `tile` bytes behind the tile's. `whole`: all of the step
  /// lies within K.
  template <int i, bool whole>
  TILEWAVE_DEVICE void copy(Chunk* slot, std::int32_t step, std::int32_t tile = 0) const {
    source.copy(slot + first + i * B::facts.wave_lanes, unit_offset<whole>(i, step), step_offset<whole>(step) + tile);
  }
  /// The same copy by way of registers: load now, store later.
  template <int i, bool whole>
  TILEWAVE_DEVICE void load(std::int32_t step) {
    loaded[i] = source.load(unit_offset<whole>(i, step), step_offset<whole>(step));
  }
  template <int i>
  TILEWAVE_DEVICE void store(Chunk* slot) const {
    slot[first + i * B::facts.wave_lanes + B::lane_id()] = loaded[i];
  }

 private:
  static constexpr bool copies_whole_rows = B::facts.wave_lanes % row_units == 0;
  /// The unit of the slot that a lane fills with copy i; then its row, and the unit of that row in memory.
  TILEWAVE_DEVICE int slot_unit(int i, int lane) const { return first + B::facts.wave_lanes * i + lane; }
  TILEWAVE_DEVICE int row_of(int i, int lane) const {
    if constexpr (!copies_whole_rows) return slot_unit(i, lane) / row_units;
    return first / row_units + B::facts.wave_lanes / row_units * i + lane / row_units;
  }
  TILEWAVE_DEVICE int unit_of(int i, int lane) const {
    return (copies_whole_rows ? lane : slot_unit(i, lane)) % row_units ^ permute(row_of(i, lane));
  }
  /// Units beyond K are nowhere, so that a lane copies zeros. A step that is not whole may have some.
  template <bool whole>
  TILEWAVE_DEVICE std::uint32_t unit_offset(int i, std::int32_t step) const {
    if constexpr (whole) return offset[i];
    // The lane's unit is computed again where that takes a division: whole steps fill the registers with their needs.
    const int lane = copies_whole_rows ? B::lane_id() : B::opaque(std::int32_t{B::lane_id()});
    return std::int64_t{step} * row_bytes + unit_of(i, lane) * 16 < k_bytes ? offset[i] : B::Source::nowhere;
  }
  template <bool whole>
  TILEWAVE_DEVICE std::int32_t step_offset(std::int32_t step) const {
    return whole ? step * row_bytes : min_of(step, k_bytes / row_bytes) * row_bytes;
  }
};

}  // namespace tilewave
