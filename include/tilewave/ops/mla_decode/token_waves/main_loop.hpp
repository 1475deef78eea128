// SPDX-License-Identifier: MIT
// The main loop of a wave of path token_waves walks the wave's part of the tiles of an item. No wave waits for
// another.
//
//   memory       tile n has come   tile n + 1 into the same registers
//   LDS          lines written     keys read                       values read
//   products     rotated keys      K(n) Q                          V(n) P(n)
//   vector unit                                   P(n)             V(n) turned
#pragma once

#include <limits>

#include "tilewave/ops/mla_decode/token_waves/tile.hpp"
#include "tilewave/ops/paged_attention/work_item.hpp"

namespace tilewave {

template <class L>
struct MlaTokenWavesLoop {
  using B = typename L::B;
  using Map = typename L::Map;
  using Tile = MlaTokenWavesTile<L>;
  using Tokens = typename Tile::Tokens;
  using Half = Vec<std::uint32_t, 2>;
  using Operand = Vec<std::uint32_t, L::operand_words>;
  // Each constant is named here, because g++ 12 finds no inherited ones in lambdas.
  static constexpr DType type = L::type;
  static constexpr int element = L::element, side = L::side, key_tiles = L::key_tiles, units = L::units;
  static constexpr int row_tiles = L::row_tiles;
  static constexpr int tile_tokens = L::policy.tokens, elements = key_tiles * Map::sums;  // scores of a lane
  // The mask of units repeats after so many of a lane's keys, and groups of values.
  static constexpr int key_bases = L::window / L::groups, value_bases = L::window / 8;
  static constexpr int chunks = B::template product_chunks<type>;  // of an operand of scores
  static constexpr float lowest = -std::numeric_limits<float>::max();
  /// Probabilities are at most 2^most. Those of fp8 begin with 2^6, so that they have four bits down to 2^-12; the
  /// flavour whose largest value is 240 has everything a power lower.
  static constexpr float most = is_fp8(type) && fp8_max(type) < 256.0f ? 7.0f : 8.0f,
                         first = is_fp8(type) ? most - 2.0f : 0.0f;

  const PagedAttentionArgs& a;
  const PagedAttentionWorkItem& item;
  Tokens tokens;
  char* shared;                 // of the wave
  std::int32_t begin;           // the wave's first token
  float scale;                  // scores times scale are log2 units
  std::int32_t end[row_tiles];  // the first token that a row of the lane does not see
  float reference[row_tiles];   // of its rows, log2 units
  float sum[row_tiles];         // of the probabilities of this lane's tokens
  typename L::Sums out[L::value_tiles][row_tiles];
  Chunk q[row_tiles][units];
  Tile tile;
  typename Tokens::Place line_place[Tile::tokens], key_place[key_tiles];  // of the tile that is loaded next
  typename Tile::Places places;
  std::int32_t key_at[key_bases], value_at[4];
  Half values_read[2][L::group_tokens];  // those of group g are at g % 2

  TILEWAVE_DEVICE MlaTokenWavesLoop(const MlaDecodeArgs& args, const PagedAttentionWorkItem& of,
                                    const std::int32_t* table, typename L::Shared& lds)
      : a(args.attention),
        item(of),
        tokens{args, table, min_of(of.end, of.begin + of.tiles * tile_tokens) - 1},
        shared(reinterpret_cast<char*>(&lds.values[B::wave_id()])),
        begin(of.begin + B::wave_id() * L::wave_tokens),
        scale(a.scale_log2),
        places(L::lane()) {
    const int lane = L::lane();
    TILEWAVE_UNROLL
    for (auto& of_rows : out) {
      TILEWAVE_UNROLL
      for (auto& sums : of_rows) sums = {};
    }
    TILEWAVE_UNROLL
    for (int r = 0; r < row_tiles; ++r) {
      reference[r] = lowest;
      sum[r] = 0.0f;
    }
    TILEWAVE_UNROLL
    for (int c = 0; c < key_bases; ++c) key_at[c] = B::opaque(std::int32_t{L::key_offset(lane, c)});
    TILEWAVE_UNROLL
    for (int t = 0; t < 4; ++t) value_at[t] = B::opaque(std::int32_t{L::value_offset(lane, 0, t)});
  }

  TILEWAVE_DEVICE void run(const float* q_scale) {
    if constexpr (is_fp8(type)) scale *= B::load(q_scale);
    if constexpr (mla_one_scale(L::spec)) scale *= B::load(a.k_scale);
    look_up(0);
    load_query();
    load(0);
    for (std::int32_t n = 0; n < item.tiles; ++n) step(n);
  }

 private:
  TILEWAVE_DEVICE void load_query() {
    TILEWAVE_UNROLL
    for (int r = 0; r < row_tiles; ++r) {
      const std::int32_t row = min_of(item.first_row + r * side + Map::row(L::lane()), a.rows - 1);
      const QueryRow query = query_row(a, item, row);
      end[r] = item.end - a.query_tokens + query.token + 1;
      const auto* const from = reinterpret_cast<const Chunk*>(
          static_cast<const char*>(a.q) + element * (query.out_row * a.q_row_stride + query.head * a.q_head_stride));
      const int group = Map::unit(L::lane());
      TILEWAVE_UNROLL
      for (int c = 0; c < units; ++c) q[r][c] = B::load(from + L::groups * c + group);
    }
  }
  /// Returns the lane's token k of tile n of those whose lines it loads, and that of its keys of tile t.
  TILEWAVE_DEVICE std::int32_t line_token(std::int32_t n, int k) const {
    return begin + n * tile_tokens + L::line_token(B::lane_id(), k);
  }
  TILEWAVE_DEVICE std::int32_t key_token(std::int32_t n, int t) const {
    return begin + n * tile_tokens + t * side + Map::row(B::lane_id());
  }
  /// Looks up the pages of the lane's tokens of tile n.
  TILEWAVE_DEVICE void look_up(std::int32_t n) {
    TILEWAVE_UNROLL
    for (int k = 0; k < Tile::tokens; ++k) line_place[k] = tokens.place(line_token(n, k));
    if constexpr (L::rope_units > 0) {
      TILEWAVE_UNROLL
      for (int t = 0; t < key_tiles; ++t) key_place[t] = tokens.place(key_token(n, t));
    }
  }
  /// Loads tile n, whose pages were looked up. Those of the next one are looked up before, so that who waits for them
  /// does not wait for this tile.
  TILEWAVE_DEVICE void load(std::int32_t n) {
    typename Tokens::Token line[Tile::tokens], key[key_tiles];
    TILEWAVE_UNROLL
    for (int k = 0; k < Tile::tokens; ++k) line[k] = tokens.token(line_place[k]);
    if constexpr (L::rope_units > 0) {
      TILEWAVE_UNROLL
      for (int t = 0; t < key_tiles; ++t) key[t] = tokens.token(key_place[t]);
    }
    look_up(n + 1);
    B::sched_fence();
    if constexpr (L::rope_units > 0) {
      TILEWAVE_UNROLL
      for (int t = 0; t < key_tiles; ++t) tile.load_rope(t, key[t]);
    }
    TILEWAVE_UNROLL
    for (int k = 0; k < Tile::tokens; ++k) tile.load_lines(k, line[k]);
    B::sched_fence();
  }

  TILEWAVE_DEVICE void step(std::int32_t n) {
    typename L::Sums scores[row_tiles][key_tiles] = {};
    TILEWAVE_UNROLL
    for (int i = 0; i < L::rope_units; ++i) {
      TILEWAVE_UNROLL
      for (int t = 0; t < key_tiles; ++t) {
        const Chunk key[] = {tile.rope_unit(t, i)};
        multiply_key(key, L::key_units + i, t, scores);
      }
    }
    B::wave_barrier();  // nobody reads the tile before
    tile.put(shared, places);
    B::wave_barrier();  // lines are there
    load(n + 1);
    TILEWAVE_UNROLL
    for (int c = 0; c < L::key_units; c += chunks) {
      TILEWAVE_UNROLL
      for (int t = 0; t < key_tiles; ++t) {
        Chunk key[chunks];
        TILEWAVE_UNROLL
        for (int i = 0; i < chunks; ++i) {
          const char* const from =
              shared + key_at[(c + i) % key_bases] + (c + i) / key_bases * (16 * L::window) + t * side * L::value_bytes;
          key[i] = *reinterpret_cast<const Chunk*>(from);
        }
        multiply_key(key, c, t, scores);
      }
    }
    read_values<0>();
    Operand probabilities[row_tiles];
    TILEWAVE_UNROLL
    for (int r = 0; r < row_tiles; ++r) probabilities[r] = softmax(r, scores[r], n);
    static_for<L::value_groups>([&](auto g) TILEWAVE_INLINE_LAMBDA {
      if constexpr (g + 1 < L::value_groups) read_values<g + 1>();
      multiply_values<g>(probabilities);
      B::sched_fence();
    });
  }

  /// Adds the products of neighbouring units of a key, the first of which is unit c.
  template <int count>
  TILEWAVE_DEVICE void multiply_key(const Chunk (&key)[count], int c, int t,
                                    typename L::Sums (&scores)[row_tiles][key_tiles]) const {
    TILEWAVE_UNROLL
    for (int r = 0; r < row_tiles; ++r) {
      typename L::Sums& to = scores[r][t];
      if constexpr (count % chunks == 0) {
        Chunk rows[count];
        TILEWAVE_UNROLL
        for (int i = 0; i < count; ++i) rows[i] = q[r][c + i];
        B::template multiply<type, side>(key, rows, to);
      } else {
        TILEWAVE_UNROLL
        for (int h = 0; h < 2 * count; ++h)
          B::template multiply_half<type, side>(half(key[h / 2], h % 2), half(q[r][c + h / 2], h % 2), to);
      }
    }
  }
  TILEWAVE_DEVICE static Half half(const Chunk& of, int h) { return {{of[2 * h], of[2 * h + 1]}}; }
  template <int g>
  TILEWAVE_DEVICE void read_values() {
    TILEWAVE_UNROLL
    for (int t = 0; t < L::group_tokens; ++t) {
      // A group of the window's second half is 128 bytes away, in the direction that the mask says.
      const char* const from = shared + (value_at[t % 4] ^ g % value_bases * 128) + g / value_bases * (16 * L::window) +
                               t / 4 * side * L::value_bytes;
      values_read[g % 2][t] = *reinterpret_cast<const Half*>(from);
    }
  }

  /// Returns the probabilities of the lane's tokens of tile n, an operand of values. If a score is too far above the
  /// reference of its row, it makes a new one. Other rows keep theirs, so that a row's bits do not depend on them.
  TILEWAVE_DEVICE Operand softmax(int r, const typename L::Sums (&scores)[key_tiles], std::int32_t n) {
    const std::int32_t lane_token = begin + n * tile_tokens + Map::kv_row(L::lane(), 0);
    const bool edge = item.is_edge(item.begin + n * tile_tokens, tile_tokens);
    float score[elements], largest = minus_infinity;
    TILEWAVE_UNROLL
    for (int e = 0; e < elements; ++e) {
      score[e] = scores[e / 4][e % 4] * scale;
      if (edge && lane_token + e / 4 * side + e % 4 >= end[r]) score[e] = minus_infinity;
      largest = Max{}(largest, score[e]);
    }
    if (B::uniform(B::any(largest > reference[r] + most) ? 1 : 0) != 0) raise_reference(r, largest);
    Operand words;
    constexpr int in_word = 4 / element;
    TILEWAVE_UNROLL
    for (int w = 0; w < L::operand_words; ++w) {
      float of[in_word];
      TILEWAVE_UNROLL
      for (int i = 0; i < in_word; ++i) {
        of[i] = B::exp2(score[w * in_word + i] - reference[r]);
        sum[r] += of[i];
      }
      if constexpr (is_fp8(type)) {
        words[w] = B::pack_fp8_within(of[0], of[1], of[2], of[3]);
      } else {
        words[w] = B::pack_bf16(of[0], of[1]);
      }
    }
    return words;
  }
  TILEWAVE_DEVICE void raise_reference(int r, float largest) {
    largest = Max{}(largest, B::shuffle_xor(largest, 16));
    largest = Max{}(largest, B::shuffle_xor(largest, 32));
    const float raised = largest > reference[r] + most ? largest - first : reference[r];
    const float factor = B::exp2(reference[r] - raised);
    reference[r] = raised;
    sum[r] *= factor;
    TILEWAVE_UNROLL
    for (auto& of_rows : out) {
      TILEWAVE_UNROLL
      for (float& of : of_rows[r].data) of *= factor;
    }
  }

  /// Adds the values of a group's columns.
  template <int g>
  TILEWAVE_DEVICE void multiply_values(const Operand (&probabilities)[row_tiles]) {
    Operand operands[L::group_tiles];
    turn(values_read[g % 2], operands);
    TILEWAVE_UNROLL
    for (int d = 0; d < L::group_tiles; ++d) {
      TILEWAVE_UNROLL
      for (int r = 0; r < row_tiles; ++r) {
        typename L::Sums& to = out[g * L::group_tiles + d][r];
        if constexpr (L::operand_words == 4) {
          const Chunk kv[] = {operands[d]}, rows[] = {probabilities[r]};
          B::template multiply<type, side>(kv, rows, to);
        } else {
          B::template multiply_half<type, side>(operands[d], probabilities[r], to);
        }
      }
    }
  }
  /// Returns the low, or the high, halves of two words.
  TILEWAVE_DEVICE static std::uint32_t pair(int high, std::uint32_t a, std::uint32_t b) {
    return high == 0 ? B::template pick_bytes<0, 1, 4, 5>(a, b) : B::template pick_bytes<2, 3, 6, 7>(a, b);
  }
  /// Makes operands of what was read: tokens of one dimension side by side.
  TILEWAVE_DEVICE static void turn(const Half (&read)[L::group_tokens], Operand (&operands)[L::group_tiles]) {
    TILEWAVE_UNROLL
    for (int d = 0; d < L::group_tiles; d += 2) {
      std::uint32_t words[2 * L::operand_words];  // of two dimensions of two tokens, or of four tokens
      TILEWAVE_UNROLL
      for (int w = 0; w < 2 * L::operand_words; ++w) {
        if constexpr (element == 2) {
          words[w] = read[w][d / 2];
        } else {
          const std::uint32_t x = read[2 * w][d / 4], y = read[2 * w + 1][d / 4];
          words[w] = d % 4 == 0 ? B::template pick_bytes<0, 4, 1, 5>(x, y) : B::template pick_bytes<2, 6, 3, 7>(x, y);
        }
      }
      TILEWAVE_UNROLL
      for (int w = 0; w < L::operand_words; ++w) {
        operands[d][w] = pair(0, words[2 * w], words[2 * w + 1]);
        operands[d + 1][w] = pair(1, words[2 * w], words[2 * w + 1]);
      }
    }
  }
};

}  // namespace tilewave
