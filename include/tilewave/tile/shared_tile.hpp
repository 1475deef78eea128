// SPDX-License-Identifier: MIT
// A tile of one operand in LDS, swizzled: unit u, 16 bytes, of row r is at place r times their number + (u ^ f(r)), so
// that rows that are read together meet no bank twice, which is counted when a kernel is compiled.
#pragma once

#include "tilewave/arch/backend.hpp"
#include "tilewave/arch/lds.hpp"
#include "tilewave/tile/element.hpp"

namespace tilewave {

/// f of a row of so many units: (row >> shift) % units (of six units: % 2), mixed with the number of its group of eight
/// rows among `eights`.
TILEWAVE_HOST_DEVICE constexpr int swizzle_mask(int units, int row, int shift, int eights) {
  return ((row >> shift) ^ (row / 8 % eights)) % (units & -units);
}

/// `rows` rows of an operand of type T, which waves read as products take it. W, the kernel's, has Backend, the Map of
/// a product's operands (which row and which units a lane has), a product's `side` of rows, `waves` of the block, and
/// `step_k`, values of K that a row has here. `mixed`: f also differs between neighbouring groups of eight rows, for
/// those who store to one row of each at a time.
template <class W, DType T, int rows, bool mixed>
struct SharedTile {
  using B = typename W::Backend;
  using Map = typename W::Map;
  static constexpr int side = W::side, waves = W::waves;
  static constexpr DType type = T;
  static constexpr int row_bytes = bytes_of(type, W::step_k), row_units = row_bytes / 16;
  static constexpr int chunks = B::template product_chunks<type>;
  static constexpr int lane_units = row_units / Map::units;  // of a step
  static constexpr bool sixes = is_fp6(type);                // two pieces share a unit
  static constexpr int pieces = sixes ? 2 : lane_units / chunks;
  static_assert(lane_units == (sixes ? 3 : pieces * chunks) && row_units % Map::units == 0,
                "a row is a whole number of products, of fp6 two");
  static constexpr int copies = rows * row_units / (waves * B::facts.wave_lanes);  // of a wave for a slot
  static_assert(rows * row_units % (waves * B::facts.wave_lanes) == 0, "all lanes copy equally many 16 bytes");

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
        return row * row_units + (unit(lane, i) ^ swizzle_mask(row_units, row, shift, eights));
      });
    }
    return turns;
  }
  static constexpr int shift = conflicts(0) == 0 ? 0 : conflicts(1) == 0 ? 1 : conflicts(2) == 0 ? 2 : 4;
  static_assert(conflicts(shift) == 0 && side % ((row_units & -row_units) << shift) == 0,
                "no swizzle of such rows keeps lanes that are served together from one bank");
  TILEWAVE_DEVICE static int permute(int row) { return swizzle_mask(row_units, row, shift, eights); }

  std::int32_t k_bytes;
  /// f changes low bits of a unit's number alone: behind so many units of a lane, places are as far apart as the units.
  static constexpr int places = sixes ? row_units & -row_units : lane_units;
  int at[places];  // of this lane's units in its row of the wave's first product

  TILEWAVE_DEVICE SharedTile(std::int32_t k, int wave_row) : k_bytes(bytes_of(type, k)) {
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

}  // namespace tilewave
