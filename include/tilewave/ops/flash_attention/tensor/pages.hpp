// SPDX-License-Identifier: MIT
// A fetching wave looks up where the keys of an item's tiles lie in pages.
#pragma once

#include "tilewave/ops/flash_attention/tensor/layout.hpp"

namespace tilewave {

/// A segment of a tile has keys that lie together in a page: `box_rows` keys. Each lane looks up a segment of one of
/// the next tiles, as many tiles as a wave has lanes for: a run of them. So a tile costs little of a scheduler that
/// multiplying groups share, and the pages of a run arrive while those of the run before are copied.
template <class B, FlashAttentionPolicy P>
class FlashAttentionPages {
 public:
  template <class Args>
  TILEWAVE_DEVICE explicit FlashAttentionPages(const Args& args)
      : a_(args.attention), segments_(P.keys / args.box_rows), tiles_(B::facts.wave_lanes / segments_) {
    tile_of_lane_ = B::lane_id() / segments_;
    first_of_lane_ = (B::lane_id() - tile_of_lane_ * segments_) * args.box_rows;
  }

  /// Begins with the last tile of an item.
  TILEWAVE_DEVICE void begin(const FlashAttentionItem& item) {
    table_ = a_.block_table + item.sequence.number * a_.table_row_stride;
    last_column_ = a_.block_size.quotient(item.sequence.kv_count - 1);
    now_ = look_up(item, item.end_tile - 1);
    next_ = look_up(item, item.end_tile - 1 - tiles_);
    in_run_ = 0;
  }
  /// Goes on to the tile before `tile`.
  TILEWAVE_DEVICE void advance(const FlashAttentionItem& item, std::int32_t tile) {
    if (++in_run_ < tiles_) return;
    now_ = next_;
    next_ = look_up(item, tile - 1 - tiles_);
    in_run_ = 0;
  }

  /// Returns whether this lane has looked up a segment of the tile.
  TILEWAVE_DEVICE bool has_segment() const { return tile_of_lane_ == in_run_; }
  /// Returns the segment's first key in the tile, and its row in a map whose pages are `page_rows` apart.
  TILEWAVE_DEVICE std::int32_t first() const { return first_of_lane_; }
  TILEWAVE_DEVICE std::int32_t row(std::int32_t page_rows) const { return now_.page * page_rows + now_.in_page; }

 private:
  struct Segment {
    std::int32_t page = 0, in_page = 0;
  };
  /// Looks up the lane's segment of the run whose last tile is `last`. Keys behind the last page of the sequence, which
  /// nobody sees, are taken from that page.
  TILEWAVE_DEVICE Segment look_up(const FlashAttentionItem& item, std::int32_t last) const {
    Segment segment;
    const std::int32_t tile = last - tile_of_lane_;
    if (tile_of_lane_ < tiles_ && tile >= item.first_tile) {
      const std::int32_t key = tile * P.keys + first_of_lane_, column = a_.block_size.quotient(key);
      segment.in_page = key - column * a_.block_size.divisor;
      segment.page = B::load(table_ + min_of(column, last_column_));
    }
    return segment;
  }

  const FlashAttentionArgs& a_;
  const std::int32_t* table_ = nullptr;
  std::int32_t segments_, tiles_, tile_of_lane_, first_of_lane_, last_column_ = 0, in_run_ = 0;
  Segment now_, next_;
};

}  // namespace tilewave
