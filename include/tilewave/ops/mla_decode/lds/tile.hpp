// SPDX-License-Identifier: MIT
// A tile of tokens lies in LDS once, and is keys and values: first the latent dimensions of all tokens, then their
// rotated ones. Units of 16 bytes are permuted within each 128 bytes, so that neither products of scores nor those of
// values meet a bank twice.
//
// Keys are read 16 bytes a lane. Values want tokens of one dimension side by side. gfx950 transposes them as it reads
// LDS. On gfx942 a lane reads 16 bytes of four tokens and transposes them in registers.
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
  static constexpr bool direct = B::facts.direct_copies, transposed = B::facts.lds_transposed;
  /// Rows and tokens of a product. LDS of gfx942 has no room for tiles of 32 tokens.
  static constexpr int side = mla_lds_side(B::facts);
  using Map = ProductMap<side>;
  static constexpr int wave_rows = mla_lds_wave_rows, row_tiles = wave_rows / side;
  static constexpr int row_waves = P.rows / wave_rows;  // that multiply
  static constexpr int key_tiles = P.tokens / side;
  static constexpr int row_bytes = S.row().token_bytes(), stages = mla_lds_stages(B::facts, P);
  static constexpr int latent_bytes = latent_value_size * size_of(S.kv), rope_bytes = row_bytes - latent_bytes;
  static constexpr int pitch = mla_lds_pitch, latent_tile_bytes = P.tokens * pitch;
  static constexpr int tile_bytes = P.tokens * (pitch + rope_bytes);
  static constexpr int key_units = S.head_size / 8 / Map::units;           // of a key that a lane reads
  static constexpr int latent_units = latent_value_size / 8 / Map::units;  // of these
  static constexpr int value_tiles = latent_value_size / side;
  static constexpr int value_tokens = 4 * Map::units;  // of half a product of values
  using Sums = Vec<float, Map::sums>;

  /// Returns what is joined to the number of a token's unit by exclusive or; each bit of the token has one of its own.
  /// Eight lanes of gfx942 that are served together have keys whose numbers differ modulo 4, or have neighbouring
  /// units. Sixteen of gfx950 have eight even keys, and the pitch puts odd ones into the other half of the banks.
  TILEWAVE_HOST_DEVICE static constexpr int mask(int token) {
    if (B::facts.lds_banks < 64) return 2 * (token % 4);
    return side == 32 ? token / 2 % 2 * 4 + token / 4 % 4 : token / 2 % 4 * 2;
  }
  /// Returns the byte of the lane's unit of its key's latent dimensions.
  TILEWAVE_HOST_DEVICE static constexpr int key_offset(int lane, int unit) {
    return Map::row(lane) * pitch + 16 * ((Map::units * unit + Map::unit(lane)) ^ mask(Map::row(lane)));
  }
  /// Returns the byte that a lane reads for values of tile `tile`: where LDS transposes, four dimensions of one of four
  /// tokens that sixteen lanes share; else dimensions 8 p to 8 p + 7 of the 128 with number `tile`, of the lane's token
  /// e of four.
  TILEWAVE_HOST_DEVICE static constexpr int value_offset(int lane, int tile, int e) {
    const int position = lane % 16, token = 4 * Map::unit(lane) + (transposed ? position / 4 + value_tokens * e : e);
    if (!transposed) return token * pitch + 16 * ((16 * tile + position) ^ mask(token));
    const int dimension = side * tile + lane % side / 16 * 16 + position % 4 * 4;
    return token * pitch + 16 * (dimension / 8 ^ mask(token)) + dimension % 8 * 2;
  }
  static constexpr int conflicts() {
    int cycles = 0;
    for (int i = 0; i < 8; ++i) {
      cycles += lds_conflicts(B::facts.id, [&](int lane) { return key_offset(lane, i) / 16; });
      if (transposed) {
        cycles += lds_transposed_conflicts(B::facts.id, [&](int lane) { return value_offset(lane, i / 2, i % 2) / 8; });
      } else {
        cycles += lds_conflicts(B::facts.id, [&](int lane) { return value_offset(lane, 0, i % 4) / 16; });
      }
    }
    return cycles;
  }
  static_assert(conflicts() == 0 && pitch / 16 % 16 == rope_bytes / 16 % 16,
                "lanes that are served together meet no bank twice");

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

/// Copies rows of tokens into LDS. A wave has P.tokens / waves neighbouring tokens of a tile, in pieces of eight or
/// four. Tokens of a group of at most sixteen lie in one page. A piece is a copy of the latent dimensions for
/// each token, or four of a quarter, and then copies of the rotated dimensions of all.
template <class L>
struct MlaLdsFetch {
  using B = typename L::B;
  static constexpr int tokens = L::policy.tokens / L::waves;
  static constexpr int piece_tokens = L::direct ? 8 : 4, pieces = tokens / piece_tokens;
  static constexpr int lane_bytes = L::direct ? 16 : 4, copy_bytes = lane_bytes * L::lanes;
  static constexpr int token_copies = L::latent_bytes / copy_bytes, latent_copies = piece_tokens * token_copies;
  static constexpr int rope_copies = piece_tokens * L::rope_bytes / copy_bytes;
  static constexpr int piece_copies = latent_copies + rope_copies, copies = pieces * piece_copies;
  static constexpr int group_tokens = min_of(tokens, mla_lds_page_tokens), groups = tokens / group_tokens;
  static_assert(tokens % piece_tokens == 0 && mla_lds_page_tokens % group_tokens == 0,
                "a wave copies whole pieces, by all of its lanes");

  struct Found {
    std::int32_t id, offset, bytes;  // the page; the group's first token in it, and its last one, or -1 for no tokens
  };
  struct Place {
    const char* page;
    std::int32_t offset, bytes;  // of the group's first token, and the end of its last one
  };

  const char* base;
  std::int64_t page_stride;   // bytes
  std::int32_t token_stride;  // bytes
  FastDiv block_size;
  const std::int32_t* table;
  std::int32_t begin, first, last;  // tokens: the item's first, the wave's first in a tile, the last that is wanted
  std::int32_t latent_at, rope_at;  // where the lane reads of a token without a mask; of the first tokens' rotated part
  Found next[groups];
  Place place[groups];

  TILEWAVE_DEVICE MlaLdsFetch(const PagedAttentionArgs& a, const PagedAttentionWorkItem& item)
      : base(static_cast<const char*>(a.k)),
        page_stride(size_of(L::spec.kv) * a.k_strides.page),
        token_stride(static_cast<std::int32_t>(size_of(L::spec.kv) * a.k_strides.token)),
        block_size(a.block_size),
        table(a.block_table + item.sequence * a.table_row_stride),
        begin(item.begin),
        first(B::wave_id() * tokens),
        last(min_of(item.end, item.begin + item.tiles * L::policy.tokens) - 1) {
    const int byte = L::lane() * lane_bytes, token = byte / L::rope_bytes;
    latent_at = byte ^ 16 * L::mask(first);
    rope_at = token * token_stride + L::latent_bytes + (byte % L::rope_bytes ^ 16 * L::mask(first + token));
  }

  /// Looks up the pages of the wave's tokens of tile n: their ids are on their way then.
  TILEWAVE_DEVICE void look_up(std::int32_t n) {
    const std::int32_t tile = begin + n * L::policy.tokens;
    TILEWAVE_UNROLL
    for (int g = 0; g < groups; ++g) {
      const std::int32_t token = tile + first + g * group_tokens, seen = min_of(token, last);
      const std::int32_t column = block_size.quotient(seen);
      next[g].id = B::load_uniform(table + column);
      next[g].offset = seen - column * block_size.divisor;
      next[g].bytes = token > last ? -1 : min_of(block_size.divisor - 1, last - seen + next[g].offset);
    }
  }
  /// Turns what was looked up into places of copies.
  TILEWAVE_DEVICE void find() {
    TILEWAVE_UNROLL
    for (int g = 0; g < groups; ++g) {
      const Found& of = next[g];
      place[g] = {base + of.id * page_stride, of.bytes < 0 ? 0 : of.offset * token_stride,
                  of.bytes < 0 ? 0 : of.bytes * token_stride + L::row_bytes};
      B::keep_uniform(place[g].page);
      B::keep_uniform(place[g].offset);
      B::keep_uniform(place[g].bytes);
    }
  }
  /// Starts all copies of tile n, into slot n.
  template <int n>
  TILEWAVE_DEVICE void copy_tile(typename L::Shared& shared) {
    look_up(n);
    find();
    static_for<copies>([&](auto i) TILEWAVE_INLINE_LAMBDA { copy<i>(shared, n * L::tile_bytes); });
  }
  /// Starts copy i of the tile whose places were found, into the slot that lies `slot` bytes behind the first. What lies
  /// behind the last token becomes zeros.
  template <int i>
  TILEWAVE_DEVICE void copy(typename L::Shared& shared, std::int32_t slot) const {
    constexpr int piece = i / piece_copies, in_piece = i % piece_copies;
    constexpr bool latent = in_piece < latent_copies;
    constexpr int token = latent ? in_piece / token_copies : (in_piece - latent_copies) * copy_bytes / L::rope_bytes;
    constexpr int part = latent ? in_piece % token_copies * copy_bytes : 0;
    constexpr int in_group = piece * piece_tokens % group_tokens + token;
    const Place& at = place[piece * piece_tokens / group_tokens];
    const typename B::Source source{at.page, static_cast<std::uint32_t>(at.bytes)};
    // The mask of a copy's first token is joined here: registers for each are too many.
    const std::int32_t lane =
        B::opaque(std::int32_t{latent ? latent_at : rope_at}) ^ 16 * L::mask(piece * piece_tokens + token);
    const std::int32_t offset = min_of(at.offset + in_group * token_stride + part, at.bytes);
    const int in_wave = piece * piece_tokens + token;
    char* const to =
        reinterpret_cast<char*>(&shared) + slot +
        (latent ? (first + in_wave) * L::pitch + part : L::latent_tile_bytes + (first + in_wave) * L::rope_bytes);
    if constexpr (L::direct) {
      source.copy(to, lane, offset);
    } else {
      source.copy_word(to, lane, offset);
    }
  }
};

/// What a lane reads of a tile: units of its key, and values as operands.
template <class L>
struct MlaLdsReads {
  using B = typename L::B;
  // Masks change units within 128 bytes, so after so many units, or tiles of values, offsets repeat.
  static constexpr int key_bases = 8 / L::Map::units, value_bases = L::transposed ? 64 / L::side : 1;
  static constexpr int value_parts = L::transposed ? 2 : 4;
  std::int32_t key_at[key_bases], value_at[value_bases][value_parts];  // bytes from the slot
  std::int32_t to_rope;  // from a unit of latent dimensions to that of rotated ones

  TILEWAVE_DEVICE MlaLdsReads() {
    const int lane = L::lane();
    TILEWAVE_UNROLL
    for (int i = 0; i < key_bases; ++i) key_at[i] = B::opaque(std::int32_t{L::key_offset(lane, i)});
    TILEWAVE_UNROLL
    for (int i = 0; i < value_bases; ++i) {
      TILEWAVE_UNROLL
      for (int e = 0; e < value_parts; ++e) value_at[i][e] = B::opaque(std::int32_t{L::value_offset(lane, i, e)});
    }
    to_rope = L::latent_tile_bytes + L::Map::row(lane) * (L::rope_bytes - L::pitch);
  }

  /// Returns the lane's unit c of its key among those of tile `tile`.
  TILEWAVE_DEVICE Chunk key(const char* slot, int tile, int c) const {
    const bool latent = c < L::latent_units;
    const int from = (latent ? c : c - L::latent_units) / key_bases * 128;
    return *reinterpret_cast<const Chunk*>(slot + key_at[c % key_bases] + (latent ? 0 : to_rope) + from +
                                           tile * L::side * (latent ? L::pitch : L::rope_bytes));
  }
  /// Returns the values of dimensions side d to side d + side - 1, where LDS transposes, of the keys that the lane has
  /// of a product.
  TILEWAVE_DEVICE Chunk value(const char* slot, int d, int slice) const {
    const char* const from = slot + d / value_bases * 128 + slice * 16 * L::pitch;
    const auto low = B::template load_transposed<2>(from + value_at[d % value_bases][0]),
               high = B::template load_transposed<2>(from + value_at[d % value_bases][1]);
    return {{low[0], low[1], high[0], high[1]}};
  }
  /// Returns dimensions 8 p to 8 p + 7, of the 128 with number `block`, of the lane's token e of four.
  TILEWAVE_DEVICE Chunk dimensions(const char* slot, int block, int e) const {
    return *reinterpret_cast<const Chunk*>(slot + value_at[0][e] + block * 256);
  }
  /// Transposes four tokens of eight dimensions: operand i has dimension i of the four.
  TILEWAVE_DEVICE static void transpose(const Chunk (&tokens)[4], typename B::KvOperand (&operands)[8]) {
    TILEWAVE_UNROLL
    for (int i = 0; i < 8; ++i) {
      TILEWAVE_UNROLL
      for (int w = 0; w < 2; ++w) {
        const std::uint32_t low = tokens[2 * w][i / 2], high = tokens[2 * w + 1][i / 2];
        operands[i][w] =
            i % 2 == 0 ? B::template pick_bytes<0, 1, 4, 5>(low, high) : B::template pick_bytes<2, 3, 6, 7>(low, high);
      }
    }
  }
};

}  // namespace tilewave
