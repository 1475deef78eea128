// SPDX-License-Identifier: MIT
// Which head dimensions of V, and so of the output, each out tile holds; and V of token_major caches on its way from
// memory to the matrix instruction.
//
// One mma takes V of one head dimension per position of a lane group (A.kv of them) and of x tokens per lane. A
// dim_major cache has those x tokens side by side: 16 bytes are one operand chunk, out tile i is the dimensions A.kv *
// i ... A token_major cache has dimensions side by side. There a lane loads `width` neighbouring dimensions of each of
// its x tokens, and turns that x-by-width square around in registers: the result is the chunks of `width` out tiles,
// whose dimensions interleave. Either way a lane's accumulators of one such block of tiles are neighbouring dimensions.
#pragma once

#include "tilewave/arch/backend.hpp"
#include "tilewave/ops/paged_attention/spec.hpp"

namespace tilewave {

/// Out tiles come in blocks of `width`; `count` is a whole number of blocks, so the last ones may lie past head_size.
struct ValueTiles {
  int count, width;
};

constexpr ValueTiles value_tiles(const AtomFacts& a, const PagedAttentionSpec& s) {
  const int tiles = ceil_div(s.head_size, a.kv);
  if (s.values == ValueLayout::dim_major) return {tiles, 1};
  // At least a word, for byte permutes; wider for wide loads, even if a few tiles are added: 5 may become 8, not 4.
  // At most 8, so that blocks are small enough to cut V into slices.
  int width = 4 / size_of(s.kv);
  while (width < 8 && 5 * align_up(tiles, 2 * width) <= 8 * tiles) width *= 2;
  return {align_up(tiles, width), width};
}

template <class B, PagedAttentionSpec S>
struct ValueMap {
  static constexpr AtomFacts atom = B::atom;
  static constexpr ValueTiles tiles = value_tiles(B::atom, S);
  static constexpr int width = tiles.width, block_dims = width * atom.kv;
  static constexpr int run = width * atom.kv_per_lane;                       // dimensions of a lane's accumulators
  static constexpr bool padded = tiles.count * int{atom.kv} != S.head_size;  // the last block ends past head_size
  static_assert(S.head_size % width == 0, "a lane loads as many dimensions at a time as divide the head");

  /// First of the `width` dimensions that the lane at `position` loads of a block.
  TILEWAVE_HOST_DEVICE static constexpr int first_loaded(int block, int position) {
    return block * block_dims + position * width;
  }
  /// First of the `run` dimensions that a lane of `group` accumulates in a block.
  TILEWAVE_HOST_DEVICE static constexpr int first_held(int block, int group) {
    return block * block_dims + group * run;
  }
  /// Of the n-th of those: its out tile inside the block, and its column among the kv_per_lane of one row.
  TILEWAVE_HOST_DEVICE static constexpr int tile_of(int n) { return n % width; }
  TILEWAVE_HOST_DEVICE static constexpr int column_of(int n) { return n / width; }
};

/// One block of V of a token_major cache in `width` chunks: as loaded, x pieces of `width` dimensions of one token
/// each; transposed, one chunk of x tokens for each dimension.
template <class B, PagedAttentionSpec S>
struct ValueSquare {
  static constexpr int unit = S.unit(), width = ValueMap<B, S>::width;
  static constexpr int piece_words = width * size_of(S.kv) / 4;
  using Piece = Vec<std::uint32_t, piece_words>;

  /// Word i of the piece of token e.
  TILEWAVE_DEVICE static std::uint32_t& word(Chunk* square, int e, int i) {
    const int n = e * piece_words + i;
    return square[n / 4][n % 4];
  }
  TILEWAVE_DEVICE static void put(Chunk* square, int e, const Piece& piece) {
    TILEWAVE_UNROLL
    for (int i = 0; i < piece_words; ++i) word(square, e, i) = piece[i];
  }

  /// Zero the tokens outside [first, end), the unit's first being `token`: 0 * NaN of an unused cache slot is NaN.
  TILEWAVE_DEVICE static void zero_outside(Chunk* square, std::int32_t token, std::int32_t first, std::int32_t end) {
    TILEWAVE_UNROLL
    for (int e = 0; e < unit; ++e) {
      if (token + e >= first && token + e < end) continue;
      put(square, e, Piece{});
    }
  }

  TILEWAVE_DEVICE static void transpose(Chunk* square) {
    Chunk transposed[width];
    constexpr int per_word = 4 / size_of(S.kv);  // dimensions in a loaded word, tokens in a transposed one
    TILEWAVE_UNROLL
    for (int d = 0; d < width; d += per_word) {
      TILEWAVE_UNROLL
      for (int w = 0; w < 4; ++w) {
        std::uint32_t in[per_word];
        TILEWAVE_UNROLL
        for (int e = 0; e < per_word; ++e) in[e] = word(square, w * per_word + e, d / per_word);
        if constexpr (per_word == 2) {
          transposed[d][w] = low_halves(in[0], in[1]);
          transposed[d + 1][w] = high_halves(in[0], in[1]);
        } else {
          const std::uint32_t even = low_bytes(in[0], in[1]), odd = high_bytes(in[0], in[1]);
          const std::uint32_t even_next = low_bytes(in[2], in[3]), odd_next = high_bytes(in[2], in[3]);
          transposed[d][w] = low_halves(even, even_next);
          transposed[d + 1][w] = high_halves(even, even_next);
          transposed[d + 2][w] = low_halves(odd, odd_next);
          transposed[d + 3][w] = high_halves(odd, odd_next);
        }
      }
    }
    TILEWAVE_UNROLL
    for (int i = 0; i < width; ++i) square[i] = transposed[i];
  }

 private:
  TILEWAVE_DEVICE static std::uint32_t low_halves(std::uint32_t a, std::uint32_t b) {
    return B::template pick_bytes<0, 1, 4, 5>(a, b);
  }
  TILEWAVE_DEVICE static std::uint32_t high_halves(std::uint32_t a, std::uint32_t b) {
    return B::template pick_bytes<2, 3, 6, 7>(a, b);
  }
  TILEWAVE_DEVICE static std::uint32_t low_bytes(std::uint32_t a, std::uint32_t b) {
    return B::template pick_bytes<0, 4, 1, 5>(a, b);
  }
  TILEWAVE_DEVICE static std::uint32_t high_bytes(std::uint32_t a, std::uint32_t b) {
    return B::template pick_bytes<2, 6, 3, 7>(a, b);
  }
};

}  // namespace tilewave
