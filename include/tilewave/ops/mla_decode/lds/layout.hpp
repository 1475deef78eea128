// SPDX-License-Identifier: MIT
// A tile of tokens lies in LDS once, and is keys and values: first the latent dimensions of all tokens, then their
// rotated ones. Keys are read 16 bytes a lane. Values want tokens of one dimension side by side: LDS transposes them as
// they are read (transposed.hpp), or lanes do so in registers (turned.hpp).
#pragma once

#include "tilewave/arch/lds.hpp"
#include "tilewave/attention/latent_cache.hpp"
#include "tilewave/core/static_for.hpp"
#include "tilewave/ops/mla_decode/args.hpp"
#include "tilewave/ops/paged_attention/work_item.hpp"

namespace tilewave {

/// What tiles of both kinds have in common.
template <class RoomOf, MlaDecodeSpec S, MlaDecodePolicy P>
struct MlaLdsTile {
  using Room = RoomOf;
  using B = Room;
  static constexpr MlaDecodeSpec spec = S;
  static constexpr MlaDecodePolicy policy = P;
  static constexpr int lanes = B::facts.wave_lanes, waves = P.waves;
  static constexpr DType type = S.q;  // of products, and of a tile
  static constexpr int element = size_of(type);
  static constexpr int row_waves = P.rows / mla_lds_wave_rows;  // that multiply
  // Waves that fetch. Chips that copy words alone leave it to two waves without rows, if there are some.
  static constexpr bool held = mla_lds_held(B::facts, P);
  static constexpr int fetch_waves = held ? 2 : waves, fetch_tokens = P.tokens / fetch_waves;  // tokens of a wave
  static constexpr int row_bytes = S.row().token_bytes(), stages = mla_lds_stages(B::facts, S);
  static constexpr int latent_bytes = latent_value_size * element, rope_bytes = S.head_size * element - latent_bytes;
  static constexpr int pitch = mla_lds_pitch(B::facts, S), latent_tile_bytes = P.tokens * pitch;
  static constexpr int tile_bytes = P.tokens * (pitch + rope_bytes);

  /// LLVM would otherwise keep what follows from the lane's number across items, for which there are no registers.
  TILEWAVE_DEVICE static int lane() { return B::opaque(std::int32_t{B::lane_id()}); }

  /// Returns the slot that lies `distance` behind one, in bytes from the first.
  template <int distance>
  TILEWAVE_DEVICE static std::int32_t slot_behind(std::int32_t slot) {
    slot += distance * tile_bytes;
    return slot < stages * tile_bytes ? slot : slot - stages * tile_bytes;
  }

  struct Shared {
    alignas(16) Chunk tiles[stages][tile_bytes / sizeof(Chunk)];
  };
};

/// Finds the tokens that a wave fetches: neighbouring ones of a tile, which lie in one page.
template <class L>
struct MlaLdsPlaces {
  using B = typename L::B;
  static constexpr int tokens = L::fetch_tokens;
  static_assert(mla_lds_page_tokens % tokens == 0, "the tokens of a wave lie in one page");

  struct Found {
    std::int32_t id, offset, bytes;  // the page; the wave's first token in it, and its last one, or -1 for no tokens
  };
  struct Place {
    const char* page;
    std::int32_t offset, bytes;  // of the wave's first token, and the end of its last one
  };

  const char* base;
  std::uint32_t page_units;   // of 16 bytes, from a page to the next
  std::int32_t token_stride;  // bytes
  FastDiv block_size;
  const std::int32_t* table;
  std::int32_t begin, first, last;  // tokens: the wave's first one of tile 0, and in the tile, the last that is wanted
  Found next;
  Place place;
  std::int32_t in_page, end_in_page;  // tokens of the page: the wave's first one, and behind the last that is wanted

  TILEWAVE_DEVICE MlaLdsPlaces(const PagedAttentionArgs& a, const PagedAttentionWorkItem& item)
      : base(static_cast<const char*>(a.k)),
        page_units(static_cast<std::uint32_t>(size_of(L::spec.kv) * a.k_strides.page / 16)),
        token_stride(static_cast<std::int32_t>(size_of(L::spec.kv) * a.k_strides.token)),
        block_size(a.block_size),
        table(a.block_table + item.sequence * a.table_row_stride),
        begin(item.begin + wave() * tokens),
        first(wave() * tokens),
        last(min_of(item.end, item.begin + item.tiles * L::policy.tokens) - 1) {}

  /// Returns the number of the wave among those that fetch, which are a block's last.
  TILEWAVE_DEVICE static int wave() { return B::wave_id() - (L::waves - L::fetch_waves); }

  /// Looks up the page of the wave's tokens of tile n: its id is on its way then.
  TILEWAVE_DEVICE void look_up(std::int32_t n) {
    const std::int32_t token = begin + n * L::policy.tokens, seen = min_of(token, last);
    const std::int32_t column = block_size.quotient(seen);
    next.id = B::load_uniform(table + column);
    next.offset = seen - column * block_size.divisor;
    next.bytes = token > last ? -1 : min_of(block_size.divisor - 1, last - seen + next.offset);
  }
  /// Turns what was looked up into the place of copies.
  TILEWAVE_DEVICE void find() {
    in_page = next.offset;
    end_in_page = next.bytes + 1;
    place = {base + 16 * (std::uint64_t{static_cast<std::uint32_t>(next.id)} * page_units),
             next.bytes < 0 ? 0 : next.offset * token_stride,
             next.bytes < 0 ? 0 : next.bytes * token_stride + L::row_bytes};
    B::keep_uniform(place.page);
    B::keep_uniform(place.offset);
    B::keep_uniform(place.bytes);
  }
  TILEWAVE_DEVICE typename B::Source source() const { return {place.page, static_cast<std::uint32_t>(place.bytes)}; }
};

}  // namespace tilewave
