// SPDX-License-Identifier: MIT
// A tile of tokens lies in LDS once, and is keys and values: first the latent dimensions of all tokens, then their
// rotated ones. Units of 16 bytes are permuted, so that neither products of scores nor those of values meet a bank
// twice. Keys are read 16 bytes a lane. Values want tokens of one dimension side by side: LDS transposes them as they
// are read.
#pragma once

#include "tilewave/arch/lds.hpp"
#include "tilewave/attention/latent_cache.hpp"
#include "tilewave/core/static_for.hpp"
#include "tilewave/ops/mla_decode/args.hpp"
#include "tilewave/ops/paged_attention/work_item.hpp"

namespace tilewave {

template <class RoomOf, MlaDecodeSpec S, MlaDecodePolicy P>
struct MlaLdsLayout {
  using Room = RoomOf;
  using B = Room;
  static constexpr MlaDecodeSpec spec = S;
  static constexpr MlaDecodePolicy policy = P;
  static constexpr int lanes = B::facts.wave_lanes, waves = P.waves;
  static constexpr int side = 32;  // rows and tokens of a product
  using Map = ProductMap<side>;
  using Sums = Vec<float, Map::sums>;
  static constexpr DType type = S.kv;
  static constexpr int element = size_of(type), chunks = B::template product_chunks<type>;  // of an operand
  static constexpr int row_waves = P.rows / mla_lds_wave_rows;                              // that multiply
  static constexpr int key_tiles = P.tokens / side, value_tiles = latent_value_size / side;
  static constexpr int product_k = Map::units * chunks * (16 / element);  // what a product sums up
  static constexpr int head_slices = S.head_size / product_k, key_slices = P.tokens / product_k;
  static constexpr int row_bytes = S.row().token_bytes(), stages = mla_lds_stages(B::facts, S);
  static constexpr int latent_bytes = latent_value_size * element, rope_bytes = row_bytes - latent_bytes;
  static constexpr int pitch = mla_lds_pitch(S), latent_tile_bytes = P.tokens * pitch;
  static constexpr int tile_bytes = P.tokens * (pitch + rope_bytes);

  /// Returns what is joined to the number of a token's unit by exclusive or; each bit of the token has one of its own.
  /// Sixteen lanes that are served together read keys of 16 tokens: of bf16, the pitch puts odd ones into the other
  /// half of the banks, and the mask spreads even ones over eight units; of fp8, it spreads all over sixteen. What 32
  /// lanes read of values are 64 bytes of four tokens of bf16, and 32 bytes of eight of fp8.
  TILEWAVE_HOST_DEVICE static constexpr int mask(int token) {
    if (element == 2) return token / 2 % 2 * 4 + token / 4 % 4;
    return token / 8 % 2 * 8 + token % 4 * 2 + token / 4 % 2;
  }
  static constexpr int window = element == 2 ? 8 : 16;  // units within which the mask permutes
  /// The same for rotated dimensions, which are eight units of bf16 and four of fp8.
  TILEWAVE_HOST_DEVICE static constexpr int rope_mask(int token) { return element == 2 ? mask(token) : token / 4 % 4; }
  /// Returns the byte of the lane's unit of its key's latent, or rotated, dimensions.
  TILEWAVE_HOST_DEVICE static constexpr int key_offset(int lane, int unit) {
    const int token = Map::row(lane);
    return token * pitch + 16 * ((Map::units * unit + Map::unit(lane)) ^ mask(token));
  }
  TILEWAVE_HOST_DEVICE static constexpr int rope_offset(int lane, int unit) {
    const int token = Map::row(lane);
    return token * rope_bytes + 16 * ((Map::units * unit + Map::unit(lane)) ^ rope_mask(token));
  }
  /// Returns the byte that a lane reads for values of tile `tile`, part e of an operand: 8 bytes of one of the tokens
  /// that sixteen lanes share, whose scores they have.
  TILEWAVE_HOST_DEVICE static constexpr int value_offset(int lane, int tile, int e) {
    constexpr int lanes_of_token = 2 * element;
    const int of_token = lane % 16 / lanes_of_token;
    const int token = of_token / 4 * 8 + 4 * Map::unit(lane) + of_token % 4 + part_tokens * e;
    const int byte = element * (side * tile + lane / 16 % 2 * 16) + lane % lanes_of_token * 8;
    return token * pitch + 16 * (byte / 16 ^ mask(token)) + byte % 16;
  }
  static constexpr int part_tokens = 16 / element;  // of a read of values by both halves of a wave
  static constexpr int conflicts() {
    int cycles = 0;
    for (int i = 0; i < 16; ++i) {
      cycles += lds_conflicts(B::facts.id, [&](int lane) { return key_offset(lane, i) / 16; });
      cycles += lds_conflicts(B::facts.id, [&](int lane) { return rope_offset(lane, i % 2) / 16; });
      cycles += lds_transposed_conflicts(B::facts.id, [&](int lane) { return value_offset(lane, i / 2, i % 2) / 8; });
    }
    return cycles;
  }
  static_assert(conflicts() == 0, "lanes that are served together meet no bank twice");

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

/// Copies rows of tokens into LDS. A wave has P.tokens / waves neighbouring tokens of a tile, which lie in one page. A
/// copy of all lanes has the latent dimensions of one token of bf16, or of two of fp8; the last one has the rotated
/// dimensions of all.
template <class L>
struct MlaLdsFetch {
  using B = typename L::B;
  static constexpr int tokens = L::policy.tokens / L::policy.waves;
  static constexpr int copy_bytes = 16 * L::lanes, latent_copies = tokens * L::latent_bytes / copy_bytes;
  static constexpr int copies = latent_copies + 1, copy_tokens = tokens / latent_copies;
  static_assert(tokens * L::rope_bytes == copy_bytes && mla_lds_page_tokens % tokens == 0 &&
                    (copy_tokens == 1 || L::pitch == L::latent_bytes),
                "all lanes copy 16 bytes");

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
  std::int32_t latent_at, rope_at;  // where the lane reads of the first copy's tokens, and of rotated dimensions
  Found next;
  Place place;
  std::int32_t from;  // offset of the tokens that were copied last

  TILEWAVE_DEVICE MlaLdsFetch(const PagedAttentionArgs& a, const PagedAttentionWorkItem& item)
      : base(static_cast<const char*>(a.k)),
        page_units(static_cast<std::uint32_t>(L::element * a.k_strides.page / 16)),
        token_stride(static_cast<std::int32_t>(size_of(L::spec.kv) * a.k_strides.token)),
        block_size(a.block_size),
        table(a.block_table + item.sequence * a.table_row_stride),
        begin(item.begin + B::wave_id() * tokens),
        first(B::wave_id() * tokens),
        last(min_of(item.end, item.begin + item.tiles * L::policy.tokens) - 1) {
    const int byte = 16 * L::lane(), token = byte / L::rope_bytes;
    latent_at = byte % L::latent_bytes ^ 16 * L::mask(first + byte / L::latent_bytes);
    rope_at = token * token_stride + L::latent_bytes + (byte % L::rope_bytes ^ 16 * L::rope_mask(first + token));
  }

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
    place = {base + 16 * (std::uint64_t{static_cast<std::uint32_t>(next.id)} * page_units),
             next.bytes < 0 ? 0 : next.offset * token_stride,
             next.bytes < 0 ? 0 : next.bytes * token_stride + L::row_bytes};
    B::keep_uniform(place.page);
    B::keep_uniform(place.offset);
    B::keep_uniform(place.bytes);
  }
  /// Starts all copies of tile n, into slot n.
  template <int n>
  TILEWAVE_DEVICE void copy_tile(typename L::Shared& shared) {
    look_up(n);
    find();
    static_for<copies>([&](auto i) TILEWAVE_INLINE_LAMBDA { copy<i>(shared, n * L::tile_bytes); });
  }
  /// Starts copy i of the tile whose place was found, into the slot that lies `slot` bytes behind the first. What lies
  /// behind the last token becomes zeros.
  template <int i>
  TILEWAVE_DEVICE void copy(typename L::Shared& shared, std::int32_t slot) {
    constexpr bool latent = i < latent_copies;
    constexpr int token = latent ? i * copy_tokens : 0;
    // The mask of a copy's first token is joined here: registers for each are too many.
    std::int32_t lane = B::opaque(std::int32_t{latent ? latent_at : rope_at}) ^ 16 * L::mask(token);
    if constexpr (latent && copy_tokens > 1) lane += B::lane_id() * 16 / L::latent_bytes * token_stride;
    // Nor are there scalar registers for what copies add to their tile's place.
    std::int32_t to = slot + (latent ? first * L::pitch : first * L::rope_bytes);
    if constexpr (i % latent_copies == 0) {
      from = place.offset;
    } else {
      from += copy_tokens * token_stride;
    }
    B::keep_uniform(to), B::keep_uniform(from);
    typename B::Source{place.page, static_cast<std::uint32_t>(place.bytes)}.copy(
        reinterpret_cast<char*>(&shared) + to + (latent ? token * L::pitch : L::latent_tile_bytes), lane,
        min_of(from, place.bytes));
  }
};

/// What a lane reads of a tile: units of its key, and values as operands.
template <class L>
struct MlaLdsReads {
  using B = typename L::B;
  using Operand = Chunk[L::chunks];
  // Masks change units within a window, so after so many units, or tiles of values, offsets repeat. Rotated units of
  // bf16 lie like latent ones, a distance away.
  static constexpr int key_bases = L::window / L::Map::units, rope_bases = L::element == 2 ? 0 : 2;
  static constexpr int value_bases = 16 * L::window / (L::side * L::element), value_parts = L::element == 2 ? 2 : 1;
  static constexpr int latent_units = L::latent_bytes / 16 / L::Map::units;
  std::int32_t key_at[key_bases], rope_at[max_of(rope_bases, 1)],
      value_at[value_bases][value_parts];  // bytes from the slot
  std::int32_t to_rope;  // of bf16, from a unit of latent dimensions to a rotated one: made anew at the first of them

  TILEWAVE_DEVICE MlaLdsReads() {
    const int lane = L::lane();
    TILEWAVE_UNROLL
    for (int i = 0; i < key_bases; ++i) key_at[i] = B::opaque(std::int32_t{L::key_offset(lane, i)});
    TILEWAVE_UNROLL
    for (int i = 0; i < rope_bases; ++i)
      rope_at[i] = B::opaque(std::int32_t{L::latent_tile_bytes + L::rope_offset(lane, i)});
    TILEWAVE_UNROLL
    for (int i = 0; i < value_bases; ++i) {
      TILEWAVE_UNROLL
      for (int e = 0; e < value_parts; ++e) value_at[i][e] = B::opaque(std::int32_t{L::value_offset(lane, i, e)});
    }
  }

  /// Reads slice `slice` of the lane's key among those of tile `tile`.
  TILEWAVE_DEVICE void key(const char* slot, int tile, int slice, Operand& to) {
    TILEWAVE_UNROLL
    for (int i = 0; i < L::chunks; ++i) {
      const int c = slice * L::chunks + i, of_rope = c - latent_units;
      const char* from;
      if (of_rope < 0) {
        from = slot + key_at[c % key_bases] + c / key_bases * (16 * L::window) + tile * L::side * L::pitch;
      } else if (rope_bases == 0) {
        if (of_rope == 0) to_rope = L::latent_tile_bytes + L::Map::row(L::lane()) * (L::rope_bytes - L::pitch);
        from = slot + key_at[of_rope] + to_rope + tile * L::side * L::rope_bytes;
      } else {
        from = slot + rope_at[of_rope] + tile * L::side * L::rope_bytes;
      }
      to[i] = *reinterpret_cast<const Chunk*>(from);
    }
  }
  /// Reads the values of dimensions side d to side d + side - 1 of the keys that the lane has of slice `slice`.
  TILEWAVE_DEVICE void value(const char* slot, int d, int slice, Operand& to) const {
    TILEWAVE_UNROLL
    for (int i = 0; i < L::chunks; ++i) {
      const char* const from =
          slot + d / value_bases * (16 * L::window) + (slice * L::chunks + i) * 2 * L::part_tokens * L::pitch;
      const std::int32_t(&at)[value_parts] = value_at[d % value_bases];
      const char* const second = from + (value_parts > 1 ? at[value_parts - 1] : at[0] + L::part_tokens * L::pitch);
      const auto low = B::template load_transposed<L::element>(from + at[0]),
                 high = B::template load_transposed<L::element>(second);
      to[i] = {{low[0], low[1], high[0], high[1]}};
    }
  }
};

}  // namespace tilewave
