// SPDX-License-Identifier: MIT
// A block works on one item after the other. An item is one row tile of a sequence and a head, or of a sequence and
// query heads that share a kv head. Then row r of a tile is query r / heads and head r % heads of it.
//
// Sequences of one length: pairs of a sequence and heads come in sections whose K and V lie in L2 together. Within a
// section the last row tiles of all pairs come first, since causal masks make them the longest. Pairs that read the
// same K and V follow each other. Packed sequences: items of a sequence follow each other in sections of its heads,
// the last row tiles first in one section and last in the next, so that lengths never jump; there are none without
// rows. Blocks take items in rounds, forwards and backwards in turn, so the block with the longest item of one round
// has the shortest of the next.
#pragma once

#include "tilewave/ops/flash_attention/tensor/layout.hpp"

namespace tilewave {

/// An item has the rows of one row tile, and the tiles of keys that they see.
struct FlashAttentionItem {
  AttentionSequence sequence;
  std::int32_t head, first_query;     // of its rows; a query of the sequence
  std::int32_t rows;                  // that are queries of the sequence
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
      : a_(a), sections_(sections), blocks_(blocks) {
    if (a.q_starts != nullptr) count_sequences();
  }

  /// Returns true and sets `item` if there is one more item with rows.
  TILEWAVE_DEVICE bool next(FlashAttentionItem& item) {
    while (true) {
      const std::int32_t in_round = round_ % 2 == 0 ? B::block_id() : blocks_ - 1 - B::block_id();
      const std::int32_t first = round_ * blocks_, number = first + in_round;
      ++round_;
      if (a_.q_starts != nullptr) {
        if (!skip_to(first)) return false;
        if (skip_to(number) && locate_packed(number, item)) return true;
      } else {
        if (first >= sections_.all_items) return false;
        if (number < sections_.all_items && locate(number, item)) return true;
      }
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
    return set(item, sequence, pair - sequence * sections_.heads.divisor, sections_.tiles - 1 - of_tiles);
  }

  /// Each lane counts the items of one of the next sequences, and of those before it.
  TILEWAVE_DEVICE void count_sequences() {
    const std::int32_t sequence = first_sequence_ + B::lane_id();
    std::int32_t queries = 0;
    if (sequence < a_.batch) queries = B::load(a_.q_starts + sequence + 1) - B::load(a_.q_starts + sequence);
    queries = max_of(min_of(queries, a_.q_length), 0);
    const std::int32_t tiles = (queries + sections_.tile_queries - 1) / sections_.tile_queries;
    items_to_end_ = B::sum_up_to(tiles * sections_.heads.divisor);
  }
  /// Returns the items to the end of the sequence that lane `lane` has counted.
  TILEWAVE_DEVICE std::int32_t items_to_end(int lane) const { return B::uniform(B::shuffle(items_to_end_, lane)); }

  /// Goes on to the sequences that have item `number`, not before those of the last call. Returns false if there is
  /// none.
  TILEWAVE_DEVICE bool skip_to(std::int32_t number) {
    while (true) {
      const std::int32_t end = first_item_ + items_to_end(B::facts.wave_lanes - 1);
      if (number < end) return true;
      if (first_sequence_ + B::facts.wave_lanes >= a_.batch) return false;
      first_item_ = end;
      first_sequence_ += B::facts.wave_lanes;
      count_sequences();
    }
  }
  TILEWAVE_DEVICE bool locate_packed(std::int32_t number, FlashAttentionItem& item) const {
    const std::int32_t in_counted = number - first_item_;
    const int lane = B::uniform(static_cast<int>(B::total(items_to_end_ <= in_counted ? 1 : 0)));
    const std::int32_t before = lane == 0 ? 0 : items_to_end(max_of(lane - 1, 0));
    const std::int32_t in_sequence = in_counted - before,
                       tiles = (items_to_end(lane) - before) / sections_.heads.divisor;
    // Sections of heads whose K and V lie in L2 together; every other one begins with the first tile.
    const std::int32_t sequence = first_sequence_ + lane, section = in_sequence / (tiles * sections_.heads_in_l2);
    const std::int32_t in_section = in_sequence - section * (tiles * sections_.heads_in_l2);
    const std::int32_t first_head = section * sections_.heads_in_l2;
    const std::int32_t heads = min_of(sections_.heads_in_l2, sections_.heads.divisor - first_head);
    const std::int32_t tile = in_section / heads, head = first_head + in_section - tile * heads;
    return set(item, sequence, head, (sequence + section) % 2 == 0 ? tiles - 1 - tile : tile);
  }

  /// Returns true and sets `item` to a row tile of a sequence and the heads of number `heads`, if it has rows.
  TILEWAVE_DEVICE bool set(FlashAttentionItem& item, std::int32_t sequence, std::int32_t heads,
                           std::int32_t tile) const {
    item.head = heads * sections_.row_heads.divisor;
    item.sequence = AttentionSequence::of<B>(a_, sequence);
    item.first_query = tile * sections_.tile_queries;
    if (item.first_query >= item.sequence.q_count) return false;
    const std::int32_t queries = min_of(sections_.tile_queries, item.sequence.q_count - item.first_query);
    item.rows = queries * sections_.row_heads.divisor;
    const std::int32_t end = VisibleKeys::of(a_, item.sequence, item.first_query + queries - 1).end;
    item.first_tile = VisibleKeys::of(a_, item.sequence, item.first_query).first / P.keys;
    item.end_tile = max_of(ceil_div(end, P.keys), item.first_tile);
    return true;
  }

  const FlashAttentionArgs& a_;
  const FlashAttentionSections& sections_;
  std::int32_t blocks_, round_ = 0;
  // Packed sequences: those from `first_sequence_` on, as many as there are lanes, have items from `first_item_` on.
  std::int32_t first_sequence_ = 0, first_item_ = 0, items_to_end_ = 0;  // to the end of this lane's sequence
};

}  // namespace tilewave
