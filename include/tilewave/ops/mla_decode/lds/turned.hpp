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

/// Copies rows of tokens into LDS, a word a lane at a time: latent dimensions of the wave's tokens one after the other,
/// then rotated ones of several at once.
template <class L>
struct MlaLdsTurnedFetch : MlaLdsPlaces<L> {
  using B = typename L::B;
  using Places = MlaLdsPlaces<L>;
  using Places::first, Places::place, Places::token_stride;
  static constexpr int tokens = Places::tokens, copy_bytes = 4 * L::lanes;
  static constexpr int token_copies = L::latent_bytes / copy_bytes, latent_copies = tokens * token_copies;
  static constexpr int rope_copies = tokens * L::rope_bytes / copy_bytes, under_way = latent_copies + rope_copies;
  static constexpr int rope_tokens = rope_copies > 0 ? tokens / rope_copies : 1;
  // A copy of another token than the one before has a step of its own, which finds its place.
  static constexpr int token_steps = token_copies + 1, latent_steps = tokens * token_steps;
  static constexpr int copies = latent_steps + 2 * rope_copies;

  std::int32_t latent_at, rope_at[max_of(rope_copies, 1)];  // where the lane reads, from the tokens of a copy
  std::int32_t from, at, to;                                // of the copy: a token, what is read, and where it goes

  TILEWAVE_DEVICE MlaLdsTurnedFetch(const PagedAttentionArgs& a, const PagedAttentionWorkItem& item) : Places(a, item) {
    const int byte = 4 * L::lane(), token = byte / max_of(L::rope_bytes, 1);
    latent_at = B::opaque(std::int32_t{byte});
    TILEWAVE_UNROLL
    for (int i = 0; i < rope_copies; ++i) {
      rope_at[i] = B::opaque(token * token_stride + L::latent_bytes +
                             (byte % L::rope_bytes ^ 16 * L::rope_mask(first + rope_tokens * i + token)));
    }
  }

  /// Takes step i of the copies of the tile whose place was found, into the slot that lies `slot` bytes behind the
  /// first. What lies behind the last token becomes zeros.
  template <int i>
  TILEWAVE_DEVICE void copy(typename L::Shared& shared, std::int32_t slot) {
    if constexpr (i < latent_steps) {
      constexpr int token = i / token_steps, part = i % token_steps - 1;
      if constexpr (part < 0) {
        from = i == 0 ? place.offset : from + token_stride;
        begin(slot + (first + token) * L::pitch);
      } else {
        start<part * copy_bytes>(shared, latent_at);
      }
    } else {
      constexpr int copy = (i - latent_steps) / 2;
      if constexpr ((i - latent_steps) % 2 == 0) {
        from = place.offset + copy * rope_tokens * token_stride;
        begin(slot + L::latent_tile_bytes + (first + copy * rope_tokens) * L::rope_bytes);
      } else {
        start<0>(shared, rope_at[copy]);
      }
    }
  }

 private:
  TILEWAVE_DEVICE void begin(std::int32_t target) {
    to = target;
    at = min_of(from, place.bytes);
    B::keep_uniform(to), B::keep_uniform(from), B::keep_uniform(at);
  }
  template <int both>
  TILEWAVE_DEVICE void start(typename L::Shared& shared, std::int32_t lane) const {
    this->source().template copy_word<both>(reinterpret_cast<char*>(&shared) + to, lane, at);
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
  // A unit of keys is two products of each of the lane's rows. Each product stands alone, so that what is done behind
  // it is done while the matrix unit is busy.
  static constexpr int keys = key_tiles * units, unit_products = 2 * score_rows, score_products = keys * unit_products;
  static constexpr int value_products = groups * group_reads, products = score_products + value_products;
  static constexpr int ahead = 4;  // units of keys are read so many before their use
  // The first group of values is read behind the last products of scores, each of the others during the one before it,
  // and the first keys of the next tile during the last one.
  static constexpr int last_read = products - ahead;
  static constexpr int look_up_at = products - group_reads;
  static constexpr int first_exponential = 1, last_exponential = value_products - 2;
  static constexpr int word_parts = 3;
  // Copies stand behind products of the first two thirds of a tile's keys, so that they have the rest of the step to
  // land, but not behind those with a read.
  static constexpr int copy_slots = keys * 2 / 3 * (unit_products - 1);
  static constexpr int copy_slot(int i) {
    const int part = i % unit_products;
    return part < unit_products - 1 ? i / unit_products * (unit_products - 1) + part : copy_slots;
  }
  static constexpr int exchanged = score_products / 3;  // by then the other lane's probabilities are there

  std::int32_t key_at, value_at, rope_at;  // bytes from the slot
  Chunk q[score_rows][units];
  Vec<float, Map::sums> sums[key_tiles][score_rows];  // products of scores
  Chunk keys_read[ahead];                             // that of unit i is at i % ahead
  Half values_read[2][group_reads];                   // that of group g is at g % 2
  Half values[2];                                     // operands: that of product i is at i % 2
  std::uint32_t pairs[4];                             // of fp8: pairs of bytes of two tokens
  std::uint32_t others[2];                            // probabilities of the lane 16 away

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
    float kept = __builtin_bit_cast(float, word);
    B::keep(kept);  // LLVM would make all words behind the last product
    to[0][e * L::element / 4] = __builtin_bit_cast(std::uint32_t, kept);
  }
  TILEWAVE_DEVICE static void clear(Probabilities& to) { to[0] = {}; }
  /// Makes an operand, behind product i of scores. A lane has eight tokens of its row: four are its own, and four those
  /// of the lane 16 away, which has its own row's. Words of bf16 have two of them, of fp8 four.
  template <int i>
  TILEWAVE_DEVICE void take(const Probabilities& from, Probabilities& to) {
    TILEWAVE_UNROLL
    for (int w = 0; w < 2; ++w) {
      const std::uint32_t first = from[0][w], second = from[0][w + 2];
      if constexpr (i == 0) others[w] = B::shuffle_xor(is_odd() ? first : second, 16);
      if constexpr (i == exchanged) {
        const int low = L::element == 2 ? w : 2 * w, high = L::element == 2 ? w + 2 : 2 * w + 1;
        to[0][low] = is_odd() ? others[w] : first;
        to[0][high] = is_odd() ? second : others[w];
      }
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
  /// Reads what later products take, and turns the operand of the product after next: the next one would wait for it.
  /// `later` is the slot of the tile behind `keys_slot`.
  template <int i>
  TILEWAVE_DEVICE void read_behind(const char* shared, std::int32_t values_slot, std::int32_t keys_slot,
                                   std::int32_t later) {
    constexpr int unit = i / unit_products + ahead, part = i % unit_products, of = i - score_products;
    if constexpr (of >= 0) {
      constexpr int e = of % group_reads - first_read, group = of / group_reads + 1;
      if constexpr (e >= 0 && e * reads < group_reads && group < groups)
        static_for<reads>([&](auto j) TILEWAVE_INLINE_LAMBDA {
          read_value<group * group_reads + e * reads + j>(shared, values_slot);
        });
      if constexpr (i >= last_read) read_key<i - last_read>(shared, later);
    } else if constexpr (unit < keys) {
      if constexpr (part == unit_products - 1) read_key<unit>(shared, keys_slot);
    } else if constexpr ((unit - keys) * unit_products < group_reads) {
      read_value<(unit - keys) * unit_products + part>(shared, values_slot);
    }
    if constexpr (of >= -2 && of + 2 < value_products) turn<of + 2>();
  }
  template <int i>
  TILEWAVE_DEVICE void multiply(const Probabilities& probabilities, typename L::ValueSums (&out)[L::value_tiles]) {
    if constexpr (i < score_products) {
      constexpr int key = i / unit_products, t = key % key_tiles, unit = key / key_tiles;
      constexpr int h = i % unit_products / score_rows, r = i % score_rows;
      if constexpr (unit == 0 && h == 0) sums[t][r] = {};
      B::template multiply_half<type, side>(half(keys_read[key % ahead], h), half(q[r][unit], h), sums[t][r]);
      B::keep(sums[t][r]);
    } else {
      constexpr int of = i - score_products;
      B::template multiply_half<type, L::value_side>(values[of % 2], half(probabilities[0], tokens_of(of)),
                                                     out[tile_of(of)]);
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
  // Behind which product of a group reads of the next group begin, and how many are together. The first operand of bf16
  // has half of a group's tokens, of fp8 all.
  static constexpr int reads = L::element == 2 ? 1 : 2, first_read = L::element == 2 ? 0 : 2;

  /// Returns which of the operand's tokens product i of values takes, and its tile. Of bf16, products of one tile are
  /// not neighbours.
  static constexpr int tokens_of(int i) { return L::element == 2 ? i / 2 % 2 : i / group_reads % L::token_groups; }
  static constexpr int tile_of(int i) {
    const int group = i / group_reads / L::token_groups * L::group_tiles, e = i % group_reads;
    return group + (L::element == 2 ? e / 4 * 2 + e % 2 : e);
  }
  /// Makes the operand of product i of values: tokens of one dimension side by side.
  template <int i>
  TILEWAVE_DEVICE void turn() {
    constexpr int e = i % group_reads, word = e / 4;
    const Half(&read)[group_reads] = values_read[i / group_reads % 2];
    if constexpr (L::element == 2) {
      constexpr int first = 4 * tokens_of(i);
      values[i % 2] = {{pair<e % 2>(read[first][word], read[first + 1][word]),
                        pair<e % 2>(read[first + 2][word], read[first + 3][word])}};
    } else {
      constexpr int byte = e % 4;
      if constexpr (byte % 2 == 0) {
        TILEWAVE_UNROLL
        for (int t = 0; t < 4; ++t) {
          const std::uint32_t a = read[2 * t][word], b = read[2 * t + 1][word];
          pairs[t] = byte == 0 ? B::template pick_bytes<0, 4, 1, 5>(a, b) : B::template pick_bytes<2, 6, 3, 7>(a, b);
        }
      }
      values[i % 2] = {{pair<byte % 2>(pairs[0], pairs[1]), pair<byte % 2>(pairs[2], pairs[3])}};
    }
  }
  TILEWAVE_DEVICE static bool is_odd() { return B::lane_id() / side % 2 != 0; }
  TILEWAVE_DEVICE static Half half(const Chunk& of, int h) { return {{of[2 * h], of[2 * h + 1]}}; }
  /// Returns the low, or the high, halves of two words.
  template <int high>
  TILEWAVE_DEVICE static std::uint32_t pair(std::uint32_t a, std::uint32_t b) {
    return high == 0 ? B::template pick_bytes<0, 1, 4, 5>(a, b) : B::template pick_bytes<2, 3, 6, 7>(a, b);
  }
  /// Reads unit i of keys.
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
