// SPDX-License-Identifier: MIT
// Fetching waves copy boxes of q, K and V of an item into shared memory, K one tile ahead of V.
#pragma once

#include "tilewave/ops/flash_attention/tensor/work.hpp"

namespace tilewave {

/// A fetching wave of a block, and its slots in the rings. One fetches everything, or, where pages take many copies,
/// one K and q, and another V.
template <class B, FlashAttentionSpec S, class L, FlashAttentionPolicy P>
class FlashAttentionFetch {
 public:
  TILEWAVE_DEVICE FlashAttentionFetch(const typename L::Args& args, typename L::Shared& shared, int wave)
      : args_(args), shared_(shared), fetches_k_(wave == 0), fetches_v_(wave == L::fetching_waves - 1) {}

  TILEWAVE_DEVICE void run(const FlashAttentionItem& item) {
    kv_head_ = args_.attention.gqa_ratio.quotient(item.head);
    const std::int32_t last = item.end_tile - 1;
    Segment of_k = segment_of(item, last), next = segment_of(item, last - 1);
    // A place for q is free before one for keys is, or else, if outputs take it, later.
    if (L::q_stages > 1 && !L::out_in_q) fetch_q(item);
    fetch_k(item, last, of_k);
    if (L::q_stages == 1 || L::out_in_q) fetch_q(item);
    TILEWAVE_ROLL
    for (std::int32_t tile = last; tile > item.first_tile; --tile) {
      const Segment of_v = of_k;
      of_k = next;
      next = segment_of(item, tile - 2);  // arrives while boxes are issued
      fetch_k(item, tile - 1, of_k);
      fetch_v(item, tile, of_v);
    }
    fetch_v(item, item.first_tile, of_k);
  }

 private:
  /// A segment of a tile has keys that lie together in a page. Each lane looks up one segment, before it is needed.
  struct Segment {
    std::int32_t page = 0, in_page = 0;
  };
  TILEWAVE_DEVICE Segment segment_of(const FlashAttentionItem& item, std::int32_t tile) const {
    Segment segment;
    if constexpr (L::paged) {
      const FlashAttentionArgs& a = args_.attention;
      const AttentionSequence& s = item.sequence;
      const std::int32_t first = B::lane_id() * args_.box_rows;
      if (first < P.keys && tile >= item.first_tile) {
        const std::int32_t key = min_of(tile * P.keys + first, s.kv_count - 1);
        const std::int32_t column = a.block_size.quotient(key), in_page = key - column * a.block_size.divisor;
        segment.page = B::load(a.block_table + s.number * a.table_row_stride + column);
        segment.in_page = in_page / args_.box_rows * args_.box_rows;
      }
    }
    return segment;
  }

  TILEWAVE_DEVICE void fetch_q(const FlashAttentionItem& item) {
    if (!fetches_k_) return;
    const AttentionSequence& s = item.sequence;
    const std::int32_t row =
        (args_.attention.q_starts != nullptr ? s.q_first : s.number * args_.q_sequence_rows) + item.first_query;
    shared_.q_ring.wait_free(q_);
    auto* const full = &shared_.q_ring.full[q_.slot];
    B::mbarrier_expect(full, args_.q_bytes);
    if (B::lane_id() < L::head_boxes) {
      Chunk* const to = shared_.q[q_.slot] + B::lane_id() * (P.rows * L::box_chunks);
      const bool packed = args_.sections.row_heads.divisor > 1;  // rows of the map are heads then
      B::copy_tensor(to, args_.q, B::lane_id() * L::box_columns, packed ? item.head : row, packed ? row : item.head,
                     full);
    }
    q_.advance();
  }
  TILEWAVE_DEVICE void fetch_k(const FlashAttentionItem& item, std::int32_t tile, const Segment& segment) {
    if (!fetches_k_) return;
    fetch_tile<L::head_boxes>(item, tile, segment, args_.k, args_.k_page_rows, shared_.k[k_.slot], shared_.k_ring, k_);
  }
  TILEWAVE_DEVICE void fetch_v(const FlashAttentionItem& item, std::int32_t tile, const Segment& segment) {
    if (!fetches_v_) return;
    fetch_tile<L::value_boxes>(item, tile, segment, args_.v, args_.v_page_rows, shared_.v[v_.slot], shared_.v_ring, v_);
  }

  /// Copies a tile of keys as `boxes` boxes of 128 bytes side by side. Each lane copies a segment of those in pages.
  template <int boxes>
  TILEWAVE_DEVICE void fetch_tile(const FlashAttentionItem& item, std::int32_t tile, const Segment& segment,
                                  const typename B::TensorMap& map, std::int32_t page_rows, Chunk* to,
                                  typename L::Barriers& ring, typename L::KvSlot& slot) {
    ring.wait_free(slot);
    auto* const full = &ring.full[slot.slot];
    B::mbarrier_expect(full, P.keys * boxes * 128);
    if constexpr (!L::paged) {
      const AttentionSequence& s = item.sequence;
      const std::int32_t row =
          (args_.attention.kv_starts != nullptr ? s.kv_first : s.number * args_.kv_sequence_rows) + tile * P.keys;
      const int box = B::lane_id();
      Chunk* const of_box = to + box * (P.keys * L::box_chunks);
      if constexpr (P.cluster > 1) {  // each block fetches a part of the tile for all
        const int first = B::cluster_rank() * (P.keys / P.cluster);
        if (box < boxes)
          B::copy_tensor(of_box + first * L::box_chunks, map, box * L::box_columns, row + first, kv_head_, full,
                         (1u << P.cluster) - 1);
      } else if (box < boxes) {
        B::copy_tensor(of_box, map, box * L::box_columns, row, kv_head_, full);
      }
    } else {
      const std::int32_t row = segment.page * page_rows + segment.in_page, first = B::lane_id() * args_.box_rows;
      if (first < P.keys) {
        if constexpr (L::side_by_side) {
          B::copy_side_by_side(to + first * (boxes * L::box_chunks), map, row, kv_head_, full);
        } else {
          TILEWAVE_UNROLL
          for (int box = 0; box < boxes; ++box) {
            B::copy_tensor(to + (box * P.keys + first) * L::box_chunks, map, box * L::box_columns, row, kv_head_, full);
          }
        }
      }
    }
    slot.advance();
  }

  const typename L::Args& args_;
  typename L::Shared& shared_;
  bool fetches_k_, fetches_v_;
  typename L::QSlot q_;
  typename L::KvSlot k_, v_;
  std::int32_t kv_head_ = 0;
};

}  // namespace tilewave
