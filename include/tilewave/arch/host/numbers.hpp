// SPDX-License-Identifier: MIT
// Conversions and elementary functions of the host room.
#pragma once

#include "tilewave/core/config.hpp"

#if !TILEWAVE_ON_GPU_COMPILER

#include <array>
#include <cmath>
#include <cstdint>

#include "tilewave/core/dtype.hpp"
#include "tilewave/core/vec.hpp"

namespace tilewave::host {

template <DType Fp8>
struct Numbers {
  static_assert(is_fp8(Fp8), "numbers are of a chip, whose fp8 flavour is named here");

  static float subtract(float a, float b) {
    asm("" : "+m"(a), "+m"(b));  // a product contracted into it would differ from room to room
    return a - b;
  }
  static Vec<float, 2> subtract(const Vec<float, 2>& a, const Vec<float, 2>& b) {
    return {{subtract(a[0], b[0]), subtract(a[1], b[1])}};
  }
  static Vec<float, 2> fused(const Vec<float, 2>& a, const Vec<float, 2>& b, const Vec<float, 2>& c) {
    return {{__builtin_fmaf(a[0], b[0], c[0]), __builtin_fmaf(a[1], b[1], c[1])}};
  }
  static Vec<float, 2> canonical(const Vec<float, 2>& a) { return a; }
  static float exp2(float x) { return std::exp2(x); }
  static float log2(float x) { return std::log2(x); }
  static float rsqrt(float x) { return static_cast<float>(1.0 / std::sqrt(static_cast<double>(x))); }
  static float reciprocal(float x) { return 1.0f / x; }

  /// Packs two bf16 in one word, `low` in the low half; rounds to nearest, ties to even.
  static std::uint32_t pack_bf16(float low, float high) {
    return f32_to_bf16(low) | static_cast<std::uint32_t>(f32_to_bf16(high)) << 16;
  }
  static std::uint32_t round_bf16(float low, float high) { return pack_bf16(low, high); }

  static std::uint32_t pack_f16(float low, float high) {
    return f32_to_f16(low) | static_cast<std::uint32_t>(f32_to_f16(high)) << 16;
  }
  static Vec<float, 2> widen_f16(std::uint32_t word) {
    return {{f16_to_f32(static_cast<std::uint16_t>(word)), f16_to_f32(static_cast<std::uint16_t>(word >> 16))}};
  }

  /// Packs four fp8 codes, `a` in the lowest byte.
  static std::uint32_t pack_fp8(float a, float b, float c, float d) {
    return bytes(f32_to_fp8(Fp8, a), f32_to_fp8(Fp8, b), f32_to_fp8(Fp8, c), f32_to_fp8(Fp8, d));
  }
  /// Packs four int8 in the same order: clamped, then rounded toward zero.
  static std::uint32_t pack_i8(float a, float b, float c, float d) {
    const auto narrow = [](float x) {
      const int i = std::isnan(x) ? 0 : static_cast<int>(std::fmin(std::fmax(x, -127.0f), 127.0f));
      return static_cast<std::uint8_t>(i);
    };
    return bytes(narrow(a), narrow(b), narrow(c), narrow(d));
  }

  /// Widens four fp8 codes (lowest byte first) to four bf16, exactly.
  static Vec<std::uint32_t, 2> widen_fp8(std::uint32_t word) { return widened(word, table<DType::bf16>); }
  static Vec<std::uint32_t, 2> widen_fp8_to_f16(std::uint32_t word) { return widened(word, table<DType::f16>); }

  /// Widens eight i4 to bf16 or f16, exactly: the low halves of bytes first, then the high ones.
  static constexpr float i4_unit = 1.0f;
  template <DType type>
  static std::uint32_t i4_zeros(int zero) {
    return static_cast<std::uint32_t>(zero);
  }
  static Chunk widen_i4(std::uint32_t word, std::uint32_t zeros = 0) { return widened_i4(word, f32_to_bf16, zeros); }
  static Chunk widen_i4_to_f16(std::uint32_t word, std::uint32_t zeros = 0) {
    return widened_i4(word, f32_to_f16, zeros);
  }

  static Vec<std::uint32_t, 2> widen_i4_to_fp8(std::uint32_t word) {
    Vec<std::uint32_t, 2> codes{};
    for (int i = 0; i < 8; ++i) {
      const int code = static_cast<int>(word >> (8 * (i % 4) + 4 * (i / 4)) & 15u), value = code < 8 ? code : code - 16;
      codes[i / 4] |= std::uint32_t{f32_to_fp8(Fp8, static_cast<float>(value))} << 8 * (i % 4);
    }
    return codes;
  }

  template <DType type>
  static Vec<std::uint32_t, 2> widen_i4_pairs(const Vec<std::uint32_t, 2>& words, int pair, std::uint32_t zeros = 0) {
    static_assert(type == DType::bf16 || type == DType::f16, "pairs are of bf16 or f16");
    const auto widened = type == DType::bf16 ? widen_i4 : widen_i4_to_f16;
    return {{widened(words[0], zeros)[pair], widened(words[1], zeros)[pair]}};
  }

  template <DType type>
  static std::uint32_t i4_offsets(std::uint32_t zeros, std::uint32_t) {
    return zeros;
  }
  template <DType type>
  static Vec<std::uint32_t, 2> widen_i4_pairs_times(const Vec<std::uint32_t, 2>& words, int pair, std::uint32_t powers,
                                                    std::uint32_t offsets) {
    Vec<std::uint32_t, 2> pairs = widen_i4_pairs<type>(words, pair, offsets);
    for (int i = 0; i < 2; ++i) pairs[i] = multiply_pair<type>(pairs[i], powers);
    return pairs;
  }

  template <DType type>
  static constexpr std::uint32_t i4_negative_biases = type == DType::bf16 ? 0xc1c0c1c0u : 0xd480d480u;
  template <DType type>
  static constexpr float i4_bias = type == DType::bf16 ? 24.0f : 72.0f;
  template <DType type>
  static Chunk widen_i4_biased(std::uint32_t word) {
    return even_and_odd(widened_i4(word, [](float v) {
      return type == DType::bf16 ? f32_to_bf16(i4_bias<type> + v) : f32_to_f16(i4_bias<type> + v);
    }));
  }
  static Chunk widen_i4_counts(std::uint32_t word) {
    Chunk pairs = even_and_odd(widened_i4(word, [](float v) { return static_cast<std::uint16_t>(8.0f + v); }));
    pairs[2] <<= 4, pairs[3] <<= 4;
    return pairs;
  }

  static constexpr float i4_fp8_unit = 0x1p-9f;
  static std::uint32_t widen_i4_quad(std::uint32_t word, int quad) {
    std::uint32_t codes = 0;
    for (int i = 0; i < 4; ++i) {
      const int code = static_cast<int>(word >> (8 * i + 4 * quad) & 15u), value = code < 8 ? code : code - 16;
      codes |= static_cast<std::uint32_t>(value < 0 ? 0x80 - value : value) << 8 * i;
    }
    return codes;
  }

  /// Widens eight fp4 in the same order, exactly.
  static Chunk widen_fp4(std::uint32_t word) { return widened_fp4(word, f32_to_bf16); }
  static Chunk widen_fp4_scaled(std::uint32_t word, std::uint32_t scale) {
    const float power = e8m0_to_f32(static_cast<std::uint8_t>(scale));
    Chunk pairs{};
    for (int i = 0; i < 8; ++i) {
      const auto code = static_cast<std::uint8_t>(word >> (i < 4 ? 8 * i : 8 * (i - 4) + 4) & 15u);
      pairs[i / 2] |= std::uint32_t{f32_to_bf16(power * fp4_to_f32(code))} << 16 * (i % 2);
    }
    return pairs;
  }
  static Chunk widen_fp4_to_f16(std::uint32_t word) { return widened_fp4(word, f32_to_f16); }
  template <DType type>
  static Vec<std::uint32_t, 2> widen_fp4_pairs(const Vec<std::uint32_t, 2>& words, int pair) {
    static_assert(type == DType::bf16 || type == DType::f16, "pairs are of bf16 or f16");
    const auto widened = type == DType::bf16 ? widen_fp4 : widen_fp4_to_f16;
    return {{widened(words[0])[pair], widened(words[1])[pair]}};
  }
  static constexpr float fp4_fp8_unit = 0x1p-6f;
  static std::uint32_t widen_fp4_quad(std::uint32_t word, int quad) {
    std::uint32_t codes = 0;
    for (int i = 0; i < 4; ++i) {
      const auto code = static_cast<std::uint8_t>(word >> (8 * i + 4 * quad));
      codes |= std::uint32_t{f32_to_fp8(Fp8, fp4_fp8_unit * fp4_to_f32(code & 15))} << 8 * i;
    }
    return codes;
  }

  static std::uint32_t multiply_f16(std::uint32_t pair, std::uint32_t factors) {
    const auto half = [](std::uint32_t word, int i) { return f16_to_f32(static_cast<std::uint16_t>(word >> 16 * i)); };
    return pack_f16(half(pair, 0) * half(factors, 0), half(pair, 1) * half(factors, 1));
  }
  static std::uint32_t multiply_bf16(std::uint32_t pair, std::uint32_t factors) {
    return multiply_pair<DType::bf16>(pair, factors);
  }
  /// Returns four of the 8 bytes low, high as a word; low's bytes come first.
  template <int a, int b, int c, int d>
  static std::uint32_t pick_bytes(std::uint32_t low, std::uint32_t high) {
    static_assert(((a | b | c | d) & ~7) == 0, "each byte that is picked is one of eight, 0 to 7");
    const std::uint64_t all = std::uint64_t{high} << 32 | low;
    const auto byte = [all](int i) { return static_cast<std::uint32_t>(all >> 8 * i & 0xffu); };
    return bytes(byte(a), byte(b), byte(c), byte(d));
  }
  static std::uint32_t permute_bytes(std::uint32_t low, std::uint32_t high, std::uint32_t selector) {
    const std::uint64_t all = std::uint64_t{high} << 32 | low;
    std::uint32_t word = 0;
    for (int i = 0; i < 4; ++i)
      word |= static_cast<std::uint32_t>(all >> 8 * (selector >> 4 * i & 7u) & 0xffu) << 8 * i;
    return word;
  }

 private:
  using Table = std::array<std::uint16_t, 256>;

  static std::uint32_t bytes(std::uint32_t a, std::uint32_t b, std::uint32_t c, std::uint32_t d) {
    return a | b << 8 | c << 16 | d << 24;
  }

  static Vec<std::uint32_t, 2> widened(std::uint32_t word, const Table& codes) {
    const auto at = [&](int byte) { return std::uint32_t{codes[word >> (8 * byte) & 0xffu]}; };
    return {{at(0) | at(1) << 16, at(2) | at(3) << 16}};
  }

  template <DType type>
  static std::uint32_t multiply_pair(std::uint32_t pair, std::uint32_t factors) {
    const auto half = [](std::uint32_t word, int i) {
      const auto bits = static_cast<std::uint16_t>(word >> 16 * i);
      return type == DType::bf16 ? bf16_to_f32(bits) : f16_to_f32(bits);
    };
    const float low = half(pair, 0) * half(factors, 0), high = half(pair, 1) * half(factors, 1);
    return type == DType::bf16 ? pack_bf16(low, high) : pack_f16(low, high);
  }

  /// Returns the first and third of each four values beside each other, and the second and fourth.
  static Chunk even_and_odd(const Chunk& values) {
    const auto low = [](std::uint32_t a, std::uint32_t b) { return (a & 0xffffu) | b << 16; };
    const auto high = [](std::uint32_t a, std::uint32_t b) { return a >> 16 | (b & 0xffff0000u); };
    return {
        {low(values[0], values[1]), high(values[0], values[1]), low(values[2], values[3]), high(values[2], values[3])}};
  }
  static Chunk widened_fp4(std::uint32_t word, std::uint16_t (*narrow)(float)) {
    Chunk pairs{};
    for (int i = 0; i < 8; ++i) {
      const auto code = static_cast<std::uint8_t>(word >> (i < 4 ? 8 * i : 8 * (i - 4) + 4) & 15u);
      pairs[i / 2] |= std::uint32_t{narrow(fp4_to_f32(code))} << 16 * (i % 2);
    }
    return pairs;
  }
  static Chunk widened_i4(std::uint32_t word, std::uint16_t (*narrow)(float), std::uint32_t zeros = 0) {
    Chunk pairs{};
    for (int i = 0; i < 8; ++i) {
      const int code = static_cast<int>(word >> (i < 4 ? 8 * i : 8 * (i - 4) + 4) & 15u);
      const int value = (code < 8 ? code : code - 16) - static_cast<int>(zeros);
      pairs[i / 2] |= static_cast<std::uint32_t>(narrow(static_cast<float>(value))) << 16 * (i % 2);
    }
    return pairs;
  }

  template <DType to>
  static constexpr Table table = [] {
    Table bits{};
    for (int code = 0; code < 256; ++code) {
      const float value = fp8_to_f32(Fp8, static_cast<std::uint8_t>(code));
      bits[code] = to == DType::f16 ? f32_to_f16(value) : f32_to_bf16(value);
    }
    return bits;
  }();
};

/// Primitives of chips that compare pairs.
template <bool pairs>
struct PairNumbers {};

template <>
struct PairNumbers<true> {
  template <DType type>
  static std::uint32_t larger_pair(std::uint32_t a, std::uint32_t b) {
    static_assert(type == DType::bf16 || type == DType::f16, "pairs are of bf16 or f16");
    return larger_half<type>(a & 0xffffu, b & 0xffffu) | larger_half<type>(a >> 16, b >> 16) << 16;
  }

 private:
  template <DType type>
  static std::uint32_t larger_half(std::uint32_t a, std::uint32_t b) {
    const auto value = [](std::uint32_t half) {
      const auto bits = static_cast<std::uint16_t>(half);
      return type == DType::bf16 ? bf16_to_f32(bits) : f16_to_f32(bits);
    };
    const float x = value(a), y = value(b);
    if (x != x) return y != y ? 0x7fffu : b;  // the NaN that the chip returns
    if (y != y) return a;
    if (x == y) return a >> 15 != 0 ? b : a;  // +0 is larger than -0
    return x > y ? a : b;
  }
};

/// Primitives of chips that take OCP MX's formats.
template <bool mx>
struct MxNumbers {};

template <>
struct MxNumbers<true> {
  static std::uint32_t pack_fp4(const Vec<float, 8>& v) {
    std::uint32_t word = 0;
    for (int e = 0; e < 8; ++e) word |= std::uint32_t{f32_to_fp4(v[e])} << 4 * e;
    return word;
  }
  static Vec<std::uint32_t, 6> pack_e2m3(const Vec<float, 32>& v) { return pack_fp6(DType::fp6_e2m3, v); }
  static Vec<std::uint32_t, 6> pack_e3m2(const Vec<float, 32>& v) { return pack_fp6(DType::fp6_e3m2, v); }

 private:
  static Vec<std::uint32_t, 6> pack_fp6(DType type, const Vec<float, 32>& v) {
    Vec<std::uint32_t, 6> words{};
    for (int i = 0; i < 32; ++i) {
      const std::uint64_t code = std::uint64_t{f32_to_fp6(type, v[i])} << 6 * i % 32;
      words[6 * i / 32] |= static_cast<std::uint32_t>(code);
      if (code >> 32) words[6 * i / 32 + 1] |= static_cast<std::uint32_t>(code >> 32);
    }
    return words;
  }
};

}  // namespace tilewave::host

#endif  // !TILEWAVE_ON_GPU_COMPILER
