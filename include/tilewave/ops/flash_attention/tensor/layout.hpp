// SPDX-License-Identifier: MIT
// The layout of FlashAttentionTensor: its arguments, its shared memory, and the boxes that are fetched.
#pragma once

#include "tilewave/arch/backend.hpp"
#include "tilewave/ops/flash_attention/args.hpp"
#include "tilewave/ops/flash_attention/policy_status.hpp"
#include "tilewave/tile/ring.hpp"

namespace tilewave {

/// A row tile has queries of `row_heads` heads that share a kv head, or of one. A pair is a sequence and the heads of a
/// row tile. A section of the work is as many pairs as follow each other. K and V of a section lie in L2 together. See
/// FlashAttentionWork.
struct FlashAttentionSections {
  FastDiv pairs, items;               // of a section: pairs, and pairs times row tiles
  std::int32_t all_pairs, all_items;  // items count every split
  FastDiv heads;                      // pairs of a sequence
  std::int32_t tiles;                 // row tiles of a pair, those of a cluster counted once
  FlashRowHeads row_heads;            // heads of a row tile
  std::int32_t tile_queries;          // queries of a row tile
  std::int32_t heads_in_l2;           // pairs of the longest sequence whose K and V lie in L2 together
  FastDiv splits;                     // items among which the keys of a row tile are shared out
};

/// An item has the rows of one row tile, and the tiles of keys that they see.
struct FlashAttentionItem {
  AttentionSequence sequence;
  std::int32_t head, first_query;     // of its rows; a query of the sequence
  std::int32_t rows;                  // that are queries of the sequence
  std::int32_t first_tile, end_tile;  // tiles of keys that any of the rows sees

  TILEWAVE_DEVICE std::int32_t tiles() const { return end_tile - first_tile; }
  TILEWAVE_DEVICE bool any_keys() const { return tiles() > 0; }
};
/// The same with one split of the tiles of keys.
struct FlashAttentionSplitItem : FlashAttentionItem {
  std::int32_t split;
};

/// `split`: the keys of a row tile are shared out among items, which write partials.
template <class B, FlashAttentionSpec S, FlashAttentionPolicy P, bool split>
struct FlashAttentionTensorLayout {
  static_assert(flash_attention_policy_status(B::facts.id, S, P).ok(),
                "a law of policies is broken: flash_attention_policy_status(arch, spec, policy).reason says which");
  static constexpr int rows = P.rows;
  static constexpr bool splits = split;
  using Item = std::conditional_t<split, FlashAttentionSplitItem, FlashAttentionItem>;
  static constexpr int group_waves = 4, group_lanes = group_waves * B::facts.wave_lanes, groups = P.waves;
  static constexpr int box_columns = 128 / size_of(S.kv);
  static constexpr int head_boxes = ceil_div(S.head_size, box_columns),
                       value_boxes = ceil_div(S.value_size, box_columns);
  static constexpr int box_chunks = 128 / sizeof(Chunk);  // in a row of a box
  static constexpr int q_bytes = P.rows * head_boxes * 128;
  static constexpr int k_bytes = P.keys * head_boxes * 128, v_bytes = P.keys * value_boxes * 128;  // in a stage
  // Products of fp8 take V transposed. So many waves of the fetching group transpose it.
  static constexpr bool transposes = is_fp8(S.kv);
  static constexpr int transposing_waves = transposes ? 3 : 0;
  static constexpr bool paged = S.paged();
  static constexpr int fetching_waves = paged && !transposes ? 2 : 1;  // one of K and one of V, or one of both
  // A copy of keys of a page moves whole rows: eight rows of a box of 128 bytes follow eight of the box before.
  static constexpr bool side_by_side = paged && !transposes;
  // The wave that finds items (items.hpp) has little else to do, or fetches.
  static constexpr int finding_wave = transposes ? 0 : group_waves - 1;
  // One item is told ahead, so that by a counter no block takes more than it needs. A wave that also fetches tells two.
  static constexpr int item_stages = finding_wave < fetching_waves ? 2 : 1;
  static constexpr int item_users =
      groups * group_waves + transposing_waves + fetching_waves - (finding_wave < fetching_waves ? 1 : 0);
  // One product with probabilities from registers has so many columns of V.
  static constexpr int value_columns = is_fp8(S.kv)              ? S.value_size
                                       : S.value_size % 128 == 0 ? 128
                                                                 : 64,
                       value_parts = S.value_size / value_columns;
  static constexpr int slice = 32 / size_of(S.kv);  // of the dimension that one product sums over
  static constexpr int score_slices = S.head_size / slice, key_slices = P.keys / slice;  // products of a tile

  // Probabilities of fp8 times eight columns of ones are the sums of rows: the matrix unit, which waits for issue slots
  // here, takes a seventh of a group's instructions upon itself.
  static constexpr bool multiplies_sums = transposes;
  static constexpr int sum_columns = 8, ones_bytes = 1024;  // as many rows of 128 keys

  using Scores = Vec<float, P.keys / 2>;
  using Sums = Vec<float, value_columns / 2>;

  /// The sums of values of a lane's two rows. Element 4 j + 2 h + e of a part is row h, column 8 j + 2 (l % 4) + e.
  struct Output {
    Sums of[value_parts];
    Vec<float, sum_columns / 2> of_tile{};  // sums of a tile's probabilities, if products make them
    Vec<float, 2> sum{};                    // of all tiles, of the lane's rows
    // Sums of values that lie in shared memory, if some do, are to be multiplied by these factors of rows.
    Vec<float, 2> kept_factor{{1.0f, 1.0f}};

    /// Adds the sums of the tile whose products have ended. (The unit keeps 13 bits of a sum: it does not add tiles.)
    TILEWAVE_DEVICE void add_sums() {
      TILEWAVE_UNROLL
      for (int h = 0; h < 2; ++h) sum[h] += of_tile[2 * h];
    }
    /// Keeps the compiler from moving accesses of these registers across products.
    TILEWAVE_DEVICE void fence() {
      if constexpr (multiplies_sums) B::group_mma_fence(of_tile);
      TILEWAVE_UNROLL
      for (int part = 0; part < value_parts; ++part) B::group_mma_fence(of[part]);
    }
    /// Multiplies each row by its factor.
    TILEWAVE_DEVICE void scale(const Vec<float, 2>& factor) {
      if constexpr (multiplies_sums) {
        TILEWAVE_UNROLL
        for (int h = 0; h < 2; ++h) {
          sum[h] *= factor[h];
          kept_factor[h] *= factor[h];
        }
      }
      TILEWAVE_UNROLL
      for (int part = 0; part < value_parts; ++part) {
        TILEWAVE_UNROLL
        for (int i = 0; i < Sums::size; ++i) of[part][i] *= factor[i / 2 % 2];
      }
    }
  };

  struct Args {
    FlashAttentionArgs attention;
    FlashAttentionSections sections;
    std::int32_t blocks;
    std::int32_t q_sequence_rows, kv_sequence_rows;  // rows of the maps from a sequence to the next, where not packed
    std::int32_t k_page_rows, v_page_rows;           // the same from a page to the next
    std::int32_t box_rows;                           // keys that lie together in a page and in a tile
    std::int32_t q_bytes;                            // of a tile of q
    std::int32_t out_sequence_rows;
    bool out_boxes;  // whether out has a map: boxes of sixteen rows
    // Splits write partials [splits][q tokens][q_heads][value_size]. The lse of `attention` is theirs then,
    // [splits][q_heads][q tokens], and sinks are left to what combines them.
    float* partials;
    std::int64_t partial_stride, partial_lse_stride;
    typename B::TensorMap q, k, v, out;
  };

  static constexpr int transposed_bytes = transposes ? detail::flash_transposed_bytes(S, P) : 0;  // in a stage
  static constexpr int out_boxes = S.value_size / 64, out_bytes = P.rows * out_boxes * 128;
  // There are two stages of q if they fit, so that q of the next item comes early. Outputs pass through shared memory
  // of their own if that fits too, and else through the place of q. Those of fp8 always have their own.
  static constexpr int free_bytes = B::facts.lds_bytes / P.waves_per_simd - 1024 - (multiplies_sums ? ones_bytes : 0) -
                                    P.stages * (k_bytes + v_bytes + transposed_bytes);
  static constexpr int q_stages = 2 * q_bytes + (transposes ? out_bytes : 0) <= free_bytes ? 2 : 1;
  static constexpr bool out_in_q = q_stages * q_bytes + out_bytes > free_bytes;
  static constexpr int staged_boxes = out_in_q ? min_of(out_boxes, head_boxes) : out_boxes;  // of a row, at a time
  // The unit keeps 13 bits of a sum of fp8 products, and cuts off what a key adds to one of thousands. Every so many
  // tiles the sums of values are added to those in shared memory, which lie in the place of the output, in its 16 bits.
  // What their rounding takes off stays in the unit, so nothing is lost: it is less than the sum of such tiles up to
  // half a million keys of one sign.
  static constexpr bool keeps_sums = transposes;
  static_assert(!keeps_sums || !out_in_q);
  static constexpr int kept_tiles = 2048 / P.keys;
  using QSlot = RingSlot<q_stages>;
  using KvSlot = RingSlot<P.stages>;
  using Barriers = RingBarriers<B, P.stages, P.cluster>;
  /// Tiles of V with a row per dimension: [keys / 128][value_size][128 keys], swizzled. Two stages of 64 keys lie side
  /// by side in these rows.
  static constexpr bool stages_share_rows = P.keys == 64 && P.stages == 2;
  struct Transposed {
    alignas(1024) Chunk values[P.stages][max_of<int>(transposed_bytes, sizeof(Chunk)) / sizeof(Chunk)];
    alignas(1024) Chunk ones[ones_bytes / sizeof(Chunk)];
    Barriers ring;
  };
  struct Staging {
    alignas(1024) Chunk out[out_bytes / sizeof(Chunk)];  // [out_boxes][rows][64 columns], swizzled
  };
  struct Nothing {};
  struct Shared {
    alignas(1024) Chunk q[q_stages][q_bytes / sizeof(Chunk)];  // [head_boxes][rows][64 columns], swizzled
    // Boxes of [keys][128 bytes], or, side by side, [keys / 8][boxes][8 keys][128 bytes].
    alignas(1024) Chunk k[P.stages][k_bytes / sizeof(Chunk)];
    alignas(1024) Chunk v[P.stages][v_bytes / sizeof(Chunk)];
    std::conditional_t<transposes, Transposed, Nothing> transposed;
    std::conditional_t<out_in_q, Nothing, Staging> staging;
    Barriers k_ring, v_ring;
    RingBarriers<B, q_stages> q_ring;
    typename B::Mbarrier turn[groups];
    using ItemSlot = RingSlot<item_stages>;
    RingBarriers<B, item_stages> item_ring;
    Item items[item_stages];
  };

  /// Wave 0 initialises the barriers, in front of a barrier of the block.
  TILEWAVE_DEVICE static void begin(Shared& shared) {
    shared.k_ring.begin(1, groups * group_waves);
    shared.v_ring.begin(1, transposes ? transposing_waves : groups * group_waves);
    if constexpr (transposes) shared.transposed.ring.begin(transposing_waves, groups * group_waves);
    if constexpr (multiplies_sums) {
      constexpr std::uint32_t ones = 0x38383838u;  // of e4m3
      static_assert(S.kv == DType::fp8_e4m3fn);
      for (int i = B::lane_id(); i < ones_bytes / static_cast<int>(sizeof(Chunk)); i += B::facts.wave_lanes)
        shared.transposed.ones[i] = Chunk{{ones, ones, ones, ones}};
      B::shared_written();
    }
    shared.q_ring.begin(1, groups * group_waves);
    shared.item_ring.begin(1, item_users);
    if (B::elected()) {
      TILEWAVE_UNROLL
      for (auto& turn : shared.turn) B::mbarrier_init(&turn, group_waves);
    }
    B::mbarrier_ready();
  }

  /// Returns where the output of an item passes, whose q lies in slot `slot`.
  TILEWAVE_DEVICE static Chunk* staging(Shared& shared, int slot) {
    if constexpr (out_in_q) {
      return shared.q[slot];
    } else {
      return shared.staging.out;
    }
  }
  /// Returns the ring of the values that products take.
  TILEWAVE_DEVICE static Barriers& values_ring(Shared& shared) {
    if constexpr (transposes) {
      return shared.transposed.ring;
    } else {
      return shared.v_ring;
    }
  }

  /// Returns the chunk of V's slot where a key's row of a box begins.
  TILEWAVE_DEVICE static int value_chunk(int key, int box) {
    if constexpr (side_by_side) return (key / 8 * value_boxes + box) * 64 + key % 8 * box_chunks;
    return (box * P.keys + key) * box_chunks;
  }

  /// Return the operands of a slice: 32 bytes of q's columns for a group's rows, the same of K's for a tile's keys, and
  /// as many keys of V for the columns of a part.
  TILEWAVE_DEVICE static SwizzledOperand q_operand(const Shared& shared, int slot, int group, int k_slice) {
    return {shared.q[slot] + k_slice / 4 * (P.rows * box_chunks), 64 * group, k_slice % 4};
  }
  TILEWAVE_DEVICE static SwizzledOperand k_operand(const Shared& shared, int slot, int k_slice) {
    if constexpr (side_by_side) return {shared.k[slot] + k_slice / 4 * 64, 0, k_slice % 4, head_boxes * 1024};
    return {shared.k[slot] + k_slice / 4 * (P.keys * box_chunks), 0, k_slice % 4};
  }
  TILEWAVE_DEVICE static auto v_operand(const Shared& shared, int slot, int part, int k_slice) {
    if constexpr (transposes) {
      const int rows = stages_share_rows ? 0 : slot, slice = stages_share_rows ? 2 * slot + k_slice : k_slice;
      return SwizzledOperand{shared.transposed.values[rows] + slice / 4 * (S.value_size * box_chunks),
                             part * value_columns, slice % 4};
    } else if constexpr (side_by_side) {
      return TransposedOperand{shared.v[slot], 8, part * value_columns, k_slice, value_boxes * 1024};
    } else {
      return TransposedOperand{shared.v[slot], P.keys, part * value_columns, k_slice};
    }
  }
};

}  // namespace tilewave
