// SPDX-License-Identifier: MIT
// Rows of one operand in a slot of LDS: a step of K of each, 128 bytes or of fp4 64, in units of 16 bytes. Unit u of
// row r is at place r times their number + (u ^ f(r)): copies write whole rows one after the other, so that it is their
// addresses in memory that are permuted, and reads of `side` rows meet no bank twice.
#pragma once

#include "tilewave/ops/gemm/lds_layout.hpp"

namespace tilewave {

/// f of a row of so many units: (row >> shift) % units, mixed with the number of its group of eight rows among
/// `eights`.
TILEWAVE_HOST_DEVICE constexpr int gemm_lds_mask(int units, int row, int shift, int eights) {
  return ((row >> shift) ^ (row / 8 % eights)) % units;
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
  static constexpr int piece_units = Map::units * chunks, pieces = row_units / piece_units;
  static constexpr int copies = rows * row_units / (waves * B::facts.wave_lanes);  // of a wave for a slot
  static_assert(rows * row_units % (waves * B::facts.wave_lanes) == 0);

  static constexpr int eights = mixed ? side / 8 : 1;
  static constexpr int conflicts(int shift) {
    int turns = 0;
    for (int first = 0; first < row_units; first += Map::units) {
      turns += lds_conflicts(B::facts.id, [&](int lane) {
        return Map::row(lane) * row_units +
               ((first + Map::unit(lane)) ^ gemm_lds_mask(row_units, Map::row(lane), shift, eights));
      });
    }
    return turns;
  }
  static constexpr int shift = conflicts(0) == 0 ? 0 : conflicts(1) == 0 ? 1 : 2;
  static_assert(conflicts(shift) == 0 && side % (row_units << shift) == 0);
  TILEWAVE_DEVICE static int permute(int row) { return gemm_lds_mask(row_units, row, shift, eights); }

  std::int32_t k_bytes;
  int at[row_units / Map::units];  // of this lane's unit 0, 0 + units, ... in its row of the wave's first product

  TILEWAVE_DEVICE GemmLdsSlot(std::int32_t k, int wave_row) : k_bytes(bytes_of(type, k)) {
    const int lane = B::lane_id(), row = Map::row(lane);
    TILEWAVE_UNROLL
    for (int i = 0; i < row_units / Map::units; ++i)
      at[i] = (wave_row + row) * row_units + ((Map::units * i + Map::unit(lane)) ^ permute(row));
  }

  /// Unit c of a lane for product `tile` of the wave.
  TILEWAVE_DEVICE Chunk read(const Chunk* slot, int tile, int piece, int c) const {
    return slot[at[piece * chunks + c] + tile * side * row_units];
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
    TILEWAVE_UNROLL
    for (int i = 0; i < copies; ++i) {
      const int r = row_of(i);
      offset[i] =
          rows_of.has(r) ? static_cast<std::uint32_t>(rows_of.row(r) * stride + unit_of(i) * 16) : B::Source::nowhere;
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
  TILEWAVE_DEVICE int row_of(int i) const {
    return first / row_units + B::facts.wave_lanes / row_units * i + B::lane_id() / row_units;
  }
  TILEWAVE_DEVICE int unit_of(int i) const { return B::lane_id() % row_units ^ permute(row_of(i)); }
  /// A step that is not whole, or beyond K, has units that are nowhere.
  template <bool whole>
  TILEWAVE_DEVICE std::uint32_t from(int i, std::int32_t step) const {
    if constexpr (whole) return offset[i];
    return std::int64_t{step} * row_bytes + unit_of(i) * 16 < k_bytes ? offset[i] : B::Source::nowhere;
  }
  template <bool whole>
  TILEWAVE_DEVICE std::int32_t start(std::int32_t step) const {
    return whole ? step * row_bytes : min_of(step, k_bytes / row_bytes) * row_bytes;
  }
};

}  // namespace tilewave
