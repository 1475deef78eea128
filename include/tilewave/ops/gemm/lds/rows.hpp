// SPDX-License-Identifier: MIT
// Rows of one operand in a slot of LDS: a step of K of each, 128 bytes, of fp6 96 and of fp4 64. Copies write whole
// rows one after the other, so that it is their addresses in memory that are permuted.
#pragma once

#include "tilewave/ops/gemm/wave_tile/wave_tile.hpp"
#include "tilewave/tile/shared_tile.hpp"

namespace tilewave {

/// Rows whose k lie side by side in memory: those of a tile, as W::RowsOfA or RowsOfB has them.
template <class W, DType T, int rows>
struct GemmLdsRows : SharedTile<W, T, rows, false> {
  using Slot = SharedTile<W, T, rows, false>;
  using B = typename W::Backend;
  using Slot::copies, Slot::row_units, Slot::row_bytes, Slot::k_bytes, Slot::permute;

  typename B::Source source;
  std::int64_t stride;
  int first;                     // in the slot, of this wave's first copy; in units
  std::uint32_t offset[copies];  // in the source, of this lane's units of the wave's copies
  Chunk held[W::policy.path == GemmPath::staged ? copies : 1];

  template <class RowsOf>
  TILEWAVE_DEVICE GemmLdsRows(const void* base, std::int64_t layer_offset, std::int64_t row_stride,
                              const RowsOf& rows_of, std::int32_t k, int wave_row)
      : Slot(k, wave_row),
        source(W::template source<T>(base, layer_offset, row_stride, rows_of, k)),
        stride(row_stride * size_of(Slot::type)),
        first(B::wave_id() * copies * B::facts.wave_lanes) {
    const int lane = B::lane_id();
    TILEWAVE_UNROLL
    for (int i = 0; i < copies; ++i) {
      const int r = row_of(i, lane);
      offset[i] = rows_of.has(r) ? static_cast<std::uint32_t>(rows_of.row(r) * stride + unit_of(i, lane) * 16)
                                 : B::Source::nowhere;
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

 private:
  static constexpr bool whole_rows = B::facts.wave_lanes % row_units == 0;  // that a copy brings
  TILEWAVE_DEVICE int place(int i, int lane) const { return first + B::facts.wave_lanes * i + lane; }
  TILEWAVE_DEVICE int row_of(int i, int lane) const {
    if constexpr (!whole_rows) return place(i, lane) / row_units;
    return first / row_units + B::facts.wave_lanes / row_units * i + lane / row_units;
  }
  TILEWAVE_DEVICE int unit_of(int i, int lane) const {
    return (whole_rows ? lane : place(i, lane)) % row_units ^ permute(row_of(i, lane));
  }
  /// A step that is not whole, or beyond K, has units that are nowhere.
  template <bool whole>
  TILEWAVE_DEVICE std::uint32_t from(int i, std::int32_t step) const {
    if constexpr (whole) return offset[i];
    // Which unit is worked out anew where that takes a division: registers are full of what whole steps need.
    const int lane = whole_rows ? B::lane_id() : B::opaque(std::int32_t{B::lane_id()});
    return std::int64_t{step} * row_bytes + unit_of(i, lane) * 16 < k_bytes ? offset[i] : B::Source::nowhere;
  }
  template <bool whole>
  TILEWAVE_DEVICE std::int32_t start(std::int32_t step) const {
    return whole ? step * row_bytes : min_of(step, k_bytes / row_bytes) * row_bytes;
  }
};

}  // namespace tilewave
