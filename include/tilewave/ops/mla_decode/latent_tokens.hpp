// SPDX-License-Identifier: MIT
// A lane finds the rows of tokens here and reads units of them, eight dimensions as bf16, whatever their layout.
#pragma once

#include "tilewave/arch/backend.hpp"
#include "tilewave/attention/operands.hpp"
#include "tilewave/ops/mla_decode/args.hpp"
#include "tilewave/tile/element.hpp"

namespace tilewave {

/// Returns four words of bf16 pairs, each value times a scale and rounded.
template <class B>
TILEWAVE_DEVICE Chunk scale_unit(const Chunk& unit, float scale) {
  Chunk scaled;
  TILEWAVE_UNROLL
  for (int w = 0; w < 4; ++w) {
    scaled[w] = B::round_bf16(__builtin_bit_cast(float, unit[w] << 16) * scale,
                              __builtin_bit_cast(float, unit[w] & 0xffff0000u) * scale);
  }
  return scaled;
}

/// The rows of one sequence. A token behind the last one is the last one again, so only its tokens are read.
template <class B, MlaDecodeSpec S>
struct LatentTokens {
  static constexpr LatentRow layout = S.row();
  static constexpr int element = size_of(S.kv), code_units = layout.codes() / 8, wide_byte = layout.wide_byte();
  static constexpr int group = layout.group(), scale_byte = layout.scale_byte();
  static constexpr int group_units = group > 0 ? group / 8 : 1;  // units that share a scale
  static constexpr bool apart = layout.scales_apart();
  static constexpr int apart_bytes = LatentRow::apart_bytes;

  const MlaDecodeArgs& args;
  const std::int32_t* table;  // this sequence's row of the block table
  std::int32_t last;          // the sequence must have at least one token

  /// A token's row, and its scales.
  struct Token {
    const char* row;
    const char* scales;
  };
  TILEWAVE_DEVICE Token token(std::int32_t t) const { return token(t, page_of(t)); }
  TILEWAVE_DEVICE std::int32_t page_of(std::int32_t t) const {
    return B::load(table + args.attention.block_size.quotient(min_of(t, last)));
  }
  TILEWAVE_DEVICE Token token(std::int32_t t, std::int32_t page_number) const {
    const PagedAttentionArgs& a = args.attention;
    t = min_of(t, last);
    return token({page_number, t - a.block_size.quotient(t) * a.block_size.divisor});
  }

  /// The page of a token, whose id is on its way, and the token's number in it.
  struct Place {
    std::int32_t page, in_page;
  };
  TILEWAVE_DEVICE Place place(std::int32_t t) const {
    const FastDiv& block_size = args.attention.block_size;
    t = min_of(t, last);
    const std::int32_t column = block_size.quotient(t);
    return {B::load(table + column), t - column * block_size.divisor};
  }
  TILEWAVE_DEVICE Token token(const Place& at) const {
    const PagedAttentionArgs& a = args.attention;
    const auto* const page = static_cast<const char*>(a.k) + element * (at.page * a.k_strides.page);
    const char* const row = page + element * (at.in_page * a.k_strides.token);
    return {row, apart ? page + args.page_scales + at.in_page * apart_bytes : row + scale_byte};
  }

  /// Returns the scale of unit u of a token, one of codes in groups.
  TILEWAVE_DEVICE float scale(const Token& t, int u) const {
    if constexpr (apart) {
      return e8m0_to_f32(B::load(reinterpret_cast<const std::uint8_t*>(t.scales) + u / group_units));
    } else {
      return B::load(reinterpret_cast<const float*>(t.scales) + u / group_units);
    }
  }

  /// Returns codes 16 u to 16 u + 15 of a token of the plain layout.
  TILEWAVE_DEVICE Chunk codes(const Token& t, int u) const {
    return B::load(reinterpret_cast<const Chunk*>(t.row) + u);
  }

  /// Returns dimensions 8 u to 8 u + 7 of a token. Codes of the plain layout are without their scale.
  TILEWAVE_DEVICE Chunk unit(const Token& t, int u) const {
    if constexpr (code_units > 0) {
      if (u < code_units) {
        const auto codes = B::load(reinterpret_cast<const Vec<std::uint32_t, 2>*>(t.row) + u);
        const auto low = B::widen_fp8(codes[0]), high = B::widen_fp8(codes[1]);
        const Chunk wide{{low[0], low[1], high[0], high[1]}};
        if constexpr (group > 0) {
          return scale_unit<B>(wide, scale(t, u));
        } else {
          return wide;
        }
      }
    }
    return B::load(reinterpret_cast<const Chunk*>(t.row + wide_byte) + (u - code_units));
  }
};

}  // namespace tilewave
