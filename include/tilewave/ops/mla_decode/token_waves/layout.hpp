// SPDX-License-Identifier: MIT
// A wave of path token_waves has tokens of its own, and a part of LDS for what is a key and a value of them. Eight
// lanes load a line of a token side by side and write it there. As keys, units of 16 bytes are read. Values want
// tokens of one dimension side by side: a lane reads a few dimensions of each of four tokens, and turns them in
// registers. Rotated dimensions, which are keys alone, go straight to the registers of the lane that multiplies them.
#pragma once

#include "tilewave/arch/lds.hpp"
#include "tilewave/attention/latent_cache.hpp"
#include "tilewave/core/static_for.hpp"
#include "tilewave/ops/mla_decode/args.hpp"

namespace tilewave {

template <class RoomOf, MlaDecodeSpec S, MlaDecodePolicy P>
struct MlaTokenWavesLayout {
  using B = RoomOf;
  static constexpr MlaDecodeSpec spec = S;
  static constexpr MlaDecodePolicy policy = P;
  static constexpr int side = 16;  // tokens and rows of a product
  using Map = ProductMap<side>;
  using Sums = Vec<float, Map::sums>;
  static constexpr int lanes = B::facts.wave_lanes, waves = P.waves, groups = Map::units;
  static constexpr int row_tiles = P.rows / side;  // a lane has a row of each
  static constexpr DType type = S.q;               // of products, and of values in LDS
  static constexpr int element = size_of(type);
  static constexpr LatentRow row = S.row();
  static constexpr bool widened = size_of(S.kv) < element;
  static constexpr int wave_tokens = P.tokens / waves, key_tiles = wave_tokens / side;
  static constexpr int value_bytes = latent_value_size * element;  // of a token in LDS
  // A unit is 16 bytes of operands, of which a lane has every fourth of a key: of latent ones, and of rotated ones.
  static constexpr int units = S.head_size * element / 16 / groups, key_units = value_bytes / 16 / groups,
                       rope_units = units - key_units;
  // A line is 128 bytes of memory. The lane has a 16th of it, of each eighth token.
  static constexpr int line_lanes = 8, lane_tokens = wave_tokens * line_lanes / lanes;
  // A lane reads 8 bytes of a token's values. Each of these dimensions is of one tile of sums, so a group of tiles has
  // 64 neighbouring columns of bf16, or 128 of fp8.
  static constexpr int value_tiles = latent_value_size / side, group_tiles = 8 / element;
  static constexpr int value_groups = value_tiles / group_tiles, group_tokens = 4 * key_tiles;
  static constexpr int group_columns = side * group_tiles;

  static constexpr int operand_words = key_tiles * element;  // of values, and of probabilities

  /// Returns what is joined to the number of a token's unit by exclusive or. Neither lanes that read units of
  /// neighbouring tokens meet a bank twice then, nor those that write lines, or read values, of two.
  TILEWAVE_HOST_DEVICE static constexpr int mask(int token) {
    if (window == 8) return token % 8;
    return token % 4 + token / 4 % 2 * 8 + token / 8 % 2 * 4;
  }
  static constexpr int window = B::facts.lds_banks / 4;  // units within which the mask permutes
  /// Returns token k of a lane that loads lines.
  TILEWAVE_HOST_DEVICE static constexpr int line_token(int lane, int k) {
    const int of = lane / line_lanes;
    return 8 * k + (window == 8 ? of : of % 2 + of / 2 % 2 * 4 + of / 4 * 2);
  }
  /// Returns the byte of the wave's part of LDS that has a unit of a token.
  TILEWAVE_HOST_DEVICE static constexpr int offset(int token, int unit) {
    return token * value_bytes + 16 * (unit ^ mask(token));
  }
  /// Returns the byte of unit c of the lane's key.
  TILEWAVE_HOST_DEVICE static constexpr int key_offset(int lane, int c) {
    return offset(Map::row(lane), groups * c + Map::unit(lane));
  }
  /// Returns the byte of the lane's dimensions of group `of`, of token t of its own.
  TILEWAVE_HOST_DEVICE static constexpr int value_offset(int lane, int of, int t) {
    const int token = t / 4 * side + Map::kv_row(lane, t % 4), byte = of * 128 + lane % side * 8;
    return offset(token, byte / 16) + byte % 16;
  }
  static constexpr int conflicts() {
    int cycles = 0;
    for (int i = 0; i < key_units; ++i) {
      cycles += lds_conflicts(B::facts.id, [&](int lane) { return key_offset(lane, i) / 16; });
      const auto line = [&](int lane) { return offset(line_token(lane, i % 2), 8 * (i / 2) + lane % line_lanes) / 16; };
      cycles += lds_conflicts(B::facts.id, line);
    }
    return cycles;
  }
  static_assert(conflicts() == 0, "lanes that are served together meet no bank twice");

  struct Merged {
    static constexpr int columns = 128, pitch = columns + 4;  // a gap of 16 bytes spreads rows over banks
    float sums[waves][side][pitch];
    float reference[waves][P.rows], sum[waves][P.rows];
  };
  /// Values of a tile, and when no wave reads them any more, sums.
  union Shared {
    Chunk values[waves][wave_tokens * value_bytes / 16];
    Merged merged;
  };

  /// LLVM would otherwise keep what follows from the lane's number across items.
  TILEWAVE_DEVICE static int lane() { return B::opaque(std::int32_t{B::lane_id()}); }
};

}  // namespace tilewave
