// SPDX-License-Identifier: MIT
// Tiles of K and V lie in LDS for products of 32 x 32. A lane reads K as it lies, 16 bytes of a key at a time. It reads
// V as keys of one dimension side by side: the keys whose scores it has (ProductMap::kv_row), so that scores need no
// exchange to become an operand. If LDS can transpose as it is read, V lies as in memory. Else V is transposed in
// registers on its way into LDS.
#pragma once

#include "tilewave/ops/flash_attention/args.hpp"
#include "tilewave/tile/shared_tile.hpp"

namespace tilewave {

/// A kernel as SharedTile needs to see it, whose rows have `step_k` elements.
template <class B, int block_waves, int elements>
struct FlashTileKernel {
  using Backend = B;
  struct Map : ProductMap<32> {
    static constexpr bool by_lane = false;
  };
  static constexpr int side = 32, waves = block_waves, step_k = elements;
};

/// Tiles of bf16 and of f16 have the same layout, so one type stands for both.
inline constexpr DType flash_tile_type = DType::bf16;

/// Returns the key of element e = 0 .. 7 in k slice `k_slice`, 16 keys, of probabilities, for a lane of half `half`.
TILEWAVE_HOST_DEVICE constexpr int flash_key_of(int k_slice, int half, int e) {
  return 16 * k_slice + 8 * (e / 4) + 4 * half + e % 4;
}

/// What tiles of K and of V have in common: the waves that fetch and read them, their keys, and if keys are in pages.
struct FlashTile {
  int waves, keys;
  bool paged;
};

/// Where a fetch begins: an address, and an offset in bytes that is the same in all lanes. From `bytes` on nothing is
/// read, and zeros take its place: keys behind the last one, whose probabilities are 0.
struct FlashLdsPlace {
  const char* base;
  std::int32_t offset;
  std::uint32_t bytes;
};

/// Keys that lie together in every page. What a wave fetches at once is of one such group.
inline constexpr int flash_page_keys = 16;

/// Copies a tile of `rows` tokens of one head, each `units` units of 16 bytes, into a slot of LDS. Unit u of a row
/// becomes its chunk u ^ mask(row). Lanes write chunks in order, and the addresses in memory are what is permuted. In
/// pages a copy has the address of its group of tokens, else all copies have that of the tile.
template <class B, FlashTile T, int units>
struct FlashRowFetch {
  static constexpr int waves = T.waves, rows = T.keys;
  static constexpr bool paged = T.paged;
  static constexpr int lanes = B::facts.wave_lanes, copies = rows * units / (waves * lanes);
  static_assert(rows * units % (waves * lanes) == 0, "all lanes copy equally many 16 bytes");
  static constexpr bool held_in_registers = !B::facts.direct_copies;
  /// The rows of copy i lie so many behind those of copy i - 1. If they have the same masks, one lane offset serves all
  /// copies.
  static constexpr int row_step = waves * lanes / units;
  static constexpr bool alike = waves * lanes % units == 0 && row_step % 32 == 0;
  static_assert(!paged || flash_page_keys * units % lanes == 0, "a copy of a wave has tokens of one group");

  std::int32_t stride;  // bytes from a token to the next
  int first;            // this wave's first chunk in a slot
  std::uint32_t offset[alike ? 1 : copies];
  Chunk held[held_in_registers ? copies : 1];

  template <class Mask>
  TILEWAVE_DEVICE FlashRowFetch(std::int32_t token_stride, int wave, const Mask& mask)
      : stride(token_stride), first(wave * lanes) {
    TILEWAVE_UNROLL
    for (int i = 0; i < (alike ? 1 : copies); ++i)
      offset[i] = (row_of(i) - first_row(i)) * stride + 16 * unit_of(i, mask);
  }
  /// Returns the first token of copy i's group, or of the tile.
  TILEWAVE_DEVICE int first_row(int i) const {
    constexpr int group = flash_page_keys * units;
    return paged ? (i * waves * lanes + first) / group * flash_page_keys : 0;
  }

  /// Copies part i of a tile.
  template <int i>
  TILEWAVE_DEVICE void copy(Chunk* slot, const FlashLdsPlace& at) const {
    source(at).copy(slot + i * waves * lanes + first, offset[alike ? 0 : i], start<i>() + at.offset);
  }
  template <int i>
  TILEWAVE_DEVICE void load(const FlashLdsPlace& at) {
    held[i] = source(at).load(offset[alike ? 0 : i], start<i>() + at.offset);
  }
  template <int i>
  TILEWAVE_DEVICE void put(Chunk* slot) const {
    slot[i * waves * lanes + B::block_lane_id()] = held[i];
  }

 private:
  TILEWAVE_DEVICE static int chunk_index(int i) { return i * waves * lanes + B::block_lane_id(); }
  TILEWAVE_DEVICE static int row_of(int i) { return chunk_index(i) / units; }
  template <class Mask>
  TILEWAVE_DEVICE static int unit_of(int i, const Mask& mask) {
    return chunk_index(i) % units ^ mask(row_of(i));
  }
  TILEWAVE_DEVICE typename B::Source source(const FlashLdsPlace& at) const { return {at.base, at.bytes}; }
  template <int i>
  TILEWAVE_DEVICE std::int32_t start() const {
    return alike && !paged ? i * row_step * stride : 0;
  }
};

/// A tile of K has a row of `head_size` elements for each key.
template <class B, FlashTile T, int head_size>
struct FlashKeyTile : SharedTile<FlashTileKernel<B, T.waves, head_size>, flash_tile_type, T.keys, false> {
  using Tile = SharedTile<FlashTileKernel<B, T.waves, head_size>, flash_tile_type, T.keys, false>;
  using Fetch = FlashRowFetch<B, T, Tile::row_units>;
  static constexpr int bytes = T.keys * Tile::row_bytes, fetches = Fetch::copies;
  struct Mask {
    TILEWAVE_DEVICE int operator()(int row) const { return Tile::permute(row); }
  };

  Fetch fetch;

  TILEWAVE_DEVICE FlashKeyTile(std::int32_t stride, int wave) : Tile(head_size, 0), fetch(stride, wave, Mask{}) {
    TILEWAVE_UNROLL
    for (int i = 0; i < Tile::unit_offsets; ++i) Tile::at[i] = B::opaque(std::int32_t{Tile::at[i]});
  }

  template <int i>
  TILEWAVE_DEVICE void copy(Chunk* slot, const FlashLdsPlace& at) const {
    fetch.template copy<i>(slot, at);
  }
  template <int i>
  TILEWAVE_DEVICE void load(const FlashLdsPlace& at) {
    fetch.template load<i>(at);
  }
  template <int i>
  TILEWAVE_DEVICE void put(Chunk* slot) const {
    fetch.template put<i>(slot);
  }
  TILEWAVE_DEVICE int first_row(int i) const { return fetch.first_row(i); }
  /// Returns the lane's eight elements of k slice `k_slice`, 16 dimensions, for its key of the 32 keys `tile`.
  TILEWAVE_DEVICE Chunk operand(const Chunk* slot, int tile, int k_slice) const {
    return Tile::read(slot, tile, k_slice, 0);
  }
};

/// A tile of V as it lies in memory has a line of `value_size` elements for each key.
template <class B, FlashTile T, int value_size>
struct FlashValueLines {
  static constexpr int units = value_size / 8, tiles = value_size / 32, bytes = T.keys * value_size * 2;
  using Fetch = FlashRowFetch<B, T, units>;
  static constexpr int fetches = Fetch::copies;

  /// Returns the mask that spreads the lines of keys over banks. Sixteen lanes read four lines at once, 32 lanes 64
  /// bytes of each.
  TILEWAVE_HOST_DEVICE static constexpr int mask(int key, int shift) {
    return 4 * ((key >> shift) % min_of(4, units / 4));
  }
  /// Returns the offset in a slot, in units of 8 bytes, that a lane reads for dimensions from 32 `tile` on and keys 0
  /// to 15.
  TILEWAVE_HOST_DEVICE static constexpr int read_offset(int lane, int tile, int shift) {
    const int key = flash_key_of(0, lane / 32, 0) + lane % 16 / 4;
    const int unit = 4 * tile + 2 * (lane / 16 % 2) + lane % 4 / 2;
    return 2 * (key * units + (unit ^ mask(key, shift))) + lane % 2;
  }
  static constexpr int conflicts(int shift) {
    return lds_transposed_conflicts(B::facts.id, [shift](int lane) { return read_offset(lane, 0, shift); });
  }
  static constexpr int shift = conflicts(0) == 0 ? 0 : 1;
  static_assert(conflicts(shift) == 0, "lanes that are served together meet no bank twice");
  struct Mask {
    TILEWAVE_DEVICE int operator()(int key) const { return mask(key, shift); }
  };

  Fetch fetch;
  int at[tiles];

  TILEWAVE_DEVICE FlashValueLines(std::int32_t stride, int wave) : fetch(stride, wave, Mask{}) {
    TILEWAVE_UNROLL
    for (int t = 0; t < tiles; ++t) at[t] = B::opaque(std::int32_t{8 * read_offset(B::lane_id(), t, shift)});
  }

  template <int i>
  TILEWAVE_DEVICE void copy(Chunk* slot, const FlashLdsPlace& at) const {
    fetch.template copy<i>(slot, at);
  }
  TILEWAVE_DEVICE int first_row(int i) const { return fetch.first_row(i); }
  /// Returns the keys of k slice `k_slice` that the lane's half has, for dimension 32 `tile` + lane % 32.
  TILEWAVE_DEVICE Chunk operand(const Chunk* slot, int tile, int k_slice) const {
    const char* const from =
        reinterpret_cast<const char*>(slot) + at[tile] + flash_key_of(k_slice, 0, 0) * (16 * units);
    const Vec<std::uint32_t, 2> low = B::load_transposed(from),
                                high = B::load_transposed(from + flash_key_of(0, 0, 4) * (16 * units));
    return {{low[0], low[1], high[0], high[1]}};
  }
};

/// A transposed tile of V has a row of `keys` elements for each dimension, in the order of flash_key_of.
template <class B, FlashTile T, int value_size>
struct FlashTransposedValues : SharedTile<FlashTileKernel<B, T.waves, T.keys>, flash_tile_type, value_size, true> {
  using Tile = SharedTile<FlashTileKernel<B, T.waves, T.keys>, flash_tile_type, value_size, true>;
  static constexpr int waves = T.waves, keys = T.keys;
  static constexpr bool paged = T.paged;
  static constexpr int bytes = keys * value_size * 2, lanes = B::facts.wave_lanes;
  /// A lane transposes a square at a time: two dimensions of a unit of eight keys.
  static constexpr int pairs = value_size / 2, squares = keys / 8 * pairs, fetches = ceil_div(squares, waves*lanes);
  static constexpr bool all_lanes = squares % (waves * lanes) == 0;
  static_assert(squares % lanes == 0, "waves are busy as a whole");

  std::int32_t token_stride;      // bytes from a token to the next
  std::uint32_t offset[fetches];  // bytes to this lane's pair of dimensions of its unit's first key
  int to[fetches][2];             // chunks in a slot for the two dimensions
  std::uint32_t held[fetches][8];

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

  /// Loads part i of a tile. Unless the tile is whole, tokens behind its token `last` are that one again.
  template <int i, bool whole>
  TILEWAVE_DEVICE void load(const FlashLdsPlace& place, std::int32_t last) {
    const char* const tile = place.base + place.offset;
    if (!all_lanes && i * waves + B::wave_id() >= squares / lanes) return;
    TILEWAVE_UNROLL
    for (int e = 0; e < 8; ++e) {
      const int behind = flash_key_of(0, 0, e);  // the unit's first key
      if constexpr (whole) {
        held[i][e] =
            B::load(reinterpret_cast<const std::uint32_t*>(tile + std::int64_t{behind} * token_stride + offset[i]));
      } else {
        const std::int32_t before = paged ? min_of(first_row(i), align_down(last, flash_page_keys)) : 0;
        const std::uint32_t at = (min_of(first_key(i) + behind, last) - before) * token_stride + 4 * pair_of(i);
        held[i][e] = B::load(reinterpret_cast<const std::uint32_t*>(tile + at));
      }
    }
  }
  template <int i>
  TILEWAVE_DEVICE void put(Chunk* slot) const {
    if (!all_lanes && i * waves + B::wave_id() >= squares / lanes) return;
    Chunk of[2];
    TILEWAVE_UNROLL
    for (int w = 0; w < 4; ++w) {
      of[0][w] = B::template pick_bytes<0, 1, 4, 5>(held[i][2 * w], held[i][2 * w + 1]);
      of[1][w] = B::template pick_bytes<2, 3, 6, 7>(held[i][2 * w], held[i][2 * w + 1]);
    }
    slot[to[i][0]] = of[0];
    slot[to[i][1]] = of[1];
  }
  /// Returns the first key of fetch i's group, which all lanes of a wave share, or of the tile.
  TILEWAVE_DEVICE static int first_row(int i) {
    constexpr int units_of_group = flash_page_keys / 8;
    static_assert(units_of_group * pairs % lanes == 0, "a wave has keys of one group");
    return paged ? (i * waves + B::wave_id()) * lanes / (units_of_group * pairs) * flash_page_keys : 0;
  }
  TILEWAVE_DEVICE Chunk operand(const Chunk* slot, int tile, int k_slice) const {
    return Tile::read(slot, tile, k_slice, 0);
  }

 private:
  TILEWAVE_DEVICE static int square(int i) { return i * waves * lanes + B::block_lane_id(); }
  TILEWAVE_DEVICE static int pair_of(int i) { return square(i) % pairs; }
  /// Returns the unit of eight keys of square i. It is the same in all lanes of a wave if a wave has pairs of one unit.
  TILEWAVE_DEVICE static int unit_of(int i) {
    if constexpr (pairs % lanes == 0) return (i * waves + B::wave_id()) / (pairs / lanes);
    return square(i) / pairs;
  }
  TILEWAVE_DEVICE static int first_key(int i) { return flash_key_of(unit_of(i) / 2, unit_of(i) % 2, 0); }
};

}  // namespace tilewave
