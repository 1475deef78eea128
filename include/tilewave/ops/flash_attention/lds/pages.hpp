// SPDX-License-Identifier: MIT
// Path lds finds keys in pages here. What a wave fetches at once are keys of one group of sixteen, which lie together in
// a page. A fetch's page is looked up one step ahead.
#pragma once

#include "tilewave/ops/flash_attention/lds/layout.hpp"

namespace tilewave {

/// Contiguous keys have no pages.
template <class L, bool paged = L::paged>
struct FlashLdsPages {
  TILEWAVE_DEVICE FlashLdsPages(const FlashAttentionArgs&, const FlashLdsWorkItem&, typename L::Shared&) {}
};

template <class L>
struct FlashLdsPages<L, true> {
  using B = typename L::Room;
  static constexpr int fetches = L::Keys::fetches + L::Values::fetches;

  FastDiv block_size;
  const std::int32_t* ids;                    // of the sequence's pages, from first_column on
  std::int32_t first_column;                  // of the block table
  std::int32_t last_group;                    // the last key's group begins at this key
  std::int64_t key_page, value_page;          // elements from a page to the next
  std::int32_t id[fetches], within[fetches];  // of fetch i: its page, and its first key there

  TILEWAVE_DEVICE FlashLdsPages(const FlashAttentionArgs& a, const FlashLdsWorkItem& item,
                                [[maybe_unused]] typename L::Shared& shared)
      : block_size(a.block_size),
        ids(a.block_table + item.sequence.number * a.table_row_stride),
        first_column(0),
        last_group(align_down(item.sequence.kv_count - 1, std::int32_t{flash_page_keys})),
        key_page(a.k_page_strides.page),
        value_page(a.v_page_strides.page) {
    if constexpr (L::page_ids > 0) {
      ids = shared.pages;
      first_column = block_size.quotient(item.first * L::tile_keys);
    }
  }

  /// Looks up the page of fetch i, whose group begins at this key. Past the last key's group it is that one.
  template <int i>
  TILEWAVE_DEVICE void look_up(std::int32_t key) {
    key = min_of(key, last_group);
    const std::int32_t column = block_size.quotient(key);
    within[i] = key - column * block_size.divisor;
    if constexpr (L::page_ids > 0) {
      id[i] = ids[column - first_column];
    } else {
      id[i] = B::load(ids + column);
    }
  }
  /// Returns the address of fetch i's group of keys, `token_stride` bytes apart, in pages of which the first is `first`.
  template <int i>
  TILEWAVE_DEVICE const char* address(const char* first, std::int32_t token_stride) const {
    const std::int64_t page = i < L::Keys::fetches ? key_page : value_page;
    return first + 2 * (B::uniform(id[i]) * page) + std::int64_t{within[i]} * token_stride;
  }
};

}  // namespace tilewave
