// SPDX-License-Identifier: MIT
// The layout of MlaDecodeSpecialised: its shared memory, and who waits for whom.
#pragma once

#include "tilewave/ops/mla_decode/tensor/layout.hpp"
#include "tilewave/ops/paged_attention/work_item.hpp"

namespace tilewave {

/// Rows of q and of the cache lie in boxes of 64 rows by 128 bytes. Two boxes that follow each other are a pair.
/// Dimensions of values go through a ring of pairs, of which a tile takes four: two for each group that multiplies
/// values. The dimensions behind them, if there are any, go through a ring of tails. When scores have been made of it,
/// a tail takes the probabilities of the tile.
///
/// An item without tiles takes the places of one: its output passes through them.
///
/// Six boxes of q pass through the ring to registers, and the others stay in shared memory. Waves that fetch tell the
/// others of items. Behind the last one they tell of an item with -1 tiles.
template <class B, MlaDecodeSpec S, MlaDecodePolicy P>
struct MlaDecodeSpecialisedLayout : MlaDecodeTensorLayout<B, S, P> {
  using Base = MlaDecodeTensorLayout<B, S, P>;
  using Base::any_last, Base::score_boxes;
  using Base::groups, Base::group_waves, Base::rows, Base::box_size, Base::box_bytes, Base::part_boxes;
  using typename Base::Args, typename Base::Mbarrier;
  static constexpr int tile_pairs = 4, group_pairs = tile_pairs / groups, pair_size = 2 * box_size;
  static constexpr int pairs = 11, tails = 3, items = 3;
  // Pairs of q that pass through the ring, and boxes that stay in shared memory.
  static constexpr int q_pairs = 3, q_boxes = 2 * q_pairs, q_kept = score_boxes - q_boxes;
  static_assert(part_boxes == 2 && Base::parts == group_pairs, "a part of values is a pair");
  static constexpr int q_columns = 128 / size_of(S.q);  // of a box of q as it comes

  struct Shared {
    alignas(1024) Chunk kv[pairs][pair_size];
    alignas(1024) Chunk tail[tails][box_size];
    alignas(1024) Chunk q[q_kept * box_size];
    PagedAttentionWorkItem item[items];
    float factor[tails][rows];  // of the outputs so far, before a tile's are added
    float reference[rows];      // of an item's sums, log2 units
    float sum[1][rows];         // of an item's probabilities
    Mbarrier full[pairs], free[pairs];
    Mbarrier tail_full[tails], tail_free[tails];
    Mbarrier scored[tails];         // nearly all products of a tile's scores are done
    Mbarrier probabilities[tails];  // of a tile are there
    Mbarrier q_full, q_free;        // q's boxes that stay, and the next item
    Mbarrier item_ready, summed, written;
  };

  /// Wave 0 initialises the barriers, in front of a barrier of the block.
  TILEWAVE_DEVICE static void begin(const Args& args, Shared& shared) {
    if (B::elected()) {
      for (auto& full : shared.full) B::mbarrier_init(&full, 1);
      for (auto& free : shared.free) B::mbarrier_init(&free, group_waves * args.cluster);
      for (int tail = 0; tail < tails; ++tail) {
        B::mbarrier_init(&shared.tail_full[tail], 1);
        B::mbarrier_init(&shared.tail_free[tail], groups * group_waves * args.cluster);
        B::mbarrier_init(&shared.scored[tail], group_waves);
        B::mbarrier_init(&shared.probabilities[tail], group_waves);
      }
      B::mbarrier_init(&shared.q_full, 1);
      for (auto* barrier : {&shared.q_free, &shared.item_ready, &shared.summed}) B::mbarrier_init(barrier, group_waves);
      B::mbarrier_init(&shared.written, groups * group_waves);
    }
    B::mbarrier_ready();
  }

  /// Where a wave is in both rings.
  struct Place {
    RingSlot<pairs> pair;
    RingSlot<tails> tail;

    /// Returns the slot of the n-th pair from here on.
    TILEWAVE_DEVICE RingSlot<pairs> behind(int n) const {
      RingSlot<pairs> slot = pair;
      slot.advance(n);
      return slot;
    }
    TILEWAVE_DEVICE void next_tile() {
      pair.advance(tile_pairs);
      tail.advance();
    }
  };

  /// Return operands of a k slice: of a box of q or of the cache, of a tile's probabilities, and of a pair of values.
  TILEWAVE_DEVICE static SwizzledOperand box_operand(const Chunk* box, int k_slice) { return {box, 0, k_slice}; }
  TILEWAVE_DEVICE static SwizzledOperand probability_operand(const Shared& shared, int tail, int k_slice) {
    return {shared.tail[tail], 0, k_slice};
  }
  TILEWAVE_DEVICE static TransposedOperand value_operand(const Chunk* pair, int k_slice) {
    return {pair, Base::tokens, 0, k_slice};
  }
};

}  // namespace tilewave
