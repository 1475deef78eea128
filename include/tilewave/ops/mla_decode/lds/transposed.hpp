// SPDX-License-Identifier: MIT
// Tiles of a chip whose LDS transposes what is read. Scores are products of 32 tokens and 32 rows. Units of 16 bytes
// are permuted, so that neither products of scores nor those of values meet a bank twice.
#pragma once

#include "tilewave/ops/mla_decode/lds/layout.hpp"

namespace tilewave {

template <class RoomOf, MlaDecodeSpec S, MlaDecodePolicy P>
struct MlaLdsTransposed : MlaLdsTile<RoomOf, S, P> {
  using Tile = MlaLdsTile<RoomOf, S, P>;
  using B = RoomOf;
  static constexpr int side = 32;  // rows and tokens of a product
  using Map = ProductMap<side>;
  using Sums = Vec<float, Map::sums>;
  static constexpr int value_tiles = latent_value_size / side;
  using Out = Sums[value_tiles];  // sums of values
  static constexpr int element = Tile::element, pitch = Tile::pitch, rope_bytes = Tile::rope_bytes;
  static constexpr int chunks = B::template product_chunks<Tile::type>;  // of an operand
  static constexpr int key_tiles = P.tokens / side;
  static constexpr int product_k = Map::units * chunks * (16 / element);  // what a product sums up
  static constexpr int head_slices = S.head_size / product_k, key_slices = P.tokens / product_k;

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
};

/// Copies rows of tokens into LDS. A copy of all lanes has the latent dimensions of one token of bf16, or of two of
/// fp8; the last one has the rotated dimensions of all.
template <class L>
struct MlaLdsTransposedFetch : MlaLdsPlaces<L> {
  using B = typename L::B;
  using Places = MlaLdsPlaces<L>;
  using Places::first, Places::place, Places::token_stride;
  static constexpr int tokens = Places::tokens;
  static constexpr int copy_bytes = 16 * L::lanes, latent_copies = tokens * L::latent_bytes / copy_bytes;
  static constexpr int copies = latent_copies + 1, copy_tokens = tokens / latent_copies;
  static constexpr int under_way = copies;  // instructions
  static_assert(tokens * L::rope_bytes == copy_bytes && (copy_tokens == 1 || L::pitch == L::latent_bytes),
                "all lanes copy 16 bytes");

  std::int32_t latent_at, rope_at;  // where the lane reads of the first copy's tokens, and of rotated dimensions
  std::int32_t from;                // offset of the tokens that were copied last

  TILEWAVE_DEVICE MlaLdsTransposedFetch(const PagedAttentionArgs& a, const PagedAttentionWorkItem& item)
      : Places(a, item) {
    const int byte = 16 * L::lane(), token = byte / L::rope_bytes;
    latent_at = byte % L::latent_bytes ^ 16 * L::mask(first + byte / L::latent_bytes);
    rope_at = token * token_stride + L::latent_bytes + (byte % L::rope_bytes ^ 16 * L::rope_mask(first + token));
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
    this->source().copy(reinterpret_cast<char*>(&shared) + to + (latent ? token * L::pitch : L::latent_tile_bytes),
                        lane, min_of(from, place.bytes));
  }
};

/// What a lane reads of a tile: units of its key, and values as operands.
template <class L>
struct MlaLdsTransposedReads {
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

  TILEWAVE_DEVICE MlaLdsTransposedReads() {
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

/// The operands of a wave, and its scores. A lane has scores of one row, that of its sums of values.
template <class L>
struct MlaLdsTransposedProducts {
  using B = typename L::B;
  using Map = typename L::Map;
  using Probabilities = Chunk[L::key_slices][L::chunks];
  static constexpr DType type = L::type;
  static constexpr int side = L::side, key_tiles = L::key_tiles, chunks = L::chunks, key_slices = L::key_slices;
  static constexpr int score_rows = 1, elements = key_tiles * Map::sums;  // scores of a lane
  static constexpr int ahead = chunks == 1 ? 4 : 2;  // operands are read so many products before their use
  static constexpr int score_products = key_tiles * L::head_slices,
                       products = score_products + L::value_tiles * key_slices;
  static constexpr int last_read = products - ahead;  // from this product on the next tile is read
  /// The first products of values follow upon the last of scores, which are done some products later.
  static constexpr int first_exponential = 4 / chunks,
                       exponential_slots = products - score_products - ahead - first_exponential;
  static constexpr int exponential_slot(int i) {
    const int slot = i - score_products - first_exponential;
    return slot >= 0 ? slot : exponential_slots;
  }
  static constexpr int word_parts = 1, permutes = 0;
  static constexpr int copy_slots = score_products, look_up_at = score_products;
  static constexpr int copy_slot(int i) { return i; }

  MlaLdsTransposedReads<L> reads;
  Chunk q[L::head_slices][chunks];
  typename L::Sums sums[key_tiles];  // products of scores
  Chunk operands[ahead][chunks];     // of keys and values: that of product i is at i % ahead

  TILEWAVE_HOST_DEVICE static constexpr int row(int lane, int) { return Map::row(lane); }
  TILEWAVE_DEVICE void load_query(int, const char* row) {
    const auto* const from = reinterpret_cast<const Chunk*>(row) + Map::unit(L::lane());
    TILEWAVE_UNROLL
    for (int k = 0; k < L::head_slices; ++k) {
      TILEWAVE_UNROLL
      for (int c = 0; c < chunks; ++c) q[k][c] = B::load(from + Map::units * (chunks * k + c));
    }
  }
  /// Returns the token of the lane's score e, counted from that of score 0.
  TILEWAVE_HOST_DEVICE static constexpr int token_of(int e) {
    return e / Map::sums * side + Map::kv_row(0, e % Map::sums);
  }
  TILEWAVE_HOST_DEVICE static constexpr int first_token(int lane) { return Map::kv_row(lane, 0); }
  TILEWAVE_HOST_DEVICE static constexpr int row_of(int) { return 0; }
  template <int e>
  TILEWAVE_DEVICE float score() const {
    return sums[e / Map::sums][e % Map::sums];
  }
  /// Puts a word of probabilities, whose first score is e, among those of the next tile.
  template <int e>
  TILEWAVE_DEVICE static void put(std::uint32_t word, Probabilities& to) {
    constexpr int in_word = 4 / L::element, c = e / (4 * in_word);
    to[c / chunks][c % chunks][e / in_word % 4] = word;
  }
  TILEWAVE_DEVICE static void clear(Probabilities& to) {
    TILEWAVE_UNROLL
    for (auto& slice : to) {
      TILEWAVE_UNROLL
      for (Chunk& chunk : slice) chunk = {};
    }
  }
  /// Takes them as they are, in front of the first product.
  template <int i>
  TILEWAVE_DEVICE static void take(const Probabilities& from, Probabilities& to) {
    if constexpr (i == 0) {
      TILEWAVE_UNROLL
      for (int k = 0; k < key_slices; ++k) {
        TILEWAVE_UNROLL
        for (int c = 0; c < chunks; ++c) to[k][c] = from[k][c];
      }
    }
  }
  template <class Op>
  TILEWAVE_DEVICE static float over_lanes(float value, Op op) {
    return op(value, B::shuffle_xor(value, 32));
  }

  TILEWAVE_DEVICE void begin(const char* shared) {
    static_for<ahead>([&](auto i) TILEWAVE_INLINE_LAMBDA { read<i>(shared, 0, 0); });
  }
  /// Reads what a later product takes. `later` is the slot of the tile behind `keys`.
  template <int i>
  TILEWAVE_DEVICE void read_behind(const char* shared, std::int32_t values, std::int32_t keys, std::int32_t later) {
    if constexpr (i < last_read) {
      read<i + ahead>(shared, values, keys);
    } else {
      read<i % ahead>(shared, values, later);  // the operand whose place is free
    }
  }
  template <int i>
  TILEWAVE_DEVICE void multiply(const Probabilities& probabilities, typename L::Out& out) {
    const Chunk(&kv)[chunks] = operands[i % ahead];
    if constexpr (i < score_products) {
      typename L::Sums& to = sums[i % key_tiles];
      if constexpr (i / key_tiles == 0) to = {};
      B::template multiply<type, side>(kv, q[i / key_tiles], to);
      B::keep(to);
    } else {
      constexpr int of = i - score_products;
      B::template multiply<type, side>(kv, probabilities[of % key_slices], out[of / key_slices]);
    }
  }
  /// Calls f with one of the lane's rows, the first of four columns, counted from column 64 * pass, and their sums,
  /// until it has had all of the lane's of 64 columns.
  template <int pass, class F>
  TILEWAVE_DEVICE static void each_run(const typename L::Out& out, const F& f) {
    const int lane = L::lane();
    TILEWAVE_UNROLL
    for (int d = 0; d < 64 / side; ++d) {
      const typename L::Sums& of = out[64 / side * pass + d];
      TILEWAVE_UNROLL
      for (int i = 0; i < Map::sums; i += 4)
        f(0, side * d + Map::kv_row(lane, i), Vec<float, 4>{{of[i], of[i + 1], of[i + 2], of[i + 3]}});
    }
  }

 private:
  /// Reads the operand of product i: keys of the tile in slot `keys`, then values of that in slot `values`.
  template <int i>
  TILEWAVE_DEVICE void read(const char* shared, std::int32_t values, std::int32_t keys) {
    if constexpr (i < score_products) {
      reads.key(shared + keys, i % key_tiles, i / key_tiles, operands[i % ahead]);
    } else {
      constexpr int of = i - score_products;
      reads.value(shared + values, of / key_slices, of % key_slices, operands[i % ahead]);
    }
  }
};

}  // namespace tilewave
