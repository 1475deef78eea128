// SPDX-License-Identifier: MIT
// Rows of one operand in a slot of LDS: a step of K of each, 128 bytes, of fp6 96 and of fp4 64, in units of 16 bytes.
// Unit u of row r is at place r times their number + (u ^ f(r)): copies write whole rows one after the other, so that
// it is their addresses in memory that are permuted, and reads of `side` rows meet no bank twice.
#pragma once

#include "tilewave/ops/gemm/lds_layout.hpp"

namespace tilewave {

/// f of a row of so many units: (row >> shift) % units (of six units: % 2), mixed with the number of its group of eight
/// rows among `eights`.
TILEWAVE_HOST_DEVICE constexpr int gemm_lds_mask(int units, int row, int shift, int eights) {
  return ((row >> shift) ^ (row / 8 % eights)) % (units & -units);
}

/// A slot of `rows` rows of an operand, of the waves of W. `mixed`: f also differs between neighbouring groups of eight
/// rows, for those who store to one row of each at a time.
template <class W, DType T, int rows, bool mixed>
struct GemmLdsSlot {
  using B = typename W::Backend;
  using Map = typename W::Map;
  static constexpr int side = W::side, waves = W::waves;
  static constexpr DType type = T;
  static constexpr int row_bytes = bytes_of(type, W::step_k), row_units = row_bytes / 16;
  static constexpr int chunks = B::template product_chunks<type>;
  static constexpr int lane_units = row_units / Map::units;  // of a step
  static constexpr bool sixes = is_fp6(type);                // two pieces share a unit
  static constexpr int pieces = sixes ? 2 : lane_units / chunks;
  static_assert(lane_units == (sixes ? 3 : pieces * chunks) && row_units % Map::units == 0);
  static constexpr int copies = rows * row_units / (waves * B::facts.wave_lanes);  // of a wave for a slot
  static_assert(rows * row_units % (waves * B::facts.wave_lanes) == 0);

  static constexpr int eights = mixed ? side / 8 : 1;
  /// Unit i of a lane in a row.
  TILEWAVE_HOST_DEVICE static constexpr int unit(int lane, int i) {
    return Map::by_lane ? lane_units * Map::unit(lane) + i : Map::units * i + Map::unit(lane);
  }
  static constexpr int conflicts(int shift) {
    int turns = 0;
    for (int i = 0; i < lane_units; ++i) {
      turns += lds_conflicts(B::facts.id, [&](int lane) {
        const int row = Map::row(lane);
        return row * row_units + (unit(lane, i) ^ gemm_lds_mask(row_units, row, shift, eights));
      });
    }
    return turns;
  }
  static constexpr int shift = conflicts(0) == 0 ? 0 : conflicts(1) == 0 ? 1 : conflicts(2) == 0 ? 2 : 4;
  static_assert(conflicts(shift) == 0 && side % ((row_units & -row_units) << shift) == 0);
  TILEWAVE_DEVICE static int permute(int row) { return gemm_lds_mask(row_units, row, shift, eights); }

  std::int32_t k_bytes;
  /// f changes low bits of a unit's number alone: behind so many units of a lane, places are as far apart as the units.
  static constexpr int places = sixes ? row_units & -row_units : lane_units;
  int at[places];  // of this lane's units in its row of the wave's first product

  TILEWAVE_DEVICE GemmLdsSlot(std::int32_t k, int wave_row) : k_bytes(bytes_of(type, k)) {
    const int lane = B::lane_id(), row = Map::row(lane);
    TILEWAVE_UNROLL
    for (int i = 0; i < places; ++i) at[i] = (wave_row + row) * row_units + (unit(lane, i) ^ permute(row));
  }

  /// Unit c of a lane for product `tile` of the wave. The first of fp6's second piece is the last of its first.
  TILEWAVE_DEVICE Chunk read(const Chunk* slot, int tile, int piece, int c) const {
    const int i = sixes ? piece + c : piece * chunks + c;
    return slot[at[i % places] + i / places * places + tile * side * row_units];
  }

  TILEWAVE_DEVICE bool ends_within(std::int32_t step) const { return k_bytes % 16 != 0 && k_bytes / row_bytes == step; }
  TILEWAVE_DEVICE void clean(Chunk* slot) const {
    const int unit = k_bytes % row_bytes / 16, bytes = k_bytes % 16;
    for (int row = B::block_lane_id(); row < rows; row += waves * B::facts.wave_lanes) {
      Chunk& last = slot[row * row_units + (unit ^ permute(row))];
      TILEWAVE_UNROLL
      for (int w = 0; w < 4; ++w) {
        const int kept = bytes - 4 * w;
        if (kept < 4) last[w] &= kept <= 0 ? 0u : (1u << 8 * kept) - 1u;
      }
    }
  }
};

/// Rows whose k lie side by side in memory: those of a tile, as W::RowsOfA or RowsOfB has them.
template <class W, DType T, int rows>
struct GemmLdsRows : GemmLdsSlot<W, T, rows, false> {
  using Slot = GemmLdsSlot<W, T, rows, false>;
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
    const int lane = whole_rows ? B::lane_id() : B::settle(std::int32_t{B::lane_id()});
    return std::int64_t{step} * row_bytes + unit_of(i, lane) * 16 < k_bytes ? offset[i] : B::Source::nowhere;
  }
  template <bool whole>
  TILEWAVE_DEVICE std::int32_t start(std::int32_t step) const {
    return whole ? step * row_bytes : min_of(step, k_bytes / row_bytes) * row_bytes;
  }
};

}  // namespace tilewave
