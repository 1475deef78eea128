// SPDX-License-Identifier: MIT
// The fetching wave copies boxes of q, K and V of an item into shared memory, K one tile ahead of V.
#pragma once

#include "tilewave/ops/flash_attention/tensor/work.hpp"

namespace tilewave {

/// The fetching wave of a block, and its slots in the rings.
template <class B, FlashAttentionSpec S, class L, FlashAttentionPolicy P>
class FlashAttentionFetch {
 public:
  TILEWAVE_DEVICE FlashAttentionFetch(const typename L::Args& args, typename L::Shared& shared)
      : args_(args), shared_(shared) {}

  TILEWAVE_DEVICE void run(const FlashAttentionItem& item) {
    const FlashAttentionArgs& a = args_.attention;
    kv_head_ = a.gqa_ratio.quotient(item.head);
    fetch_k(item, item.end_tile - 1);
    fetch_q(item);
    for (std::int32_t tile = item.end_tile - 1; tile > item.first_tile; --tile) {
      fetch_k(item, tile - 1);
      fetch_v(item, tile);
    }
    fetch_v(item, item.first_tile);
  }

 private:
  TILEWAVE_DEVICE void fetch_q(const FlashAttentionItem& item) {
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
  TILEWAVE_DEVICE void fetch_k(const FlashAttentionItem& item, std::int32_t tile) {
    shared_.k_ring.wait_free(k_);
    B::mbarrier_expect(&shared_.k_ring.full[k_.slot], L::k_bytes);
    fetch_tile<L::head_boxes>(item, tile, args_.k, args_.k_page_rows, shared_.k[k_.slot],
                              &shared_.k_ring.full[k_.slot]);
    k_.advance();
  }
  TILEWAVE_DEVICE void fetch_v(const FlashAttentionItem& item, std::int32_t tile) {
    shared_.v_ring.wait_free(v_);
    B::mbarrier_expect(&shared_.v_ring.full[v_.slot], L::v_bytes);
    fetch_tile<L::value_boxes>(item, tile, args_.v, args_.v_page_rows, shared_.v[v_.slot],
                               &shared_.v_ring.full[v_.slot]);
    v_.advance();
  }

  /// Copies a tile of keys as `boxes` boxes of 64 columns side by side. If paged, a lane copies one segment at a time.
  template <int boxes>
  TILEWAVE_DEVICE void fetch_tile(const FlashAttentionItem& item, std::int32_t tile, const typename B::TensorMap& map,
                                  std::int32_t page_rows, Chunk* to, typename B::Mbarrier* full) {
    const FlashAttentionArgs& a = args_.attention;
    const AttentionSequence& s = item.sequence;
    if constexpr (S.storage == KvStorage::contiguous) {
      const std::int32_t row =
          (a.kv_starts != nullptr ? s.kv_first : s.number * args_.kv_sequence_rows) + tile * P.keys;
      const int box = B::lane_id();
      if (box < boxes)
        B::copy_tensor(to + box * (P.keys * L::box_chunks), map, box * L::box_columns, row, kv_head_, full);
    } else {
      const int segments = P.keys / args_.box_rows;
      for (int segment = B::lane_id(); segment < segments; segment += B::facts.wave_lanes) {
        const std::int32_t key = min_of(tile * P.keys + segment * args_.box_rows, s.kv_count - 1);
        const std::int32_t column = a.block_size.quotient(key), in_page = key - column * a.block_size.divisor;
        const std::int32_t page = B::load(a.block_table + s.number * a.table_row_stride + column);
        const std::int32_t row = page * page_rows + in_page / args_.box_rows * args_.box_rows;
        Chunk* const there = to + segment * args_.box_rows * L::box_chunks;
        TILEWAVE_UNROLL
        for (int box = 0; box < boxes; ++box) {
          B::copy_tensor(there + box * (P.keys * L::box_chunks), map, box * L::box_columns, row, kv_head_, full);
        }
      }
    }
  }

  const typename L::Args& args_;
  typename L::Shared& shared_;
  typename L::QSlot q_;
  typename L::KvSlot k_, v_;
  std::int32_t kv_head_ = 0;
};

}  // namespace tilewave
