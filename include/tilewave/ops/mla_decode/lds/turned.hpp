// SPDX-License-Identifier: MIT
// Tiles of a chip whose LDS does not transpose: lanes read eight tokens of neighbouring dimensions, and permute bytes
// so that tokens of one dimension lie side by side. Scores are products of 16 tokens and 16 rows, as LDS has no room
// for more tokens at a time, and a lane has scores of two rows. Products of values have 32 rows, for which lanes
// exchange half of their probabilities with those 16 away.
#pragma once

#include "tilewave/ops/mla_decode/lds/layout.hpp"

namespace tilewave {

template <class RoomOf, MlaDecodeSpec S, MlaDecodePolicy P>
struct MlaLdsTurned : MlaLdsTile<RoomOf, S, P> {
  using Tile = MlaLdsTile<RoomOf, S, P>;
  using B = RoomOf;
  static constexpr int side = 16;  // tokens and rows of a product of scores
  using Map = ProductMap<side>;
  using ValueMap = typename Tile::ValueMap;
  static constexpr int element = Tile::element, pitch = Tile::pitch, rope_bytes = Tile::rope_bytes;
  static constexpr int key_tiles = P.tokens / side;
  // A lane group has neighbouring units of a key, so that the gap behind each token spreads lanes over banks whatever
  // the unit.
  static constexpr int latent_units = Tile::latent_bytes / 16 / Map::units, rope_units = rope_bytes / 16 / Map::units;
  static constexpr int units = latent_units + rope_units;                  // of a lane's part of a key
  static constexpr int read_bytes = 8, dimensions = read_bytes / element;  // that a lane reads of a token's values
  static constexpr int group_tokens = 8, group_tiles = dimensions;         // of values that a lane turns together
  static constexpr int token_groups = P.tokens / (2 * group_tokens);       // as both halves of a wave have eight
  static constexpr int value_groups = Tile::value_tiles / group_tiles * token_groups;

  /// Returns the unit of a row of q, or of a key, that is unit c of a lane.
  TILEWAVE_HOST_DEVICE static constexpr int unit_of(int lane, int c) {
    if (c < latent_units) return latent_units * Map::unit(lane) + c;
    return latent_units * Map::units + rope_units * Map::unit(lane) + c - latent_units;
  }
  /// Returns what is joined to the number of a rotated unit by exclusive or: those have no gap.
  TILEWAVE_HOST_DEVICE static constexpr int rope_mask(int token) { return element == 2 ? token % 8 : token / 2 % 4; }
  TILEWAVE_HOST_DEVICE static constexpr int key_offset(int lane, int c) {
    const int token = Map::row(lane), unit = unit_of(lane, c);
    if (c < latent_units) return token * pitch + 16 * unit;
    return Tile::latent_tile_bytes + token * rope_bytes + 16 * ((unit - latent_units * Map::units) ^ rope_mask(token));
  }
  /// Returns the byte of the lane's dimensions of value tiles 0 to group_tiles - 1 of token t of its eight.
  TILEWAVE_HOST_DEVICE static constexpr int value_offset(int lane, int t) {
    return (group_tokens * ValueMap::unit(lane) + t) * pitch + read_bytes * ValueMap::row(lane);
  }
  static constexpr int conflicts() {
    int cycles = 0;
    for (int c = 0; c < units; ++c)
      cycles += lds_conflicts(B::facts.id, [&](int lane) { return key_offset(lane, c) / 16; });
    return cycles;
  }
  static_assert(conflicts() == 0, "lanes that are served together meet no bank twice");
};

/// Copies rows of tokens into LDS, a word a lane at a time.
template <class L>
struct MlaLdsTurnedFetch : MlaLdsPlaces<L> {
  using B = typename L::B;
  using Places = MlaLdsPlaces<L>;
  using Places::first, Places::place, Places::token_stride;
  static constexpr int tokens = Places::tokens, copy_bytes = 4 * L::lanes;  // of an instruction
  // Latent dimensions go two instructions at a time, rotated ones of all of the wave's tokens one by one.
  static constexpr int token_copies = L::latent_bytes / (2 * copy_bytes), latent_copies = tokens * token_copies;
  static constexpr int rope_copies = tokens * L::rope_bytes / copy_bytes, copies = latent_copies + rope_copies;
  static constexpr int under_way = 2 * latent_copies + rope_copies;
  static constexpr int rope_tokens = rope_copies > 0 ? tokens / rope_copies : 1;

  std::int32_t rope_at[max_of(rope_copies, 1)];  // where the lane reads of rotated dimensions, from the copy's tokens
  std::int32_t from;                             // offset of the token that was copied last

  TILEWAVE_DEVICE MlaLdsTurnedFetch(const PagedAttentionArgs& a, const PagedAttentionWorkItem& item) : Places(a, item) {
    TILEWAVE_UNROLL
    for (int i = 0; i < rope_copies; ++i) {
      const int byte = 4 * L::lane(), token = byte / L::rope_bytes;
      rope_at[i] = B::opaque(token * token_stride + L::latent_bytes +
                             (byte % L::rope_bytes ^ 16 * L::rope_mask(first + rope_tokens * i + token)));
    }
  }

  /// Starts copy i of the tile whose place was found, into the slot that lies `slot` bytes behind the first. What lies
  /// behind the last token becomes zeros.
  template <int i>
  TILEWAVE_DEVICE void copy(typename L::Shared& shared, std::int32_t slot) {
    char* const tiles = reinterpret_cast<char*>(&shared);
    if constexpr (i < latent_copies) {
      constexpr int token = i / token_copies, part = i % token_copies;
      if constexpr (i == 0) {
        from = place.offset;
      } else if constexpr (part == 0) {
        from += token_stride;
      }
      std::int32_t to = slot + first * L::pitch;
      B::keep_uniform(to), B::keep_uniform(from);
      this->source().template copy_words<part * 2 * copy_bytes, 2>(tiles + to + token * L::pitch, 4 * L::lane(),
                                                                   min_of(from, place.bytes));
    } else {
      constexpr int token = (i - latent_copies) * rope_tokens;
      std::int32_t to = slot + L::latent_tile_bytes + first * L::rope_bytes;
      B::keep_uniform(to);
      std::int32_t at = place.offset + token * token_stride;
      B::keep_uniform(at);
      this->source().copy_word(tiles + to + token * L::rope_bytes, rope_at[i - latent_copies], min_of(at, place.bytes));
    }
  }
};

/// The operands of a wave, and its scores.
template <class L>
struct MlaLdsTurnedProducts {
  using B = typename L::B;
  using Map = typename L::Map;
  using ValueMap = typename L::ValueMap;
  using Half = Vec<std::uint32_t, 2>;
  /// Of the next tile, words of the lane's rows of scores, one row after the other; of this one, an operand.
  using Probabilities = Chunk[1];
  static constexpr DType type = L::type;
  static constexpr int side = L::side, key_tiles = L::key_tiles, units = L::units, latent_units = L::latent_units;
  static constexpr int score_rows = mla_lds_wave_rows / side, row_elements = key_tiles * Map::sums;
  static constexpr int elements = score_rows * row_elements;  // scores of a lane
  static constexpr int group_reads = L::group_tokens, groups = L::value_groups;
  static constexpr int score_products = key_tiles * units, value_products = groups * group_reads;
  static constexpr int products = score_products + value_products;
  static constexpr int ahead = 4;  // units of keys are read so many products before their use
  // The first group of values is read behind the last products of scores, each of the others during the one before it,
  // and the first keys of the next tile during the last one.
  static constexpr int last_read = products - ahead;
  static constexpr int first_exponential = 1, last_exponential = value_products - ahead;
  static constexpr int word_parts = 3, copy_products = score_products / 2;

  std::int32_t key_at, value_at, rope_at;  // bytes from the slot
  Chunk q[score_rows][units];
  Vec<float, Map::sums> sums[key_tiles][score_rows];  // products of scores
  Chunk keys_read[ahead];                             // that of product i is at i % ahead
  Half values_read[2][group_reads];                   // that of group g is at g % 2
  std::uint32_t turned[4];                            // of fp8: pairs of bytes of two tokens

  TILEWAVE_DEVICE MlaLdsTurnedProducts() {
    const int lane = L::lane();
    key_at = B::opaque(std::int32_t{L::key_offset(lane, 0)});
    value_at = B::opaque(std::int32_t{L::value_offset(lane, 0)});
    if constexpr (L::rope_units > 0) rope_at = B::opaque(std::int32_t{L::key_offset(lane, latent_units)});
  }

  TILEWAVE_HOST_DEVICE static constexpr int row(int lane, int r) { return side * r + Map::row(lane); }
  TILEWAVE_DEVICE void load_query(int r, const char* row) {
    const int lane = L::lane();
    TILEWAVE_UNROLL
    for (int c = 0; c < units; ++c) q[r][c] = B::load(reinterpret_cast<const Chunk*>(row) + L::unit_of(lane, c));
  }
  /// Returns the token of the lane's score e, counted from that of score 0.
  TILEWAVE_HOST_DEVICE static constexpr int token_of(int e) {
    return e % row_elements / Map::sums * side + Map::kv_row(0, e % Map::sums);
  }
  TILEWAVE_HOST_DEVICE static constexpr int first_token(int lane) { return Map::kv_row(lane, 0); }
  TILEWAVE_HOST_DEVICE static constexpr int row_of(int e) { return e / row_elements; }
  template <int e>
  TILEWAVE_DEVICE float score() const {
    return sums[e % row_elements / Map::sums][row_of(e)][e % Map::sums];
  }
  /// Puts a word of probabilities, whose first score is e, among those of the next tile.
  template <int e>
  TILEWAVE_DEVICE static void put(std::uint32_t word, Probabilities& to) {
    to[0][e * L::element / 4] = word;
  }
  TILEWAVE_DEVICE static void clear(Probabilities& to) { to[0] = {}; }
  /// Makes an operand. A lane has eight tokens of its row: four are its own, and four those of the lane 16 away, which
  /// has its own row's. Words of bf16 have two of them, of fp8 four.
  TILEWAVE_DEVICE static void take(const Probabilities& from, Probabilities& to) {
    const bool odd = is_odd();
    TILEWAVE_UNROLL
    for (int w = 0; w < 2; ++w) {
      const std::uint32_t first = from[0][w], second = from[0][w + 2];
      const std::uint32_t other = B::shuffle_xor(odd ? first : second, 16);
      const int low = L::element == 2 ? w : 2 * w, high = L::element == 2 ? w + 2 : 2 * w + 1;
      to[0][low] = odd ? other : first;
      to[0][high] = odd ? second : other;
    }
  }
  /// Returns what the lane's row of sums has, from that of its rows of scores.
  TILEWAVE_DEVICE static float of_sums(const float (&of)[score_rows]) { return is_odd() ? of[1] : of[0]; }
  template <class Op>
  TILEWAVE_DEVICE static float over_lanes(float value, Op op) {
    value = op(value, B::shuffle_xor(value, 16));
    return op(value, B::shuffle_xor(value, 32));
  }

  TILEWAVE_DEVICE void begin(const char* shared) {
    static_for<ahead>([&](auto i) TILEWAVE_INLINE_LAMBDA { read_key<i>(shared, 0); });
  }
  /// Reads what a later product takes. `later` is the slot of the tile behind `keys`.
  template <int i>
  TILEWAVE_DEVICE void read_behind(const char* shared, std::int32_t values, std::int32_t keys, std::int32_t later) {
    constexpr int key = i + ahead, at_once = group_reads / ahead;
    if constexpr (key < score_products) {
      read_key<key>(shared, keys);
    } else if constexpr (i < score_products) {
      static_for<at_once>(
          [&](auto j) TILEWAVE_INLINE_LAMBDA { read_value<(key - score_products) * at_once + j>(shared, values); });
    } else if constexpr (i + group_reads < products) {
      read_value<i - score_products + group_reads>(shared, values);
    } else if constexpr (i >= last_read) {
      read_key<i - last_read>(shared, later);
    }
  }
  template <int i>
  TILEWAVE_DEVICE void multiply(const Probabilities& probabilities, typename L::ValueSums (&out)[L::value_tiles]) {
    if constexpr (i < score_products) {
      const Chunk& kv = keys_read[i % ahead];
      constexpr int t = i % key_tiles, unit = i / key_tiles;
      TILEWAVE_UNROLL
      for (int h = 0; h < 2; ++h) {
        TILEWAVE_UNROLL
        for (int r = 0; r < score_rows; ++r) {
          if (unit == 0 && h == 0) sums[t][r] = {};
          B::template multiply_half<type, side>(half(kv, h), half(q[r][unit], h), sums[t][r]);
        }
      }
      TILEWAVE_UNROLL
      for (int r = 0; r < score_rows; ++r) B::keep(sums[t][r]);
    } else {
      constexpr int g = (i - score_products) / group_reads, e = (i - score_products) % group_reads;
      constexpr int first_tile = g / L::token_groups * L::group_tiles;
      const Half(&read)[group_reads] = values_read[g % 2];
      if constexpr (L::element == 2) {
        // Products of one tile are not neighbours.
        constexpr int word = e / 4, tokens = e / 2 % 2, of_word = e % 2;
        B::template multiply_half<type, L::value_side>(
            Half{{pair<of_word>(read[4 * tokens][word], read[4 * tokens + 1][word]),
                  pair<of_word>(read[4 * tokens + 2][word], read[4 * tokens + 3][word])}},
            half(probabilities[0], tokens), out[first_tile + 2 * word + of_word]);
      } else {
        constexpr int word = e / 4, byte = e % 4;
        if constexpr (byte % 2 == 0) {
          TILEWAVE_UNROLL
          for (int t = 0; t < 4; ++t) {
            const std::uint32_t a = read[2 * t][word], b = read[2 * t + 1][word];
            turned[t] = byte == 0 ? B::template pick_bytes<0, 4, 1, 5>(a, b) : B::template pick_bytes<2, 6, 3, 7>(a, b);
          }
        }
        B::template multiply_half<type, L::value_side>(
            Half{{pair<byte % 2>(turned[0], turned[1]), pair<byte % 2>(turned[2], turned[3])}},
            half(probabilities[0], g % L::token_groups), out[first_tile + e]);
      }
    }
  }
  /// Calls f with the first column of each run of columns of the lane, and their sums.
  template <class F>
  TILEWAVE_DEVICE static void each_run(const typename L::ValueSums (&out)[L::value_tiles], const F& f) {
    constexpr int tiles = L::group_tiles;
    const int lane = L::lane();
    TILEWAVE_UNROLL
    for (int first = 0; first < L::value_tiles; first += tiles) {
      TILEWAVE_UNROLL
      for (int i = 0; i < ValueMap::sums; ++i) {
        Vec<float, tiles> run;
        TILEWAVE_UNROLL
        for (int d = 0; d < tiles; ++d) run[d] = out[first + d][i];
        f(L::value_side * first + tiles * ValueMap::kv_row(lane, i), run);
      }
    }
  }

 private:
  TILEWAVE_DEVICE static bool is_odd() { return B::lane_id() / side % 2 != 0; }
  TILEWAVE_DEVICE static Half half(const Chunk& of, int h) { return {{of[2 * h], of[2 * h + 1]}}; }
  /// Returns the low, or the high, halves of two words.
  template <int high>
  TILEWAVE_DEVICE static std::uint32_t pair(std::uint32_t a, std::uint32_t b) {
    return high == 0 ? B::template pick_bytes<0, 1, 4, 5>(a, b) : B::template pick_bytes<2, 3, 6, 7>(a, b);
  }
  template <int i>
  TILEWAVE_DEVICE void read_key(const char* shared, std::int32_t slot) {
    constexpr int t = i % key_tiles, c = i / key_tiles;
    const char* from = shared + slot;
    if constexpr (c < latent_units) {
      from += key_at + 16 * c + t * side * L::pitch;
    } else {
      from += (rope_at ^ 16 * (c - latent_units)) + t * side * L::rope_bytes;
    }
    keys_read[i % ahead] = *reinterpret_cast<const Chunk*>(from);
  }
  /// Reads the dimensions of token i % 8 of group i / 8.
  template <int i>
  TILEWAVE_DEVICE void read_value(const char* shared, std::int32_t slot) {
    constexpr int g = i / group_reads, t = i % group_reads;
    const char* const from = shared + slot + value_at + t * L::pitch +
                             g % L::token_groups * (2 * L::group_tokens * L::pitch) +
                             g / L::token_groups * (L::read_bytes * L::value_side);
    values_read[g % 2][t] = *reinterpret_cast<const Half*>(from);
  }
};

}  // namespace tilewave
