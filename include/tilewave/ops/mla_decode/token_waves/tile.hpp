// SPDX-License-Identifier: MIT
// What is under way of a tile of a wave of path token_waves, in registers: lines of some tokens, which become keys and
// values in LDS, and rotated dimensions of others, which are operands. Codes of either are widened where they are
// taken.
#pragma once

#include "tilewave/ops/mla_decode/latent_tokens.hpp"
#include "tilewave/ops/mla_decode/token_waves/layout.hpp"

namespace tilewave {

template <class L>
struct MlaTokenWavesTile {
  using B = typename L::B;
  using Tokens = LatentTokens<B, L::spec>;
  using Token = typename Tokens::Token;
  using Half = Vec<std::uint32_t, 2>;
  static constexpr LatentRow row = L::row;
  static constexpr bool widened = L::widened, rope_codes = widened && row.codes() > latent_value_size;
  static constexpr int tokens = L::lane_tokens, key_tiles = L::key_tiles, rope_units = L::rope_units;
  // Lines of codes have sixteen units, of which a lane has two; the last line of groups_64 has eight.
  static constexpr int codes = min_of(row.codes(), latent_value_size);
  static constexpr int lines = widened ? ceil_div(codes, 128) : L::value_bytes / 128;
  static constexpr bool wide_values = widened && codes < latent_value_size;
  static constexpr int scale_words = row.group() == 0 ? 1 : row.scales_apart() ? 2 : 4;

  Chunk line[tokens][lines], wide[tokens];
  Vec<std::uint32_t, scale_words> scales[tokens];
  Chunk rope[key_tiles][max_of(rope_units, 1)];

  /// Loads the lane's part of the lines of its token k.
  TILEWAVE_DEVICE void load_lines(int k, const Token& token) {
    const int lane = B::lane_id() % L::line_lanes;
    TILEWAVE_UNROLL
    for (int i = 0; i < lines; ++i) line[k][i] = B::load(at<Chunk>(token.row, 128 * i) + lane);
    if constexpr (wide_values) wide[k] = B::load(at<Chunk>(token.row, row.wide_byte()) + lane);
    if constexpr (row.group() > 0) scales[k] = B::load(at<Vec<std::uint32_t, scale_words>>(token.scales, 0));
  }
  /// Loads the lane's rotated units of the key of its tile t.
  TILEWAVE_DEVICE void load_rope(int t, const Token& token) {
    const int group = B::lane_id() / L::side;
    TILEWAVE_UNROLL
    for (int i = 0; i < rope_units; ++i) {
      if constexpr (rope_codes) {
        const Half two = B::load(at<Half>(token.row, latent_value_size) + L::groups * i + group);
        rope[t][i] = {{two[0], two[1]}};
      } else {
        rope[t][i] = B::load(at<Chunk>(token.row, widened ? row.wide_byte() : L::value_bytes) + L::groups * i + group);
      }
    }
  }
  TILEWAVE_DEVICE Chunk rope_unit(int t, int i) const {
    if constexpr (rope_codes) return widen(rope[t][i][0], rope[t][i][1]);
    return rope[t][i];
  }

  /// Where the lane writes its part of a line: of its even and odd tokens, each of two units.
  struct Places {
    std::int32_t of[2][2], wide[2];

    TILEWAVE_DEVICE explicit Places(int lane) {
      const int in_line = lane % L::line_lanes;
      TILEWAVE_UNROLL
      for (int p = 0; p < 2; ++p) {
        TILEWAVE_UNROLL
        for (int v = 0; v < 2; ++v) {
          const int unit = widened ? 2 * in_line + v : in_line + 8 * v;
          of[p][v] = B::opaque(std::int32_t{L::offset(L::line_token(lane, p), unit)});
        }
        if constexpr (wide_values)
          wide[p] = B::opaque(std::int32_t{L::offset(L::line_token(lane, p), codes / 8 + in_line)});
      }
    }
  };
  /// Writes all lines to LDS.
  TILEWAVE_DEVICE void put(char* to, const Places& places) const {
    TILEWAVE_UNROLL
    for (int k = 0; k < tokens; ++k) {
      char* const of_token = to + k / 2 * (16 * L::value_bytes);
      TILEWAVE_UNROLL
      for (int i = 0; i < lines; ++i) {
        if constexpr (!widened) {
          *reinterpret_cast<Chunk*>(of_token + places.of[k % 2][i % 2] + i / 2 * 256) = line[k][i];
        } else {
          // The last line may have codes for half of its lanes.
          if (128 * (i + 1) > codes && B::lane_id() % L::line_lanes >= codes % 128 / 16) continue;
          TILEWAVE_UNROLL
          for (int v = 0; v < 2; ++v)
            *reinterpret_cast<Chunk*>(of_token + places.of[k % 2][v] + i * 256) = unit(k, i, v);
        }
      }
      if constexpr (wide_values) *reinterpret_cast<Chunk*>(of_token + places.wide[k % 2]) = wide[k];
    }
  }

 private:
  template <class T>
  TILEWAVE_DEVICE static const T* at(const char* row_of, int byte) {
    return reinterpret_cast<const T*>(row_of + byte);
  }
  TILEWAVE_DEVICE static Chunk widen(std::uint32_t low, std::uint32_t high) {
    const auto first = B::widen_fp8(low), second = B::widen_fp8(high);
    return {{first[0], first[1], second[0], second[1]}};
  }
  /// Returns unit v of the lane's two of a line of codes.
  TILEWAVE_DEVICE Chunk unit(int k, int i, int v) const {
    const Chunk of = widen(line[k][i][2 * v], line[k][i][2 * v + 1]);
    if constexpr (row.scales_apart()) {
      const int group = 2 * i + B::lane_id() % L::line_lanes / 4;
      return scale_unit<B>(of, e8m0_to_f32(static_cast<std::uint8_t>(scales[k][i / 2] >> group % 4 * 8)));
    } else if constexpr (row.group() > 0) {
      return scale_unit<B>(of, __builtin_bit_cast(float, scales[k][i]));
    } else {
      return of;
    }
  }
};

}  // namespace tilewave
