// SPDX-License-Identifier: MIT
// Which head dimensions of V, and so of the output, each output tile holds; and how V of a token_major cache is
// transposed on its way from memory to the matrix instruction.
//
// One mma takes V of one head dimension for each position of a lane group (atom.kv of them), and of x tokens per lane.
// A dim_major cache has those x tokens side by side. 16 bytes are then one operand, and output tile i has the
// dimensions atom.kv * i and following. A token_major cache has dimensions side by side. There a lane loads `width`
// neighbouring dimensions of each of its x tokens, and transposes them in registers into operands of `width` output
// tiles, whose dimensions interleave. Either way a lane's accumulators of a block of `width` tiles are neighbouring
// dimensions.
#pragma once

#include "tilewave/arch/backend.hpp"
#include "tilewave/attention/cache.hpp"

namespace tilewave {

/// Output tiles come in blocks of `width`. `count` is a whole number of blocks, so the last tiles may lie past the
/// head.
struct ValueTiles {
  int count, width;
};

constexpr ValueTiles value_tiles(const AtomFacts& atom, const ValueShape& v) {
  const int tiles = ceil_div(v.head_size, atom.kv);
  if (v.layout == ValueLayout::dim_major) return {tiles, 1};
  // A width of at least one word serves byte permutes. Wider ones give wide loads, even if they add a few tiles: 5
  // tiles may become 8, but 4 may not. More than 8 would make blocks too large for cutting V into slices.
  int width = 4 / v.element_bytes;
  while (width < 8 && 5 * align_up(tiles, 2 * width) <= 8 * tiles) width *= 2;
  return {align_up(tiles, width), width};
}

/// Where the dimensions of V and of the output lie among the lanes of room B.
template <class B, ValueShape V>
struct ValueMap {
  static constexpr AtomFacts atom = B::atom;
  static constexpr ValueTiles tiles = value_tiles(B::atom, V);
  static constexpr int width = tiles.width, block_dims = width * atom.kv;
  static constexpr int run = width * atom.kv_per_lane;                       // of a lane, neighbouring dimensions
  static constexpr bool padded = tiles.count * int{atom.kv} != V.head_size;  // the last block ends past the head
  static_assert(V.head_size % width == 0, "a lane loads as many dimensions at a time as divide the head");

  /// The first of the `width` dimensions of a block that the lane at `position` of its lane group loads.
  TILEWAVE_HOST_DEVICE static constexpr int first_loaded(int block, int position) {
    return block * block_dims + position * width;
  }
  /// The first of the `run` dimensions of a block that a lane of `lane_group` accumulates.
  TILEWAVE_HOST_DEVICE static constexpr int first_held(int block, int lane_group) {
    return block * block_dims + lane_group * run;
  }
  /// The tile of the block, and the column among kv_per_lane, that have the n-th dimension of a run.
  TILEWAVE_HOST_DEVICE static constexpr int tile_of(int n) { return n % width; }
  TILEWAVE_HOST_DEVICE static constexpr int column_of(int n) { return n / width; }
};

/// One block of V of a token_major cache in `width` chunks of 16 bytes. As loaded they are [x tokens][width
/// dimensions]; transposed they are [width dimensions][x tokens], an operand each.
template <class B, ValueShape V>
struct ValueTranspose {
  static constexpr int unit = V.unit(), width = ValueMap<B, V>::width;
  static constexpr int token_words = width * V.element_bytes / 4;  // of one token's dimensions
  using TokenDims = Vec<std::uint32_t, token_words>;

  TILEWAVE_DEVICE static void set_token(Chunk* block, int token, const TokenDims& dims) {
    TILEWAVE_UNROLL
    for (int i = 0; i < token_words; ++i) word(block, token, i) = dims[i];
  }

  /// Zeroes the tokens outside [first, end) of a block as loaded, whose first is `token`. See unattended.hpp.
  TILEWAVE_DEVICE static void zero_outside(Chunk* block, std::int32_t token, std::int32_t first, std::int32_t end) {
    TILEWAVE_UNROLL
    for (int e = 0; e < unit; ++e) {
      if (token + e >= first && token + e < end) continue;
      set_token(block, e, TokenDims{});
    }
  }

  TILEWAVE_DEVICE static void transpose(Chunk* block) {
    Chunk transposed[width];
    constexpr int per_word = 4 / V.element_bytes;  // dimensions in a loaded word, tokens in a transposed one
    TILEWAVE_UNROLL
    for (int d = 0; d < width; d += per_word) {
      TILEWAVE_UNROLL
      for (int w = 0; w < 4; ++w) {
        std::uint32_t in[per_word];
        TILEWAVE_UNROLL
        for (int e = 0; e < per_word; ++e) in[e] = word(block, w * per_word + e, d / per_word);
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
    for (int i = 0; i < width; ++i) block[i] = transposed[i];
  }

 private:
  /// Word i of the dimensions of a token in a block as loaded.
  TILEWAVE_DEVICE static std::uint32_t& word(Chunk* block, int token, int i) {
    const int n = token * token_words + i;
    return block[n / 4][n % 4];
  }
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
