// SPDX-License-Identifier: MIT
// A block, or a cluster, works on one item after the other. An item is one row tile of a sequence and a head, or of a
// sequence and query heads that share a kv head. Then row r of a tile is query r / heads and head r % heads of it.
//
// Sequences of one length: pairs of a sequence and heads come in sections whose K and V lie in L2 together. Within a
// section the last row tiles of all pairs come first, since causal masks make them the longest. Pairs that read the
// same K and V follow each other. Packed sequences: those with the most keys come first, two ranks of lengths for each
// power of two. Items of a sequence follow each other in sections of its heads, the last row tiles first in one
// section and last in the next, so that lengths never jump; there are none without rows. Items of sequences with
// one row tile, as those of decode rows, which memory bounds, alternate with items of longer sequences, which products
// bound, so that half of the chip does the one beside the other.
//
// Where row tiles are few, their keys are cut into splits, which follow each other and have equally many tiles of keys,
// give or take one, whatever a sequence's length is.
//
// Blocks take items in rounds, forwards and backwards in turn, so the block with the longest item of one round has the
// shortest of the next. If the call has a counter, a block's first item is that of its number, and then it takes the
// next one that nobody has. Every block that had one takes one number too many, with the last of which the counter is 0
// again.
#pragma once

#include "tilewave/ops/flash_attention/tensor/layout.hpp"

namespace tilewave {

/// Items of packed sequences in order: of those with one row tile, or of those with more. Numbers that are asked for
/// rise. Sequences are walked once for each rank, from the highest on.
template <class B, int cluster>
class FlashAttentionPackedItems {
 public:
  struct Place {
    std::int32_t sequence, item, tiles;  // the item's number among those of the sequence; its row tiles
  };
  /// Row tiles of a sequence, those of a cluster counted once, and the rank of its number of keys.
  struct Lengths {
    std::int32_t tiles, rank;
    TILEWAVE_DEVICE bool longer() const { return tiles > 1; }
  };

  /// Returns the lengths of sequence `first` + the lane's number, which need not exist.
  TILEWAVE_DEVICE static Lengths lengths(const FlashAttentionArgs& a, const FlashAttentionSections& sections,
                                         std::int32_t first) {
    const std::int32_t sequence = first + B::lane_id();
    if (sequence >= a.batch) return {};
    std::int32_t queries = B::load(a.q_starts + sequence + 1) - B::load(a.q_starts + sequence), keys = a.kv_capacity;
    if (a.kv_starts != nullptr) keys = B::load(a.kv_starts + sequence + 1) - B::load(a.kv_starts + sequence);
    if (a.kv_lengths != nullptr) keys = B::load(a.kv_lengths + sequence);
    queries = max_of(min_of(queries, a.q_length), 0);
    return {ceil_div(queries, sections.tile_queries * cluster), rank_of(min_of(keys, a.left))};
  }

  /// Begins with the first sequences, of which this lane has one, and with the highest rank.
  TILEWAVE_DEVICE void begin(const FlashAttentionSections& sections, const Lengths& of, bool longer,
                             std::int32_t highest) {
    longer_ = longer;
    rank_ = highest;
    count(sections, of);
  }
  TILEWAVE_DEVICE bool longer() const { return longer_; }

  /// Returns where item `number` is, which exists.
  TILEWAVE_DEVICE Place find(const FlashAttentionArgs& a, const FlashAttentionSections& sections, std::int32_t number) {
    while (number >= first_item_ + items_to_end(B::facts.wave_lanes - 1)) {
      first_item_ += items_to_end(B::facts.wave_lanes - 1);
      first_sequence_ += B::facts.wave_lanes;
      if (first_sequence_ >= a.batch) {
        first_sequence_ = 0;
        --rank_;
      }
      count(sections, lengths(a, sections, first_sequence_));
    }
    const std::int32_t in_counted = number - first_item_;
    const int lane = B::uniform(static_cast<int>(B::total(items_to_end_ <= in_counted ? 1 : 0)));
    const std::int32_t before = lane == 0 ? 0 : items_to_end(max_of(lane - 1, 0));
    return {first_sequence_ + lane, in_counted - before, (items_to_end(lane) - before) / sections.heads.divisor};
  }

 private:
  /// Returns the rank of a number of keys: its exponent and first bit behind, of a float.
  TILEWAVE_DEVICE static std::int32_t rank_of(std::int32_t keys) {
    constexpr int mantissa_bits = 23;
    return __builtin_bit_cast(std::int32_t, static_cast<float>(max_of(keys, 0))) >> (mantissa_bits - 1);
  }
  /// Each lane counts the items of one of the next sequences, and of those before it.
  TILEWAVE_DEVICE void count(const FlashAttentionSections& sections, const Lengths& of) {
    const bool counts = of.longer() == longer_ && of.rank == rank_;
    items_to_end_ = B::sum_up_to(counts ? of.tiles * sections.heads.divisor : 0);
  }
  /// Returns the items to the end of the sequence that lane `lane` has counted.
  TILEWAVE_DEVICE std::int32_t items_to_end(int lane) const { return B::uniform(B::shuffle(items_to_end_, lane)); }

  bool longer_ = false;
  std::int32_t rank_ = 0;
  // Sequences from `first_sequence_` on, as many as there are lanes, have items from `first_item_` on.
  std::int32_t first_sequence_ = 0, first_item_ = 0, items_to_end_ = 0;  // to the end of this lane's sequence
};

/// The items of one block, in order.
template <class B, FlashAttentionPolicy P, bool split>
class FlashAttentionWork {
  using Packed = FlashAttentionPackedItems<B, P.cluster>;

 public:
  using Item = std::conditional_t<split, FlashAttentionSplitItem, FlashAttentionItem>;

  TILEWAVE_DEVICE FlashAttentionWork(const FlashAttentionArgs& a, const FlashAttentionSections& sections,
                                     std::int32_t blocks)
      : a_(a), sections_(sections), blocks_(blocks / P.cluster) {}

  /// Begins with the first item. By the counter only one wave of a block may take items.
  TILEWAVE_DEVICE void begin(bool by_counter) {
    by_counter_ = by_counter && P.cluster == 1 && a_.item_counter != nullptr;
    all_items_ = sections_.all_items;
    if (a_.q_starts != nullptr) count_packed();
  }

  /// Returns true and sets `item` if there is one more item with rows.
  TILEWAVE_DEVICE bool next(Item& item) {
    while (true) {
      const std::int32_t first = round_ * blocks_;
      const std::int32_t block = B::block_id() / P.cluster;
      std::int32_t number = first + (round_ % 2 == 0 ? block : blocks_ - 1 - block);
      if (by_counter_ && round_ > 0) number = blocks_ + take_number();
      if ((by_counter_ ? number : first) >= all_items_) return false;
      ++round_;
      if (number >= all_items_) continue;
      std::int32_t row_tile = number;
      if constexpr (split) {
        row_tile = sections_.splits.quotient(number);
        item.split = number - row_tile * sections_.splits.divisor;
      }
      if (a_.q_starts != nullptr ? locate_packed(row_tile, item) : locate(row_tile, item)) return true;
    }
  }

  /// Returns true and sets `item` if there is one more item whose rows see keys.
  TILEWAVE_DEVICE bool next_with_keys(Item& item) {
    while (next(item)) {
      if (item.any_keys()) return true;
    }
    return false;
  }

 private:
  /// Returns true and sets `item` to its split of row tile `number` if that has rows.
  TILEWAVE_DEVICE bool locate(std::int32_t number, Item& item) const {
    const std::int32_t section = sections_.items.quotient(number), first_pair = section * sections_.pairs.divisor;
    const std::int32_t in_section = number - section * sections_.items.divisor;
    const bool whole = first_pair + sections_.pairs.divisor <= sections_.all_pairs;
    const std::int32_t pairs = whole ? sections_.pairs.divisor : sections_.all_pairs - first_pair;
    const std::int32_t of_tiles = whole ? sections_.pairs.quotient(in_section) : in_section / pairs;
    const std::int32_t pair = first_pair + in_section - of_tiles * pairs;
    const std::int32_t sequence = sections_.heads.quotient(pair);
    return set(item, sequence, pair - sequence * sections_.heads.divisor, sections_.tiles - 1 - of_tiles);
  }

  /// Takes the next number from the counter.
  TILEWAVE_DEVICE std::int32_t take_number() const {
    const std::int32_t counted = max_of(all_items_ - blocks_, 0), taking = min_of(all_items_, blocks_);
    std::int32_t number = 0;
    if (B::lane_id() == 0)
      number =
          static_cast<std::int32_t>(B::take_number(a_.item_counter, static_cast<std::uint32_t>(counted + taking - 1)));
    return B::uniform(B::shuffle(number, 0));
  }

  /// Counts the items of packed sequences, of both kinds.
  TILEWAVE_DEVICE void count_packed() {
    std::int32_t of_short = 0, of_long = 0;
    float highest_short = 0.0f, highest_long = 0.0f;  // ranks: small integers
    typename Packed::Lengths of_first{};
    TILEWAVE_ROLL
    for (std::int32_t first = 0; first < a_.batch; first += B::facts.wave_lanes) {
      const typename Packed::Lengths of = Packed::lengths(a_, sections_, first);
      of_long += of.longer() ? of.tiles : 0;
      of_short += of.tiles == 1 ? 1 : 0;
      const auto rank = static_cast<float>(of.rank);
      highest_long = max_of(highest_long, of.longer() ? rank : 0.0f);
      highest_short = max_of(highest_short, of.tiles == 1 ? rank : 0.0f);
      if (first == 0) of_first = of;
    }
    const auto all = [&](std::int32_t n) {
      return B::uniform(static_cast<int>(B::total(static_cast<std::uint32_t>(n)))) * sections_.heads.divisor;
    };
    const auto highest_of = [](float rank) {
      return B::uniform(static_cast<int>(B::template reduce<B::facts.wave_lanes>(rank, Max{})));
    };
    now_.begin(sections_, of_first, true, highest_of(highest_long));
    later_.begin(sections_, of_first, false, highest_of(highest_short));
    short_tiles_ = all(of_short);
    all_items_ = short_tiles_ + all(of_long);
    if constexpr (split) all_items_ *= sections_.splits.divisor;
  }
  /// Items of both kinds alternate until one kind ends.
  TILEWAVE_DEVICE bool locate_packed(std::int32_t number, Item& item) {
    const std::int32_t all_tiles = split ? sections_.splits.quotient(all_items_) : all_items_;
    const std::int32_t long_tiles = all_tiles - short_tiles_, of_both = 2 * min_of(short_tiles_, long_tiles);
    const bool longer = number < of_both ? number % 2 == 0 : long_tiles > short_tiles_;
    const std::int32_t of_kind = number < of_both ? number / 2 : number - of_both / 2;
    if (longer != now_.longer()) {
      const Packed other = now_;
      now_ = later_;
      later_ = other;
    }
    const auto place = now_.find(a_, sections_, of_kind);
    // Sections of heads whose K and V lie in L2 together; every other one begins with the first tile.
    const std::int32_t section = place.item / (place.tiles * sections_.heads_in_l2);
    const std::int32_t in_section = place.item - section * (place.tiles * sections_.heads_in_l2);
    const std::int32_t first_head = section * sections_.heads_in_l2;
    const std::int32_t heads = min_of(sections_.heads_in_l2, sections_.heads.divisor - first_head);
    const std::int32_t tile = in_section / heads, head = first_head + in_section - tile * heads;
    return set(item, place.sequence, head, (place.sequence + section) % 2 == 0 ? place.tiles - 1 - tile : tile);
  }

  /// Returns true and sets `item` to a row tile of a sequence and the heads of number `heads`, if it has rows.
  TILEWAVE_DEVICE bool set(Item& item, std::int32_t sequence, std::int32_t heads, std::int32_t tile) const {
    item.head = heads * sections_.row_heads.divisor;
    item.sequence = AttentionSequence::of<B>(a_, sequence);
    // Blocks of a cluster have tiles side by side, and keys that any of them sees.
    const std::int32_t all = sections_.tile_queries * P.cluster, first = tile * all;
    if (first >= item.sequence.q_count) return false;
    const std::int32_t last = min_of(first + all, item.sequence.q_count) - 1;
    item.first_query = first + (P.cluster > 1 ? B::cluster_rank() * sections_.tile_queries : 0);
    const std::int32_t queries = min_of(sections_.tile_queries, last + 1 - item.first_query);
    item.rows = max_of(queries, 0) * sections_.row_heads.divisor;
    const std::int32_t end = VisibleKeys::of(a_, item.sequence, last).end;
    item.first_tile = VisibleKeys::of(a_, item.sequence, first).first / P.keys;
    item.end_tile = max_of(ceil_div(end, P.keys), item.first_tile);
    if constexpr (split) {
      const std::int32_t tiles = item.tiles(), of_tile = item.first_tile;
      item.first_tile = of_tile + sections_.splits.quotient(tiles * item.split);
      item.end_tile = of_tile + sections_.splits.quotient(tiles * item.split + tiles);
    }
    return true;
  }

  const FlashAttentionArgs& a_;
  const FlashAttentionSections& sections_;
  bool by_counter_ = false;
  std::int32_t blocks_, round_ = 0, all_items_ = 0;
  std::int32_t short_tiles_ = 0;  // row tiles of packed sequences that have one
  Packed now_, later_;            // of packed sequences: the kind of the last item, and the other one
};

}  // namespace tilewave
