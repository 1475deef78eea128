// SPDX-License-Identifier: MIT
// A tile of one operand in LDS, swizzled. The 16-byte unit u of row r lies at unit index r row_units + (u ^ f(r)). Rows
// that are read together then meet no bank twice, which is verified when a kernel is compiled.
#pragma once

#include "tilewave/arch/backend.hpp"
#include "tilewave/arch/lds.hpp"
#include "tilewave/tile/element.hpp"

namespace tilewave {

/// Returns f(row) for rows of `units` units: (row >> shift) % units, or % 2 for six units. It is mixed with the number
/// of the row's group of eight among `eights`.
TILEWAVE_HOST_DEVICE constexpr int swizzle_mask(int units, int row, int shift, int eights) {
  return ((row >> shift) ^ (row / 8 % eights)) % (units & -units);
}

/// `rows` rows of an operand of type T, which waves read as products take it. W, the kernel's wave tile, has Backend;
/// Map (which row and units of a product's operand a lane has); `side`, the rows of a product; `waves` of the block;
/// and `step_k`, the values of K that a row has here. With `mixed`, f also differs between neighbouring groups of eight
/// rows, for kernels that store to one row of each at a time.
template <class W, DType T, int rows, bool mixed>
struct SharedTile {
  using B = typename W::Backend;
  using Map = typename W::Map;
  static constexpr int side = W::side, waves = W::waves;
  static constexpr DType type = T;
  static constexpr int row_bytes = bytes_of(type, W::step_k), row_units = row_bytes / 16;
  static constexpr int chunks = B::template product_chunks<type>;
  static constexpr int lane_units = row_units / Map::units;  // units that a lane reads in a step
  static constexpr bool sixes = is_fp6(type);                // two products share a unit
  static constexpr int k_slices = sixes ? 2 : lane_units / chunks;
  static_assert(lane_units == (sixes ? 3 : k_slices * chunks) && row_units % Map::units == 0,
                "a row is a whole number of products, of fp6 two");
  // copies that a wave issues for a slot
  static constexpr int copies = rows * row_units / (waves * B::facts.wave_lanes);
  static_assert(rows * row_units % (waves * B::facts.wave_lanes) == 0, "all lanes copy equally many 16 bytes");

  static constexpr int eights = mixed ? side / 8 : 1;
  /// Returns the number of the lane's i-th unit in a row.
  TILEWAVE_HOST_DEVICE static constexpr int unit(int lane, int i) {
    return Map::by_lane ? lane_units * Map::unit(lane) + i : Map::units * i + Map::unit(lane);
  }
  static constexpr int conflicts(int shift) {
    int cycles = 0;
    for (int i = 0; i < lane_units; ++i) {
      cycles += lds_conflicts(B::facts.id, [&](int lane) {
        const int row = Map::row(lane);
        return row * row_units + (unit(lane, i) ^ swizzle_mask(row_units, row, shift, eights));
      });
    }
    return cycles;
  }
  static constexpr int shift = conflicts(0) == 0 ? 0 : conflicts(1) == 0 ? 1 : conflicts(2) == 0 ? 2 : 4;
  static_assert(conflicts(shift) == 0 && side % ((row_units & -row_units) << shift) == 0,
                "no swizzle of such rows keeps lanes that are served together from one bank");
  TILEWAVE_DEVICE static int permute(int row) { return swizzle_mask(row_units, row, shift, eights); }

  std::int32_t k_bytes;
  /// f changes only the low bits of a unit's number, so after this many units the offsets repeat with a constant
  /// distance.
  static constexpr int unit_offsets = sixes ? row_units & -row_units : lane_units;
  int at[unit_offsets];  // offsets of this lane's units in its row of the wave's first product

  TILEWAVE_DEVICE SharedTile(std::int32_t k, int wave_row) : k_bytes(bytes_of(type, k)) {
    const int lane = B::lane_id(), row = Map::row(lane);
    TILEWAVE_UNROLL
    for (int i = 0; i < unit_offsets; ++i) at[i] = (wave_row + row) * row_units + (unit(lane, i) ^ permute(row));
  }

  /// Returns unit c of this lane for product `tile` of the wave. With fp6, the first unit of the second product is the
  /// last of the first.
  TILEWAVE_DEVICE Chunk read(const Chunk* slot, int tile, int slice, int c) const {
    const int i = sixes ? slice + c : slice * chunks + c;
    return slot[at[i % unit_offsets] + i / unit_offsets * unit_offsets + tile * side * row_units];
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
