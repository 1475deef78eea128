// SPDX-License-Identifier: MIT
// Tiles of K and V lie in LDS for products of 32 x 32. A lane reads K as it lies, 16 bytes of a key at a time. It reads
// V as keys of one dimension side by side: the keys whose scores it has (ProductMap::kv_row), so that scores need no
// exchange to become an operand. If LDS can transpose as it is read, V lies as in memory. Else V is transposed in
// registers on its way into LDS (transposed.hpp).
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

/// Returns the key of element e in 16 bytes `chunk` of a lane's probabilities, which are `elements` elements. `half` is
/// the lane's half of the wave.
template <int elements>
TILEWAVE_HOST_DEVICE constexpr int flash_key_of(int chunk, int half, int e) {
  return 2 * elements * chunk + 8 * (e / 4) + 4 * half + e % 4;
}

/// What tiles of K and of V have in common: the waves that fetch and read them, their keys, their type, and if keys
/// are in pages. Tiles of bf16 and of f16 have one layout, so bf16 stands for both.
struct FlashTile {
  int waves, keys;
  DType type;
  bool paged;
  constexpr int unit() const { return 16 / size_of(type); }  // elements
};

/// Where a fetch begins: an address, and an offset in bytes that is the same in all lanes. From `bytes` on nothing is
/// read, and zeros take its place: keys behind the last one, whose probabilities are 0. The offset is at most `bytes`,
/// since CDNA's guides compare lanes' offsets with the difference of both.
struct FlashLdsPlace {
  const char* base;
  std::int32_t offset, bytes;  // unsigned

  /// Returns the offset of what lies so many bytes behind, or `bytes` if that is beyond.
  TILEWAVE_DEVICE std::int32_t behind(std::int32_t distance) const {
    return static_cast<std::int32_t>(
        min_of(static_cast<std::uint32_t>(offset) + distance, static_cast<std::uint32_t>(bytes)));
  }
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
  static_assert(!paged || flash_page_keys * units % lanes == 0, "a copy of a wave has tokens of one group");

  std::int32_t stride;  // bytes from a token to the next
  int first;            // this wave's first chunk in a slot
  std::uint32_t offset[copies];
  Chunk held[held_in_registers ? copies : 1];

  template <class Mask>
  TILEWAVE_DEVICE FlashRowFetch(std::int32_t token_stride, int wave, const Mask& mask)
      : stride(token_stride), first(wave * lanes) {
    TILEWAVE_UNROLL
    for (int i = 0; i < copies; ++i) offset[i] = (row_of(i) - first_row(i)) * stride + 16 * unit_of(i, mask);
  }
  /// Returns the first token of copy i's group, or of the tile.
  TILEWAVE_DEVICE int first_row(int i) const {
    constexpr int group = flash_page_keys * units;
    return paged ? (i * waves * lanes + first) / group * flash_page_keys : 0;
  }

  /// Copies part i of a tile.
  template <int i>
  TILEWAVE_DEVICE void copy(Chunk* slot, const FlashLdsPlace& at) const {
    source(at).copy(slot + i * waves * lanes + first, offset[i], at.offset);
  }
  template <int i>
  TILEWAVE_DEVICE void load(const FlashLdsPlace& at) {
    held[i] = source(at).load(offset[i], at.offset);
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
  TILEWAVE_DEVICE typename B::Source source(const FlashLdsPlace& at) const {
    return {at.base, static_cast<std::uint32_t>(at.bytes)};
  }
};

/// A tile of K has a row of `head_size` elements for each key.
template <class B, FlashTile T, int head_size>
struct FlashKeyTile : SharedTile<FlashTileKernel<B, T.waves, head_size>, T.type, T.keys, false> {
  using Tile = SharedTile<FlashTileKernel<B, T.waves, head_size>, T.type, T.keys, false>;
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
  /// Reads the lane's elements of k slice `k_slice`, the dimensions of one product, for its key of the 32 keys `tile`.
  template <int chunks>
  TILEWAVE_DEVICE void operand(const Chunk* slot, int tile, int k_slice, Chunk (&to)[chunks]) const {
    TILEWAVE_UNROLL
    for (int c = 0; c < chunks; ++c) to[c] = Tile::read(slot, tile, k_slice, c);
  }
};

/// A tile of V as it lies in memory has a line of `value_size` elements for each key.
/// Slots of V begin `first_byte` bytes behind the start of LDS. Lanes' offsets count from there, since an instruction
/// adds less than 64 KiB to them.
template <class B, FlashTile T, int value_size, int first_byte>
struct FlashValueLines {
  static constexpr int element = size_of(T.type), unit = T.unit();
  static constexpr int units = value_size / unit, tiles = value_size / 32, bytes = T.keys * value_size * element;
  static constexpr int read_keys = 8 / element, row_lanes = 16 / read_keys;  // of one read of sixteen lanes
  using Fetch = FlashRowFetch<B, T, units>;
  static constexpr int fetches = Fetch::copies;

  /// Returns the mask that spreads the lines of keys over banks. 32 lanes read 64 bytes of four lines at once, or of
  /// 1-byte elements 32 bytes of eight lines.
  TILEWAVE_HOST_DEVICE static constexpr int mask(int key, int shift) {
    if constexpr (element == 2) return 4 * ((key >> shift) % min_of(4, units / 4));
    constexpr int places = min_of(8, units / 2);
    return 2 * ((key % 4 + key / 8 % 2 * 4) / (8 / places));
  }
  /// Returns the offset in a slot, in units of 8 bytes, that a lane reads first for dimensions from 32 `tile` on.
  TILEWAVE_HOST_DEVICE static constexpr int read_offset(int lane, int tile, int shift) {
    const int key = flash_key_of<unit>(0, lane / 32, lane % 16 / row_lanes);
    const int byte = element * (32 * tile + lane / 16 % 2 * 16) + lane % row_lanes * 8;
    return 2 * (key * units + (byte / 16 ^ mask(key, shift))) + byte / 8 % 2;
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
    for (int t = 0; t < tiles; ++t)
      at[t] = B::opaque(std::int32_t{first_byte + 8 * read_offset(B::lane_id(), t, shift)});
  }

  template <int i>
  TILEWAVE_DEVICE void copy(Chunk* slot, const FlashLdsPlace& at) const {
    fetch.template copy<i>(slot, at);
  }
  TILEWAVE_DEVICE int first_row(int i) const { return fetch.first_row(i); }
  /// Reads the keys of k slice `k_slice` that the lane's half has, for dimension 32 `tile` + lane % 32.
  template <int chunks>
  TILEWAVE_DEVICE void operand(const Chunk* slot, int tile, int k_slice, Chunk (&to)[chunks]) const {
    TILEWAVE_UNROLL
    for (int c = 0; c < chunks; ++c) {
      const char* const from = reinterpret_cast<const char*>(slot) - first_byte + at[tile] +
                               flash_key_of<unit>(k_slice * chunks + c, 0, 0) * (16 * units);
      const Vec<std::uint32_t, 2> low = B::template load_transposed<element>(from),
                                  high = B::template load_transposed<element>(
                                      from + flash_key_of<unit>(0, 0, read_keys) * (16 * units));
      to[c] = {{low[0], low[1], high[0], high[1]}};
    }
  }
};

}  // namespace tilewave
