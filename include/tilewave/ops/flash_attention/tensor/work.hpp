// SPDX-License-Identifier: MIT
// A block works on one item after the other. An item is one row tile of one (sequence, head) pair.
//
// Pairs come in sections whose K and V lie in L2 together. Within a section the last row tiles of all pairs come first,
// since causal masks make them the longest. Pairs that read the same K and V follow each other. Blocks take items in
// rounds, forwards and backwards in turn, so the block with the longest item of one round has the shortest of the next.
#pragma once

#include "tilewave/ops/flash_attention/tensor/layout.hpp"

namespace tilewave {

/// An item has the rows of one row tile, and the tiles of keys that they see.
struct FlashAttentionItem {
  AttentionSequence sequence;
  std::int32_t head, first_row;       // query head; query of the sequence
  std::int32_t first_tile, end_tile;  // tiles of keys that any of the rows sees

  TILEWAVE_DEVICE std::int32_t tiles() const { return end_tile - first_tile; }
  TILEWAVE_DEVICE bool any_keys() const { return tiles() > 0; }
};

/// The items of one block, in order.
template <class B, FlashAttentionPolicy P>
class FlashAttentionWork {
 public:
  TILEWAVE_DEVICE FlashAttentionWork(const FlashAttentionArgs& a, const FlashAttentionSections& sections,
                                     std::int32_t blocks)
      : a_(a), sections_(sections), blocks_(blocks) {}

  /// Returns true and sets `item` if there is one more item with rows.
  TILEWAVE_DEVICE bool next(FlashAttentionItem& item) {
    while (true) {
      const std::int32_t in_round = round_ % 2 == 0 ? B::block_id() : blocks_ - 1 - B::block_id();
      const std::int32_t number = round_ * blocks_ + in_round;
      if (round_ * blocks_ >= sections_.all_items) return false;
      ++round_;
      if (number < sections_.all_items && locate(number, item)) return true;
    }
  }

  /// Returns true and sets `item` if there is one more item whose rows see keys.
  TILEWAVE_DEVICE bool next_with_keys(FlashAttentionItem& item) {
    while (next(item)) {
      if (item.any_keys()) return true;
    }
    return false;
  }

 private:
  /// Returns true and sets `item` to item `number` if it has rows.
  TILEWAVE_DEVICE bool locate(std::int32_t number, FlashAttentionItem& item) const {
    const std::int32_t section = sections_.items.quotient(number), first_pair = section * sections_.pairs.divisor;
    const std::int32_t in_section = number - section * sections_.items.divisor;
    const bool whole = first_pair + sections_.pairs.divisor <= sections_.all_pairs;
    const std::int32_t pairs = whole ? sections_.pairs.divisor : sections_.all_pairs - first_pair;
    const std::int32_t of_tiles = whole ? sections_.pairs.quotient(in_section) : in_section / pairs;
    const std::int32_t pair = first_pair + in_section - of_tiles * pairs;
    const std::int32_t sequence = sections_.heads.quotient(pair);
    item.head = pair - sequence * sections_.heads.divisor;
    item.sequence = AttentionSequence::of<B>(a_, sequence);
    item.first_row = (sections_.tiles - 1 - of_tiles) * P.rows;
    if (item.first_row >= item.sequence.q_count) return false;
    const std::int32_t last_row = min_of(item.first_row + P.rows, item.sequence.q_count) - 1;
    const std::int32_t end = VisibleKeys::of(a_, item.sequence, last_row).end;
    item.first_tile = VisibleKeys::of(a_, item.sequence, item.first_row).first / P.keys;
    item.end_tile = max_of(ceil_div(end, P.keys), item.first_tile);
    return true;
  }

  const FlashAttentionArgs& a_;
  const FlashAttentionSections& sections_;
  std::int32_t blocks_, round_ = 0;
};

}  // namespace tilewave
