// SPDX-License-Identifier: MIT
// What a block and a wave of path lds have: which rows and tiles of keys, what lies in LDS and in registers.
#pragma once

#include <limits>

#include "tilewave/ops/flash_attention/lds/tiles.hpp"
#include "tilewave/ops/flash_attention/policy_status.hpp"

namespace tilewave {

/// A block: `rows` query rows of a head, and the tiles of keys that they see.
struct FlashLdsWorkItem {
  AttentionSequence sequence;
  std::int32_t head, kv_head, first_row;
  // Tiles of keys that a row of the block sees, from `first` on. Those that all rows see as a whole are from
  // `full_first` on, behind `masked` others, of which `left` lie before them.
  std::int32_t tiles, first, left, masked, full_first, full_end;

  /// Tile n in the order of turns: masked ones come first. Behind the last it is the last again.
  TILEWAVE_DEVICE std::int32_t tile(std::int32_t n) const {
    n = min_of(n, tiles - 1);
    return n < left ? first + n : n < masked ? full_end + n - left : full_first + n - masked;
  }
};

template <class RoomOf, FlashAttentionSpec S, FlashAttentionPolicy P>
struct FlashLdsLayout {
  using Room = RoomOf;
  using B = Room;
  using Keys = FlashKeyTile<B, P.waves, P.keys, S.head_size>;
  using Values = std::conditional_t<B::facts.lds_transposed, FlashValueLines<B, P.waves, P.keys, S.value_size>,
                                    FlashTransposedValues<B, P.waves, P.keys, S.value_size>>;
  struct Shared {
    alignas(16) Chunk k[P.stages][Keys::bytes / sizeof(Chunk)];
    alignas(16) Chunk v[P.stages][Values::bytes / sizeof(Chunk)];
  };

  using Map = ProductMap<32>;
  using Sums = Vec<float, Map::sums>;
  static constexpr DType type = S.kv;
  static constexpr int tile_keys = P.keys;
  static constexpr int wave_rows = 32, stages = P.stages;
  static constexpr int key_tiles = P.keys / 32, head_slices = S.head_size / 16;    // of scores
  static constexpr int value_tiles = S.value_size / 32, key_slices = P.keys / 16;  // of values
  static constexpr int score_products = key_tiles * head_slices, products = score_products + value_tiles * key_slices;
  static constexpr int ahead = 4;              // operands are read so many products before
  static constexpr int first_exponential = 2;  // products before it hide whether there is anything to rescale
  static constexpr int elements = P.keys / 2, pairs = elements / 2;  // scores of a lane
  static constexpr float minus_infinity = -__builtin_inff(), lowest = -std::numeric_limits<float>::max();
  static constexpr float slack = 8.0f;  // log2: probabilities are at most 2^slack
  // f16 ends at 2^-24, where many keys of little weight would lose theirs: probabilities are 2^7 times as large.
  // Where bf16 are rounded in three operations, probabilities are cut, in one. They are larger by what that loses in
  // the mean, so that errors are centred: 2^-8 / m, averaged over mantissas m whose logarithms are uniform, is 0.00282.
  // A probability of 1 stays 1.
  static constexpr bool truncates = S.kv == DType::bf16 && !B::facts.bf16_pairs;
  static constexpr float truncation_loss = 0.00282f, truncation_loss_log2 = 0.0040627f;
  static constexpr float probability_log2 = S.kv == DType::f16 ? 7.0f : truncates ? truncation_loss_log2 : 0.0f;

  struct State {
    Chunk q[head_slices];
    Sums out[value_tiles];
    VisibleKeys visible;  // of the lane's row
    float negative_reference;           // log2 units: what exponents are relative to, negative, and probability_log2
    float sum;            // of the lane's keys
  };
};

}  // namespace tilewave
