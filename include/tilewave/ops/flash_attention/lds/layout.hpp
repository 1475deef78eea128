// SPDX-License-Identifier: MIT
// A block of path lds has a work item and tiles of K and V in LDS. A wave keeps its State in registers.
#pragma once

#include <limits>

#include "tilewave/ops/flash_attention/lds/transposed.hpp"
#include "tilewave/ops/flash_attention/policy_status.hpp"

namespace tilewave {

/// The work item of a block: P.rows query rows of a head from `first_row` on, and the tiles of keys that they see.
struct FlashLdsWorkItem {
  AttentionSequence sequence;
  std::int32_t rows;  // of the sequence and the heads that share row tiles, of which `head` is the first
  std::int32_t head, kv_head, first_row;
  // Rows of the block see `tiles` tiles of keys from `first` on. All rows see tiles [full_first, full_end) as a whole.
  // The other tiles are `masked` in number, and `left` of them lie before full_first.
  std::int32_t tiles, first, left, masked, full_first, full_end;

  /// Returns the tile of step n. Masked tiles come first. Past the end it is the last tile again, so that
  /// loads ahead need no branch.
  TILEWAVE_DEVICE std::int32_t tile(std::int32_t n) const {
    n = min_of(n, tiles - 1);
    const std::int32_t before = n < left ? first : full_end - left;
    return n + (n < masked ? before : full_first - masked);
  }
};

template <class RoomOf, FlashAttentionSpec S, FlashAttentionPolicy P>
struct FlashLdsLayout {
  using Room = RoomOf;
  using B = Room;
  static constexpr int element = size_of(S.kv);
  static constexpr int key_bytes = element * S.head_size, value_bytes = element * S.value_size;  // of a token
  static constexpr bool paged = S.storage == KvStorage::paged, fp8 = element == 1;
  static constexpr FlashTile tile{P.waves, P.keys, fp8 ? S.kv : DType::bf16, paged};
  using Keys = FlashKeyTile<B, tile, S.head_size>;
  template <FlashTile T>
  using Transposed =
      std::conditional_t<fp8, FlashTransposedBytes<B, T, S.value_size>, FlashTransposedValues<B, T, S.value_size>>;
  using Values = std::conditional_t<B::facts.lds_transposed,
                                    FlashValueLines<B, tile, S.value_size, P.stages * Keys::bytes>, Transposed<tile>>;
  /// K and V of a tile are fetched alike: what a wave's copy has of both are the same keys.
  static constexpr bool alike = B::facts.direct_copies && S.head_size == S.value_size;
  struct Tiles {
    alignas(16) Chunk k[P.stages][Keys::bytes / sizeof(Chunk)];
    alignas(16) Chunk v[P.stages][Values::bytes / sizeof(Chunk)];
  };
  /// The block's outputs pass through the place of its tiles, and may need more.
  static constexpr int out_bytes = P.rows * S.value_size * size_of(S.out);
  static constexpr int more_bytes = out_bytes - static_cast<int>(sizeof(Tiles));
  struct TilesAndRest : Tiles {
    Chunk rest[max_of(more_bytes, 16) / sizeof(Chunk)];
  };
  /// If copies stay under way across barriers, a wait for a page's id would wait for them, too. So ids lie in LDS.
  static constexpr int page_ids = paged && B::facts.direct_copies ? flash_lds_page_ids : 0;
  struct TilesAndPages : Tiles {
    std::int32_t pages[max_of(page_ids, 1)];
  };
  using Shared =
      std::conditional_t<(page_ids > 0), TilesAndPages, std::conditional_t<(more_bytes > 0), TilesAndRest, Tiles>>;

  using Map = ProductMap<32>;
  using Sums = Vec<float, Map::sums>;
  static constexpr DType type = S.kv;
  static constexpr int tile_keys = P.keys;
  static constexpr int wave_rows = 32, stages = P.stages;
  static constexpr int chunks = B::template product_chunks<S.kv>;                         // of an operand
  static constexpr int product_k = Map::units * chunks * (16 / element);                  // what a product sums up
  static constexpr int key_tiles = P.keys / 32, head_slices = S.head_size / product_k;    // products of scores
  static constexpr int value_tiles = S.value_size / 32, key_slices = P.keys / product_k;  // products of values
  static constexpr int score_products = key_tiles * head_slices, products = score_products + value_tiles * key_slices;
  static constexpr int ahead = 4 / chunks;              // operands are read so many products before their use
  static constexpr int first_exponential = 2 / chunks;  // the products before it hide the test for a new reference
  static constexpr int elements = P.keys / 2, pairs = elements / 2;  // scores of a lane
  static constexpr bool turns = P.turns;                             // of the two waves of a SIMD
  static constexpr float lowest = -std::numeric_limits<float>::max();
  static constexpr float slack = fp8 ? 2.0f : 8.0f;  // log2: probabilities are at most 2^(slack + probability_log2)
  // f16 ends at 2^-24, where many keys of little weight would lose theirs, so its probabilities are 2^7 times as large.
  // Those of fp8 reach half of its largest value at least.
  // If a room rounds bf16 in three operations, probabilities are truncated in one. They are made larger by the mean
  // loss, so that errors are centred: 2^-8 / m, averaged over mantissas m whose logarithms are uniform, is 0.00282. A
  // probability of 1 stays 1.
  static constexpr bool truncates = S.kv == DType::bf16 && !B::facts.bf16_pairs;
  static constexpr float truncation_loss = 0.00282f, truncation_loss_log2 = 0.0040627f;
  static constexpr float probability_log2 = S.kv == DType::f16            ? 7.0f
                                            : S.kv == DType::fp8_e4m3fn   ? 6.0f
                                            : S.kv == DType::fp8_e4m3fnuz ? 5.0f
                                            : truncates                   ? truncation_loss_log2
                                                                          : 0.0f;

  struct State {
    Chunk q[head_slices * chunks];
    Sums out[value_tiles];
    VisibleKeys visible;       // keys that the lane's row sees
    float negative_reference;  // log2 units: -reference of the row, plus probability_log2
    float sum;                 // sum of the probabilities of the lane's keys
    float scale;               // multiplies scores to log2 units; positive
  };
};

}  // namespace tilewave
