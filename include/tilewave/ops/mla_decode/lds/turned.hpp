// SPDX-License-Identifier: MIT
// Tiles of a chip whose LDS does not transpose: lanes read four tokens, or eight of fp8, of neighbouring dimensions,
// and permute bytes so that tokens of one dimension lie side by side. LDS has no room for more than 16 tokens of bf16
// at a time, so products have 16 tokens and 16 rows, and a lane has two of its wave's rows. The tokens of its scores
// are those whose values it reads, so that probabilities are operands as they are.
#pragma once

#include "tilewave/ops/mla_decode/lds/layout.hpp"

namespace tilewave {

template <class RoomOf, MlaDecodeSpec S, MlaDecodePolicy P>
struct MlaLdsTurned : MlaLdsTile<RoomOf, S, P> {
  using Tile = MlaLdsTile<RoomOf, S, P>;
  using B = RoomOf;
  static constexpr int side = 16;  // tokens and rows of a product of scores
  using Map = ProductMap<side>;
  static constexpr int lane_rows = mla_lds_wave_rows / side, value_tiles = latent_value_size / side;
  using Sums = Vec<float, Map::sums>;
  using Out = Sums[value_tiles * lane_rows];  // sums of values: of each tile, those of the lane's rows
  static constexpr int element = Tile::element, pitch = Tile::pitch, rope_bytes = Tile::rope_bytes;
  static constexpr int key_tiles = P.tokens / side;
  // A lane group has neighbouring units of a key, so that the gap behind each token spreads lanes over banks whatever
  // the unit.
  static constexpr int latent_units = Tile::latent_bytes / 16 / Map::units, rope_units = rope_bytes / 16 / Map::units;
  static constexpr int units = latent_units + rope_units;  // of a lane's part of a key
  // A lane reads four dimensions of a token's values, of which each is of one tile. So groups of four tiles have 64
  // neighbouring columns.
  static constexpr int group_tiles = 4, read_bytes = group_tiles * element, group_tokens = 4 * key_tiles;

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
  /// Returns the byte of the lane's dimensions of the first group, of token t of its own.
  TILEWAVE_HOST_DEVICE static constexpr int value_offset(int lane, int t) {
    return (t / 4 * side + Map::kv_row(lane, t % 4)) * pitch + read_bytes * Map::row(lane);
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
  using Half = Vec<std::uint32_t, 2>;
  static constexpr DType type = L::type;
  static constexpr int side = L::side, key_tiles = L::key_tiles, units = L::units, latent_units = L::latent_units;
  static constexpr int score_rows = L::lane_rows, row_elements = key_tiles * Map::sums;
  static constexpr int elements = score_rows * row_elements;  // scores of a lane
  using Probabilities = Half[score_rows];
  // A unit of keys is two products of each of the lane's rows, and an operand of values one. Each product stands alone,
  // so that what is done behind it is done while the matrix unit is busy.
  static constexpr int keys = key_tiles * units, unit_products = 2 * score_rows, score_products = keys * unit_products;
  static constexpr int groups = L::value_tiles / L::group_tiles, group_products = L::group_tiles * score_rows;
  static constexpr int group_reads = L::group_tokens, value_operands = L::value_tiles;
  static constexpr int value_products = value_operands * score_rows, products = score_products + value_products;
  static constexpr int ahead = 4;  // units of keys are read so many before their use
  /// Reads of a group of values begin so many products before those of the group before it, whose registers they take
  /// by turns. The last operand but one of that group is turned six products before the next group.
  static constexpr int group_ahead = 3;
  static constexpr int last_read = products - 2 * ahead;  // from this product on the next tile is read
  static constexpr int look_up_at = last_read - 6;
  static constexpr int permutes = value_operands * (L::element == 2 ? 2 : 4);  // that turn operands
  /// Every second product of values has a word's exponentials behind it, the others turn operands.
  static constexpr int word_parts = 3, exponential_slots = (value_products - 12) / 2;
  static constexpr int exponential_slot(int i) {
    const int of = i - score_products;
    return of >= 3 && of % 2 == 1 ? of / 2 - 1 : exponential_slots;
  }
  // Copies stand behind products of the first two thirds of a tile's keys, so that they have the rest of the step to
  // land, but not behind those with a read.
  static constexpr int copy_slots = keys * 2 / 3 * (unit_products - 1);
  static constexpr int copy_slot(int i) {
    const int part = i % unit_products;
    return part < unit_products - 1 ? i / unit_products * (unit_products - 1) + part : copy_slots;
  }

  std::int32_t key_at, value_at, rope_at;  // bytes from the slot
  Chunk q[score_rows][units];
  typename L::Sums sums[key_tiles][score_rows];                // products of scores
  Chunk keys_read[ahead];                                      // that of unit i is at i % ahead
  Vec<std::uint32_t, L::element> values_read[2][group_reads];  // those of group g are at g % 2
  Half values[2];                                              // operand i is at i % 2
  std::uint32_t pairs[4];                                      // of fp8: pairs of bytes of two tokens

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
    to[row_of(e)][e % row_elements * L::element / 4] = __builtin_bit_cast(std::uint32_t, kept);
  }
  TILEWAVE_DEVICE static void clear(Probabilities& to) {
    TILEWAVE_UNROLL
    for (Half& of_row : to) of_row = {};
  }
  /// Takes them as they are, in front of the first product.
  template <int i>
  TILEWAVE_DEVICE static void take(const Probabilities& from, Probabilities& to) {
    if constexpr (i == 0) {
      TILEWAVE_UNROLL
      for (int r = 0; r < score_rows; ++r) to[r] = from[r];
    }
  }
  template <class Op>
  TILEWAVE_DEVICE static float over_lanes(float value, Op op) {
    value = op(value, B::shuffle_xor(value, 16));
    return op(value, B::shuffle_xor(value, 32));
  }

  TILEWAVE_DEVICE void begin(const char* shared) {
    static_for<ahead>([&](auto i) TILEWAVE_INLINE_LAMBDA { read_key<i>(shared, 0); });
  }
  /// Reads what later products take, and turns the next operand of values. `later` is the slot of the tile behind
  /// `keys_slot`.
  template <int i>
  TILEWAVE_DEVICE void read_behind(const char* shared, std::int32_t values_slot, std::int32_t keys_slot,
                                   std::int32_t later) {
    constexpr int unit = i / unit_products + ahead, of = i - score_products;
    if constexpr (i % unit_products == unit_products - 1 && unit < keys) read_key<unit>(shared, keys_slot);
    if constexpr (i >= last_read && (i - last_read) % 2 == 0) read_key<(i - last_read) / 2>(shared, later);
    constexpr int read = of + group_products + group_ahead, group = read / group_products,
                  token = read % group_products;
    if constexpr (read >= 0 && group < groups && token < group_reads) read_value<group, token>(shared, values_slot);
    constexpr int operand = of / score_rows + 1;
    if constexpr (of >= -score_rows && of % score_rows == 0 && operand < value_operands) turn<operand>();
  }
  template <int i>
  TILEWAVE_DEVICE void multiply(const Probabilities& probabilities, typename L::Out& out) {
    if constexpr (i < score_products) {
      constexpr int key = i / unit_products, t = key % key_tiles, unit = key / key_tiles;
      constexpr int h = i % unit_products / score_rows, r = i % score_rows;
      if constexpr (unit == 0 && h == 0) sums[t][r] = {};
      B::template multiply_half<type, side>(half(keys_read[key % ahead], h), half(q[r][unit], h), sums[t][r]);
      B::keep(sums[t][r]);
    } else {
      constexpr int of = i - score_products;
      B::template multiply_half<type, side>(values[of / score_rows % 2], probabilities[of % score_rows], out[of]);
    }
  }
  /// Calls f with one of the lane's rows, the first of four columns, counted from column 64 * pass, and their sums,
  /// until it has had all of the lane's of 64 columns.
  template <int pass, class F>
  TILEWAVE_DEVICE static void each_run(const typename L::Out& out, const F& f) {
    const int lane = L::lane();
    TILEWAVE_UNROLL
    for (int r = 0; r < score_rows; ++r) {
      TILEWAVE_UNROLL
      for (int i = 0; i < Map::sums; ++i) {
        Vec<float, 4> run;
        TILEWAVE_UNROLL
        for (int d = 0; d < 4; ++d) run[d] = out[(4 * pass + d) * score_rows + r][i];
        f(r, 4 * Map::kv_row(lane, i), run);
      }
    }
  }

 private:
  static_assert(group_reads <= group_products, "a read of values is behind a product of its own");

  TILEWAVE_DEVICE static Half half(const Chunk& of, int h) { return {{of[2 * h], of[2 * h + 1]}}; }
  /// Returns the low, or the high, halves of two words.
  template <int high>
  TILEWAVE_DEVICE static std::uint32_t pair(std::uint32_t a, std::uint32_t b) {
    return high == 0 ? B::template pick_bytes<0, 1, 4, 5>(a, b) : B::template pick_bytes<2, 3, 6, 7>(a, b);
  }
  /// Makes operand i of values: tokens of one dimension side by side.
  template <int i>
  TILEWAVE_DEVICE void turn() {
    constexpr int d = i % L::group_tiles;
    const auto& read = values_read[i / L::group_tiles % 2];
    if constexpr (L::element == 2) {
      values[i % 2] = {{pair<d % 2>(read[0][d / 2], read[1][d / 2]), pair<d % 2>(read[2][d / 2], read[3][d / 2])}};
    } else {
      if constexpr (d % 2 == 0) {
        TILEWAVE_UNROLL
        for (int t = 0; t < 4; ++t) {
          const std::uint32_t a = read[2 * t][0], b = read[2 * t + 1][0];
          pairs[t] = d == 0 ? B::template pick_bytes<0, 4, 1, 5>(a, b) : B::template pick_bytes<2, 6, 3, 7>(a, b);
        }
      }
      values[i % 2] = {{pair<d % 2>(pairs[0], pairs[1]), pair<d % 2>(pairs[2], pairs[3])}};
    }
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
  /// Reads the dimensions of token t of the lane's own.
  template <int group, int t>
  TILEWAVE_DEVICE void read_value(const char* shared, std::int32_t slot) {
    const char* const from =
        shared + slot + value_at + (L::value_offset(0, t) - L::value_offset(0, 0)) + group * L::read_bytes * side;
    auto& to = values_read[group % 2][t];
    to = *reinterpret_cast<const std::remove_reference_t<decltype(to)>*>(from);
  }
};

}  // namespace tilewave
