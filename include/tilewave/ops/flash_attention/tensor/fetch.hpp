// SPDX-License-Identifier: MIT
// Fetching waves copy boxes of q, K and V of an item into shared memory, K one tile ahead of V.
#pragma once

#include "tilewave/ops/flash_attention/tensor/pages.hpp"
#include "tilewave/ops/flash_attention/tensor/work.hpp"

namespace tilewave {

/// A fetching wave of a block, and its slots in the rings. One fetches everything, or, where pages take many copies,
/// one K and q, and another V.
template <class B, FlashAttentionSpec S, class L, FlashAttentionPolicy P>
class FlashAttentionFetch {
 public:
  TILEWAVE_DEVICE FlashAttentionFetch(const typename L::Args& args, typename L::Shared& shared, int wave)
      : args_(args), shared_(shared), wave_(wave), k_pages_(args), v_pages_(args) {}

  TILEWAVE_DEVICE void run(const FlashAttentionItem& item) {
    kv_head_ = args_.attention.gqa_ratio.quotient(item.head);
    const AttentionSequence& s = item.sequence;
    first_row_ = args_.attention.kv_starts != nullptr ? s.kv_first : s.number * args_.kv_sequence_rows;
    const std::int32_t last = item.end_tile - 1;
    if (L::fetching_waves > 1 && wave_ > 0) {
      v_pages_.begin(item);
      TILEWAVE_ROLL
      for (std::int32_t tile = last; tile >= item.first_tile; --tile) fetch_v(item, tile);
      return;
    }
    k_pages_.begin(item);
    if constexpr (L::fetching_waves == 1) v_pages_.begin(item);
    // A place for q is free before one for keys is, or else, if outputs take it, later.
    if (L::q_stages > 1 && !L::out_in_q) fetch_q(item);
    fetch_k(item, last);
    if (L::q_stages == 1 || L::out_in_q) fetch_q(item);
    TILEWAVE_ROLL
    for (std::int32_t tile = last; tile > item.first_tile; --tile) {
      fetch_k(item, tile - 1);
      if constexpr (L::fetching_waves == 1) fetch_v(item, tile);
    }
    if constexpr (L::fetching_waves == 1) fetch_v(item, item.first_tile);
  }

 private:
  struct NoPages {
    TILEWAVE_DEVICE explicit NoPages(const typename L::Args&) {}
    TILEWAVE_DEVICE void begin(const FlashAttentionItem&) {}
  };
  using Pages = std::conditional_t<L::paged, FlashAttentionPages<B, P>, NoPages>;

  TILEWAVE_DEVICE void fetch_q(const FlashAttentionItem& item) {
    const AttentionSequence& s = item.sequence;
    const std::int32_t row =
        (args_.attention.q_starts != nullptr ? s.q_first : s.number * args_.q_sequence_rows) + item.first_query;
    const bool packed = args_.sections.row_heads.divisor > 1;  // rows of the map are heads then
    const std::int32_t map_row = packed ? item.head : row, map_layer = packed ? row : item.head;
    shared_.q_ring.wait_free(q_);
    auto* const full = &shared_.q_ring.full[q_.slot];
    B::mbarrier_expect(full, args_.q_bytes);
    if (B::elected()) {
      TILEWAVE_UNROLL
      for (int box = 0; box < L::head_boxes; ++box) {
        B::copy_tensor(shared_.q[q_.slot] + box * (P.rows * L::box_chunks), args_.q, box * L::box_columns, map_row,
                       map_layer, full);
      }
    }
    q_.advance();
  }
  TILEWAVE_DEVICE void fetch_k(const FlashAttentionItem& item, std::int32_t tile) {
    fetch_tile<L::head_boxes>(item, tile, k_pages_, args_.k, args_.k_page_rows, shared_.k[k_.slot], shared_.k_ring, k_);
  }
  TILEWAVE_DEVICE void fetch_v(const FlashAttentionItem& item, std::int32_t tile) {
    fetch_tile<L::value_boxes>(item, tile, v_pages_, args_.v, args_.v_page_rows, shared_.v[v_.slot], shared_.v_ring,
                               v_);
  }

  /// Copies a tile of keys as `boxes` boxes of 128 bytes side by side, or segment by segment. One lane issues copies
  /// of contiguous keys. Lanes that have looked up segments take turns: to hand their rows to one lane takes more
  /// instructions.
  template <int boxes>
  TILEWAVE_DEVICE void fetch_tile(const FlashAttentionItem& item, std::int32_t tile, Pages& pages,
                                  const typename B::TensorMap& map, std::int32_t page_rows, Chunk* to,
                                  typename L::Barriers& ring, typename L::KvSlot& slot) {
    ring.wait_free(slot);
    auto* const full = &ring.full[slot.slot];
    B::mbarrier_expect(full, P.keys * boxes * 128);
    if constexpr (!L::paged) {
      // Each block of a cluster fetches a part of the tile for all.
      const int first = P.cluster > 1 ? B::cluster_rank() * (P.keys / P.cluster) : 0;
      const std::int32_t row = first_row_ + tile * P.keys + first;
      if (B::elected()) {
        TILEWAVE_UNROLL
        for (int box = 0; box < boxes; ++box) {
          Chunk* const of_box = to + (box * P.keys + first) * L::box_chunks;
          if constexpr (P.cluster > 1) {
            B::copy_tensor(of_box, map, box * L::box_columns, row, kv_head_, full, (1u << P.cluster) - 1);
          } else {
            B::copy_tensor(of_box, map, box * L::box_columns, row, kv_head_, full);
          }
        }
      }
    } else {
      if (pages.has_segment()) {
        const std::int32_t row = pages.row(page_rows), first = pages.first();
        if constexpr (L::side_by_side) {
          B::copy_side_by_side(to + first * (boxes * L::box_chunks), map, row, kv_head_, full);
        } else {
          TILEWAVE_UNROLL
          for (int box = 0; box < boxes; ++box) {
            B::copy_tensor(to + (box * P.keys + first) * L::box_chunks, map, box * L::box_columns, row, kv_head_, full);
          }
        }
      }
      pages.advance(item, tile);
    }
    slot.advance();
  }

  const typename L::Args& args_;
  typename L::Shared& shared_;
  int wave_;
  typename L::QSlot q_;
  typename L::KvSlot k_, v_;
  Pages k_pages_, v_pages_;
  std::int32_t kv_head_ = 0, first_row_ = 0;
};

}  // namespace tilewave
