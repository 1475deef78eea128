// SPDX-License-Identifier: MIT
// Path lds has these tiles of V where LDS reads as it lies: V is transposed in registers on its way into LDS.
#pragma once

#include "tilewave/ops/flash_attention/lds/tiles.hpp"

namespace tilewave {

/// A transposed tile of V has a row of `keys` elements for each dimension, in the order of flash_key_of.
template <class B, FlashTile T, int value_size>
struct FlashTransposedValues : SharedTile<FlashTileKernel<B, T.waves, T.keys>, T.type, value_size, true> {
  using Tile = SharedTile<FlashTileKernel<B, T.waves, T.keys>, T.type, value_size, true>;
  static constexpr int waves = T.waves, keys = T.keys;
  static constexpr bool paged = T.paged;
  static constexpr int bytes = keys * value_size * 2, lanes = B::facts.wave_lanes;
  /// A lane transposes a square at a time: two dimensions of a unit of eight keys.
  static constexpr int pairs = value_size / 2, squares = keys / 8 * pairs, fetches = ceil_div(squares, waves*lanes);
  static constexpr bool all_lanes = squares % (waves * lanes) == 0;
  static_assert(squares % lanes == 0, "waves are busy as a whole");
  static constexpr int puts = 2, loads = 8;  // of a fetch

  std::int32_t token_stride;      // bytes from a token to the next
  std::uint32_t offset[fetches];  // bytes to this lane's pair of dimensions of its unit's first key
  int to[fetches][2];             // chunks in a slot for the two dimensions
  std::uint32_t held[fetches][8];
  Chunk transposed[fetches][2];

  TILEWAVE_DEVICE FlashTransposedValues(std::int32_t of_tokens, int) : Tile(keys, 0), token_stride(of_tokens) {
    TILEWAVE_UNROLL
    for (int i = 0; i < Tile::unit_offsets; ++i) Tile::at[i] = B::opaque(std::int32_t{Tile::at[i]});
    TILEWAVE_UNROLL
    for (int i = 0; i < fetches; ++i) {
      offset[i] = (first_key(i) - first_row(i)) * token_stride + 4 * pair_of(i);
      TILEWAVE_UNROLL
      for (int d = 0; d < 2; ++d) {
        const int row = 2 * pair_of(i) + d;
        to[i][d] = row * Tile::row_units + (unit_of(i) ^ Tile::permute(row));
      }
    }
  }

  /// Loads key e of fetch i's square.
  template <int i, int e>
  TILEWAVE_DEVICE void load(const FlashLdsPlace& place) {
    const std::int32_t at = place.behind(flash_key_of<8>(0, 0, e) * token_stride);
    held[i][e] = typename B::Source{place.base, static_cast<std::uint32_t>(place.bytes)}.load_word(offset[i], at);
  }
  /// Transposes fetch i's square.
  template <int i>
  TILEWAVE_DEVICE void transpose() {
    TILEWAVE_UNROLL
    for (int w = 0; w < 4; ++w) {
      const std::uint32_t low = held[i][2 * w], high = held[i][2 * w + 1];
      transposed[i][0][w] = B::template pick_bytes<0, 1, 4, 5>(low, high);
      transposed[i][1][w] = B::template pick_bytes<2, 3, 6, 7>(low, high);
    }
    B::keep(transposed[i][0]), B::keep(transposed[i][1]);
  }
  /// Stores dimension d of fetch i's square.
  template <int i, int d>
  TILEWAVE_DEVICE void put(Chunk* slot) const {
    if (!all_lanes && i * waves + B::wave_id() >= squares / lanes) return;
    slot[to[i][d]] = transposed[i][d];
  }
  /// Returns the first key of fetch i's group, which all lanes of a wave share, or of the tile.
  TILEWAVE_DEVICE static int first_row(int i) {
    constexpr int units_of_group = flash_page_keys / 8;
    static_assert(units_of_group * pairs % lanes == 0, "a wave has keys of one group");
    return paged ? turn(i) * lanes / (units_of_group * pairs) * flash_page_keys : 0;
  }
  TILEWAVE_DEVICE void operand(const Chunk* slot, int tile, int k_slice, Chunk (&to)[1]) const {
    to[0] = Tile::read(slot, tile, k_slice, 0);
  }

 private:
  /// Returns the number of the wave's fetch i among all. If there are fewer, some waves load what others store,
  /// since waves whose loads are not as many would wait for all of theirs.
  TILEWAVE_DEVICE static int turn(int i) {
    const int number = i * waves + B::wave_id();
    return all_lanes ? number : number % (squares / lanes);
  }
  TILEWAVE_DEVICE static int square(int i) { return turn(i) * lanes + B::lane_id(); }
  TILEWAVE_DEVICE static int pair_of(int i) { return square(i) % pairs; }
  /// Returns the unit of eight keys of square i. It is the same in all lanes of a wave if a wave has pairs of one unit.
  TILEWAVE_DEVICE static int unit_of(int i) {
    if constexpr (pairs % lanes == 0) return turn(i) / (pairs / lanes);
    return square(i) / pairs;
  }
  TILEWAVE_DEVICE static int first_key(int i) { return flash_key_of<8>(unit_of(i) / 2, unit_of(i) % 2, 0); }
};

/// The same for 1-byte elements. A lane transposes a square of four keys and four dimensions at a time. A wave has
/// squares of one group of sixteen keys: lane l those of keys l / 16 and dimensions l % 16.
template <class B, FlashTile T, int value_size>
struct FlashTransposedBytes : SharedTile<FlashTileKernel<B, T.waves, T.keys>, T.type, value_size, false> {
  using Tile = SharedTile<FlashTileKernel<B, T.waves, T.keys>, T.type, value_size, false>;
  static constexpr int waves = T.waves, keys = T.keys, lanes = B::facts.wave_lanes, bytes = keys * value_size;
  static constexpr bool paged = T.paged;
  static constexpr int blocks = value_size / 64;  // of dimensions that a wave has at a time
  static constexpr int fetches = ceil_div(keys / flash_page_keys * blocks, waves);
  static constexpr bool all_waves = keys / flash_page_keys * blocks % waves == 0;
  static constexpr int puts = 2, loads = 4;  // of a fetch

  std::int32_t token_stride;      // bytes from a token to the next
  std::uint32_t offset[fetches];  // bytes to this lane's square, from its group's first key
  int to[fetches][4];             // words in a slot for the four dimensions
  std::uint32_t held[fetches][4];
  Chunk transposed[fetches];

  TILEWAVE_DEVICE FlashTransposedBytes(std::int32_t of_tokens, int) : Tile(keys, 0), token_stride(of_tokens) {
    const int lane = B::lane_id(), of_lane = row_of(Tile::Map::row(lane));
    TILEWAVE_UNROLL
    for (int i = 0; i < Tile::unit_offsets; ++i) {
      const int unit = Tile::unit(lane, i) ^ Tile::permute(of_lane);
      Tile::at[i] = B::opaque(std::int32_t{of_lane * Tile::row_units + unit});
    }
    TILEWAVE_UNROLL
    for (int i = 0; i < fetches; ++i) {
      offset[i] = (first_key() + (paged ? 0 : group(i) * flash_page_keys)) * token_stride + dimension(i);
      const int quad = first_key() / 4, word = group(i) % 2 * 2 + quad / 2, unit = group(i) / 2 * 2 + quad % 2;
      TILEWAVE_UNROLL
      for (int d = 0; d < 4; ++d) {
        const int row = row_of(dimension(i) + d);
        to[i][d] = (row * Tile::row_units + (unit ^ Tile::permute(row))) * 4 + word;
      }
    }
  }

  /// Loads key e of fetch i's square.
  template <int i, int e>
  TILEWAVE_DEVICE void load(const FlashLdsPlace& place) {
    const std::int32_t at = place.behind(e * token_stride);
    held[i][e] = typename B::Source{place.base, static_cast<std::uint32_t>(place.bytes)}.load_word(offset[i], at);
  }
  /// Transposes fetch i's square.
  template <int i>
  TILEWAVE_DEVICE void transpose() {
    TILEWAVE_UNROLL
    for (int half = 0; half < 2; ++half) {
      const auto pair = [&](int key) TILEWAVE_INLINE_LAMBDA {
        const std::uint32_t low = held[i][key], high = held[i][key + 1];
        return half == 0 ? B::template pick_bytes<0, 4, 1, 5>(low, high)
                         : B::template pick_bytes<2, 6, 3, 7>(low, high);
      };
      const std::uint32_t low = pair(0), high = pair(2);
      transposed[i][2 * half] = B::template pick_bytes<0, 1, 4, 5>(low, high);
      transposed[i][2 * half + 1] = B::template pick_bytes<2, 3, 6, 7>(low, high);
    }
    B::keep(transposed[i]);
  }
  /// Stores half of fetch i's square, two dimensions.
  template <int i, int half>
  TILEWAVE_DEVICE void put(Chunk* slot) const {
    if (!all_waves && i * waves + B::wave_id() >= keys / flash_page_keys * blocks) return;
    auto* const words = reinterpret_cast<std::uint32_t*>(slot);
    TILEWAVE_UNROLL
    for (int d = 2 * half; d < 2 * half + 2; ++d) words[to[i][d]] = transposed[i][d];
  }
  /// Returns the first key of fetch i's group, which all lanes of a wave share, or of the tile.
  TILEWAVE_DEVICE static int first_row(int i) { return paged ? group(i) * flash_page_keys : 0; }
  TILEWAVE_DEVICE void operand(const Chunk* slot, int tile, int k_slice, Chunk (&to_chunks)[1]) const {
    to_chunks[0] = Tile::read(slot, tile, k_slice, 0);
  }

 private:
  /// Returns the row in a slot of a dimension. Lanes store to every fourth dimension at once, and some of their rows
  /// must have the other half of the banks.
  TILEWAVE_HOST_DEVICE static constexpr int row_of(int dimension) { return dimension ^ dimension / 8 % 2; }
  /// Returns the number of the wave's fetch i among all, as above.
  TILEWAVE_DEVICE static int turn(int i) {
    const int number = i * waves + B::wave_id();
    return all_waves ? number : number % (keys / flash_page_keys * blocks);
  }
  /// Returns the group of sixteen keys of fetch i, which a wave's lanes share.
  TILEWAVE_DEVICE static int group(int i) { return turn(i) / blocks; }
  TILEWAVE_DEVICE static int dimension(int i) { return turn(i) % blocks * 64 + B::lane_id() % 16 * 4; }
  TILEWAVE_DEVICE static int first_key() { return B::lane_id() / 16 * 4; }  // of the lane's square, in its group
};

}  // namespace tilewave
