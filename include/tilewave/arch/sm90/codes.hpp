// SPDX-License-Identifier: MIT
// How codes of four bits become bf16, f16 or fp8.
#pragma once

#include "tilewave/arch/backend.hpp"

#if defined(__CUDACC__)

namespace tilewave::sm90 {

struct Codes {
  /// A code with its sign bit flipped is the value plus 8. The bf16 128 + 8 + value has the high byte 0x43 and that
  /// code; the f16 1024 + 8 + value has the high byte 0x64 and that code.
  static constexpr float i4_unit = 1.0f;
  template <DType type>
  TILEWAVE_DEVICE static constexpr std::uint32_t i4_zeros(int zero) {
    return (static_cast<std::uint32_t>((type == DType::bf16 ? 0x4308 : 0x6408) + zero) & 0xffffu) * 0x10001u;
  }
  TILEWAVE_DEVICE static Chunk widen_i4(std::uint32_t word, std::uint32_t zeros = 0x43084308u) {
    return widened_i4<0x43>(
        word, [&](std::uint32_t pair) TILEWAVE_INLINE_LAMBDA { return less_pair<DType::bf16>(pair, zeros); });
  }
  TILEWAVE_DEVICE static Chunk widen_i4_to_f16(std::uint32_t word, std::uint32_t zeros = 0x64086408u) {
    return widened_i4<0x64>(
        word, [&](std::uint32_t pair) TILEWAVE_INLINE_LAMBDA { return less_pair<DType::f16>(pair, zeros); });
  }

  /// Widens two bytes of a word, its low or high halves. Each code goes below the type's high byte.
  template <DType type>
  TILEWAVE_DEVICE static Vec<std::uint32_t, 2> widen_i4_pairs(const Vec<std::uint32_t, 2>& words, int pair,
                                                              std::uint32_t zeros = type == DType::bf16 ? 0x43084308u
                                                                                                        : 0x64086408u) {
    Vec<std::uint32_t, 2> pairs = biased_pairs<type>(words, pair);
    TILEWAVE_UNROLL
    for (int i = 0; i < 2; ++i) pairs[i] = less_pair<type>(pairs[i], zeros);
    return pairs;
  }
  /// The same times a pair of powers of two, from which `zeros` made the offsets.
  template <DType type>
  TILEWAVE_DEVICE static std::uint32_t i4_offsets(std::uint32_t zeros, std::uint32_t powers) {
    return (type == DType::bf16 ? multiply_bf16(zeros, powers) : multiply_f16(zeros, powers)) ^ 0x80008000u;
  }
  template <DType type>
  TILEWAVE_DEVICE static Vec<std::uint32_t, 2> widen_i4_pairs_times(const Vec<std::uint32_t, 2>& words, int pair,
                                                                    std::uint32_t powers, std::uint32_t offsets) {
    Vec<std::uint32_t, 2> pairs = biased_pairs<type>(words, pair);
    TILEWAVE_UNROLL
    for (int i = 0; i < 2; ++i) {
      if constexpr (type == DType::bf16) {
        asm("fma.rn.bf16x2 %0, %0, %1, %2;" : "+r"(pairs[i]) : "r"(powers), "r"(offsets));
      } else {
        asm("fma.rn.f16x2 %0, %0, %1, %2;" : "+r"(pairs[i]) : "r"(powers), "r"(offsets));
      }
    }
    return pairs;
  }

  /// A code with its sign bit flipped goes into the mantissa below the exponent of 16 (bf16) or 64 (f16).
  template <DType type>
  static constexpr std::uint32_t i4_negative_biases = type == DType::bf16 ? 0xc1c0c1c0u : 0xd480d480u;
  template <DType type>
  static constexpr float i4_bias = type == DType::bf16 ? 24.0f : 72.0f;
  template <DType type>
  TILEWAVE_DEVICE static Chunk widen_i4_biased(std::uint32_t word) {
    constexpr bool bf16 = type == DType::bf16;
    constexpr std::uint32_t mask = bf16 ? 0x00780078u : 0x00f000f0u, base = i4_negative_biases<type> ^ 0x80008000u;
    Chunk pairs =
        bf16 ? Chunk{{word << 3, word >> 5, word >> 1, word >> 9}} : Chunk{{word << 4, word >> 4, word, word >> 8}};
    TILEWAVE_UNROLL
    for (int i = 0; i < 4; ++i) pairs[i] = masked(pairs[i], mask, base);
    return pairs;
  }
  /// Both codes of a byte lie where bf16 and f16 count their least subnormals: 8 bits, with the exponent's lowest.
  TILEWAVE_DEVICE static Chunk widen_i4_counts(std::uint32_t word) {
    constexpr std::uint32_t ones = 0x000f000fu, signs = 0x00080008u;
    const std::uint32_t odd = word >> 8;
    return {{masked(word, ones, signs), masked(odd, ones, signs), masked(word, ones << 4, signs << 4),
             masked(odd, ones << 4, signs << 4)}};
  }

  /// A value's magnitude is that many times the least fp8, whose codes count up from there. All bytes are computed at
  /// once, since no carry leaves one.
  static constexpr float i4_fp8_unit = 0x1p-9f;
  TILEWAVE_DEVICE static std::uint32_t widen_i4_quad(std::uint32_t word, int quad) {
    const std::uint32_t codes = word >> quad * 4 & 0x0f0f0f0fu, negative = codes >> 3 & 0x01010101u;
    return (codes ^ negative * 0x8fu) + negative;
  }

  /// The magnitude of a code, its low three bits, lies where the exponent of bf16 or f16 ends and the mantissa begins.
  /// That is the value times a power of two, also of the two smallest, which are subnormal then.
  TILEWAVE_DEVICE static Chunk widen_fp4(std::uint32_t word) { return widened_fp4<DType::bf16>(word); }
  TILEWAVE_DEVICE static Chunk widen_fp4_scaled(std::uint32_t word, std::uint32_t scale) {
    Chunk pairs = widen_fp4(word);
    TILEWAVE_UNROLL
    for (int i = 0; i < 4; ++i) pairs[i] = multiply_bf16(pairs[i], scale * 0x00800080u);
    return pairs;
  }
  TILEWAVE_DEVICE static Chunk widen_fp4_to_f16(std::uint32_t word) { return widened_fp4<DType::f16>(word); }
  template <DType type>
  TILEWAVE_DEVICE static Vec<std::uint32_t, 2> widen_fp4_pairs(const Vec<std::uint32_t, 2>& words, int pair) {
    const std::uint32_t codes = halves(words, pair) << (4 - pair / 2 * 4);
    return {{fp4_pair<type>(pick_bytes<4, 0, 4, 1>(codes, 0)), fp4_pair<type>(pick_bytes<4, 2, 4, 3>(codes, 0))}};
  }
  static constexpr float fp4_fp8_unit = 0x1p-6f;
  TILEWAVE_DEVICE static std::uint32_t widen_fp4_quad(std::uint32_t word, int quad) {
    const std::uint32_t codes = word >> quad * 4;
    return (codes << 4 & 0x80808080u) | (codes << 2 & 0x1c1c1c1cu);
  }

  TILEWAVE_DEVICE static std::uint32_t multiply_f16(std::uint32_t pair, std::uint32_t factors) {
    asm("mul.rn.f16x2 %0, %0, %1;" : "+r"(pair) : "r"(factors));
    return pair;
  }
  TILEWAVE_DEVICE static std::uint32_t multiply_bf16(std::uint32_t pair, std::uint32_t factors) {
    asm("mul.rn.bf16x2 %0, %0, %1;" : "+r"(pair) : "r"(factors));
    return pair;
  }

  template <int a, int b, int c, int d>
  TILEWAVE_DEVICE static std::uint32_t pick_bytes(std::uint32_t low, std::uint32_t high) {
    std::uint32_t word;
    asm("prmt.b32 %0, %1, %2, %3;" : "=r"(word) : "r"(low), "r"(high), "n"(a | b << 4 | c << 8 | d << 12));
    return word;
  }

 private:
  /// Returns (word & mask) ^ bits by one instruction; without it ptxas takes two.
  TILEWAVE_DEVICE static std::uint32_t masked(std::uint32_t word, std::uint32_t mask, std::uint32_t bits) {
    asm("lop3.b32 %0, %0, %1, %2, 0x6a;" : "+r"(word) : "r"(mask), "r"(bits));
    return word;
  }
  /// Returns the low (pair even) or high halves of two words.
  TILEWAVE_DEVICE static std::uint32_t halves(const Vec<std::uint32_t, 2>& words, int pair) {
    std::uint32_t both;
    asm("prmt.b32 %0, %1, %2, %3;" : "=r"(both) : "r"(words[0]), "r"(words[1]), "r"(pair % 2 == 0 ? 0x5410u : 0x7632u));
    return both;
  }
  /// Returns two bytes of a word, its low or high halves, each below the type's high byte.
  template <DType type>
  TILEWAVE_DEVICE static Vec<std::uint32_t, 2> biased_pairs(const Vec<std::uint32_t, 2>& words, int pair) {
    constexpr std::uint32_t high_bytes = type == DType::bf16 ? 0x43004300u : 0x64006400u;
    const std::uint32_t codes = masked(halves(words, pair) >> pair / 2 * 4, 0x0f0f0f0fu, 0x08080808u);
    Vec<std::uint32_t, 2> pairs;
    asm("prmt.b32 %0, %1, %2, 0x5150;" : "=r"(pairs[0]) : "r"(codes), "r"(high_bytes));
    asm("prmt.b32 %0, %1, %2, 0x5352;" : "=r"(pairs[1]) : "r"(codes), "r"(high_bytes));
    return pairs;
  }
  /// Returns the differences of two pairs of bf16 or f16.
  template <DType type>
  TILEWAVE_DEVICE static std::uint32_t less_pair(std::uint32_t pair, std::uint32_t less) {
    if constexpr (type == DType::bf16) {
      asm("sub.rn.bf16x2 %0, %0, %1;" : "+r"(pair) : "r"(less));
    } else {
      asm("sub.rn.f16x2 %0, %0, %1;" : "+r"(pair) : "r"(less));
    }
    return pair;
  }
  /// Two fp4 codes, the high four bits of each half of a word, as bf16 or f16.
  template <DType type>
  TILEWAVE_DEVICE static std::uint32_t fp4_pair(std::uint32_t codes) {
    const std::uint32_t sign = codes & 0x80008000u;
    return type == DType::bf16 ? multiply_bf16((codes >> 6 & 0x01c001c0u) | sign, 0x7e807e80u)  // 2^126
                               : multiply_f16((codes >> 3 & 0x0e000e00u) | sign, 0x74007400u);  // 2^14
  }
  template <DType type>
  TILEWAVE_DEVICE static Chunk widened_fp4(std::uint32_t word) {
    const std::uint32_t first = word << 4;
    return {{fp4_pair<type>(pick_bytes<4, 0, 4, 1>(first, 0)), fp4_pair<type>(pick_bytes<4, 2, 4, 3>(first, 0)),
             fp4_pair<type>(pick_bytes<4, 0, 4, 1>(word, 0)), fp4_pair<type>(pick_bytes<4, 2, 4, 3>(word, 0))}};
  }
  template <std::uint32_t high_byte, class Less>
  TILEWAVE_DEVICE static Chunk widened_i4(std::uint32_t word, const Less& less) {
    constexpr std::uint32_t high = high_byte * 0x01010101u;
    const std::uint32_t codes = word ^ 0x88888888u, first = codes & 0x0f0f0f0fu, second = codes >> 4 & 0x0f0f0f0fu;
    return {{less(pick_bytes<0, 4, 1, 4>(first, high)), less(pick_bytes<2, 4, 3, 4>(first, high)),
             less(pick_bytes<0, 4, 1, 4>(second, high)), less(pick_bytes<2, 4, 3, 4>(second, high))}};
  }
};

}  // namespace tilewave::sm90

#endif
