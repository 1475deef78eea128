// SPDX-License-Identifier: MIT
// Path lds finds keys here, contiguous ones and those in pages. What a wave fetches at once are keys of one group of
// sixteen, which lie together in a page. Its page is looked up one step ahead, and V of a tile takes what K of it found
// a step before if both are fetched alike. The scalar unit does all this beside the products.
#pragma once

#include "tilewave/ops/flash_attention/lds/layout.hpp"

namespace tilewave {

/// Contiguous keys of a head, which span less than 4 GiB: a tile is an offset from the first.
template <class L, bool paged = L::paged>
struct FlashLdsPlaces {
  static constexpr int key_fetches = L::Keys::fetches, stages = L::stages, tile_keys = L::tile_keys;
  static constexpr int element = L::element;
  const FlashLdsWorkItem& item;
  const char *of_keys, *of_values;  // at the sequence's first token
  std::int32_t key_stride, value_stride;
  std::int32_t key_bytes, value_bytes;  // to the end of the last token, unsigned
  std::int32_t next_key, next_value;    // offsets of the tiles that were fetched last

  TILEWAVE_DEVICE FlashLdsPlaces(const FlashAttentionArgs& a, const FlashLdsWorkItem& work_item, typename L::Shared&)
      : item(work_item),
        of_keys(static_cast<const char*>(a.k) + element * item.sequence.key_at(a, a.k_strides, 0, item.kv_head)),
        of_values(static_cast<const char*>(a.v) + element * item.sequence.key_at(a, a.v_strides, 0, item.kv_head)),
        key_stride(static_cast<std::int32_t>(element * a.k_strides.token)),
        value_stride(static_cast<std::int32_t>(element * a.v_strides.token)),
        key_bytes(to_end(key_stride, L::key_bytes)),
        value_bytes(to_end(value_stride, L::value_bytes)) {}

  template <class Keys, class Values>
  TILEWAVE_DEVICE void begin(std::int32_t, const Keys&, const Values&) {}
  /// Returns the place of fetch i of K in tile 0.
  template <int i, class Keys>
  TILEWAVE_DEVICE FlashLdsPlace first(const Keys&) {
    return place(of_keys, next_key = offset(0, key_stride), key_bytes);
  }
  /// Returns the place of fetch i of step n. Fetches of K, tile n + stages, come before those of V, tile n + stages -
  /// 1.
  template <int i, bool whole, class Keys, class Values>
  TILEWAVE_DEVICE FlashLdsPlace next(std::int32_t n, const Keys&, const Values&) {
    if constexpr (i == 0) move<whole>(n + stages, key_stride, next_key);
    if constexpr (i == key_fetches) move<whole>(n + stages - 1, value_stride, next_value);
    if constexpr (i < key_fetches) {
      return place(of_keys, next_key, key_bytes);
    } else {
      return place(of_values, next_value, value_bytes);
    }
  }

 private:
  TILEWAVE_DEVICE static FlashLdsPlace place(const char* base, std::int32_t at, std::int32_t bytes) {
    return {base, FlashLdsPlace{base, 0, bytes}.behind(at), bytes};
  }
  TILEWAVE_DEVICE std::int32_t to_end(std::int32_t stride, int row) const {
    return static_cast<std::int32_t>(static_cast<std::uint32_t>(item.sequence.kv_count - 1) * stride + row);
  }
  TILEWAVE_DEVICE std::int32_t offset(std::int32_t n, std::int32_t stride) const {
    return static_cast<std::int32_t>(static_cast<std::uint32_t>(item.tile(n) * tile_keys) * stride);
  }
  /// Steady steps follow each other. What lies behind the last key is zeros, by the bound of the buffer.
  template <bool whole>
  TILEWAVE_DEVICE void move(std::int32_t n, std::int32_t stride, std::int32_t& at) const {
    if constexpr (whole) {
      at += tile_keys * stride;
    } else {
      at = offset(n, stride);
    }
  }
};

template <class L>
struct FlashLdsPlaces<L, true> {
  using B = typename L::Room;
  static constexpr int key_fetches = L::Keys::fetches, fetches = key_fetches + L::Values::fetches;
  static constexpr int stages = L::stages, tile_keys = L::tile_keys, lookups = L::alike ? key_fetches : fetches;
  static constexpr int element = L::element;
  struct Found {
    std::int32_t id, within, rows;  // the page, the first key in it, and its last key
  };

  const FlashLdsWorkItem& item;
  const char *of_keys, *of_values;     // this head in the first page
  std::uint32_t key_page, value_page;  // units of 16 bytes from a page to the next
  std::int32_t key_stride, value_stride;
  FastDiv block_size;
  const std::int32_t* ids;                // of the sequence's pages
  std::int32_t first_column, last_group;  // of the ids in LDS; where the last key's group begins
  const std::int32_t* in_lds;
  std::int32_t id[lookups], within[lookups], rows[lookups];  // of fetch i in the next step, as in Found
  std::int32_t key_token, value_token;                       // first tokens of the tiles that were looked up last
  std::int32_t next_id;
  Found newest[key_fetches], ready[key_fetches];  // alike: of the tiles of K that were fetched last, and before it

  TILEWAVE_DEVICE FlashLdsPlaces(const FlashAttentionArgs& a, const FlashLdsWorkItem& work_item,
                                 [[maybe_unused]] typename L::Shared& shared)
      : item(work_item),
        of_keys(static_cast<const char*>(a.k) + element * item.kv_head * a.k_page_strides.head),
        of_values(static_cast<const char*>(a.v) + element * item.kv_head * a.v_page_strides.head),
        key_page(static_cast<std::uint32_t>(element * a.k_page_strides.page / 16)),
        value_page(static_cast<std::uint32_t>(element * a.v_page_strides.page / 16)),
        key_stride(static_cast<std::int32_t>(element * a.k_page_strides.token)),
        value_stride(static_cast<std::int32_t>(element * a.v_page_strides.token)),
        block_size(a.block_size),
        ids(a.block_table + item.sequence.number * a.table_row_stride),
        first_column(block_size.quotient(item.first * tile_keys)),
        last_group(align_down(item.sequence.kv_count - 1, std::int32_t{flash_page_keys})),
        in_lds(nullptr) {
    if constexpr (L::page_ids > 0) in_lds = shared.pages;
  }

  /// Looks up what step n fetches.
  template <class Keys, class Values>
  TILEWAVE_DEVICE void begin(std::int32_t n, const Keys& keys, const Values& values) {
    static_for<lookups>([&](auto i) TILEWAVE_INLINE_LAMBDA { look_up<i, false>(n, keys, values); });
    take_id<0>();
  }
  template <int i, class Keys>
  TILEWAVE_DEVICE FlashLdsPlace first(const Keys& keys) {
    find<i, false>(item.tile(0) * tile_keys + keys.first_row(i));
    take_id<i>();
    return place<i, false>();
  }
  template <int i, bool whole, class Keys, class Values>
  TILEWAVE_DEVICE FlashLdsPlace next(std::int32_t n, const Keys& keys, const Values& values) {
    const FlashLdsPlace at = place<i, whole>();
    if constexpr (i < lookups) look_up<i, whole>(n + 1, keys, values);
    if constexpr ((i + 1) % fetches < lookups) take_id<(i + 1) % fetches>();
    return at;
  }

 private:
  /// Looks up the page of fetch i of step n. Steady steps follow each other, so they need no branch to know their
  /// tiles, and all their keys exist.
  template <int i, bool whole, class Keys, class Values>
  TILEWAVE_DEVICE void look_up(std::int32_t n, const Keys& keys, const Values& values) {
    if constexpr (i == 0) {
      value_token = key_token;
      if constexpr (whole) {
        key_token += n + stages < item.tiles ? tile_keys : 0;
      } else {
        key_token = item.tile(n + stages) * tile_keys, value_token = item.tile(n + stages - 1) * tile_keys;
      }
    }
    std::int32_t key;
    if constexpr (i < key_fetches) {
      key = key_token + keys.first_row(i);
    } else {
      key = value_token + values.first_row(i - key_fetches);
    }
    find<i, whole>(key);
  }
  template <int i, bool whole>
  TILEWAVE_DEVICE void find(std::int32_t key) {
    if constexpr (!whole) key = min_of(key, last_group);
    const std::int32_t column = block_size.quotient(key);
    within[i] = key - column * block_size.divisor;
    if constexpr (!whole) rows[i] = min_of(block_size.divisor, item.sequence.kv_count - key + within[i]) - 1;
    if constexpr (L::page_ids > 0) {
      id[i] = in_lds[column - first_column];
    } else {
      id[i] = B::load(ids + column);
    }
  }
  /// Takes the id that was looked up for fetch i, whose place comes next: the scalar unit would wait for it there.
  template <int i>
  TILEWAVE_DEVICE void take_id() {
    next_id = B::uniform(id[i]);
  }
  /// Returns the bytes from the first page to page `number`.
  TILEWAVE_DEVICE static std::uint64_t page(std::int32_t number, std::uint32_t units) {
    return 16 * (std::uint64_t{static_cast<std::uint32_t>(number)} * units);
  }
  template <int i, bool whole>
  TILEWAVE_DEVICE FlashLdsPlace place() {
    constexpr bool of_key = i < key_fetches;
    Found of;
    if constexpr (!of_key && L::alike) {
      of = ready[i - key_fetches];
    } else {
      of = {next_id, within[i], rows[i]};
      if constexpr (L::alike) ready[i] = newest[i], newest[i] = of;
    }
    if constexpr (whole) of.rows = block_size.divisor - 1;
    if constexpr (of_key) {
      return {of_keys + page(of.id, key_page), of.within * key_stride, of.rows * key_stride + L::key_bytes};
    } else {
      return {of_values + page(of.id, value_page), of.within * value_stride, of.rows * value_stride + L::value_bytes};
    }
  }
};

}  // namespace tilewave
