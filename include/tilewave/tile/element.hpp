// SPDX-License-Identifier: MIT
// Packed elements in registers: the bits that one access of a lane moves, and their values in f32.
#pragma once

#include <cstdint>
#include <type_traits>

#include "tilewave/arch/backend.hpp"
#include "tilewave/core/dtype.hpp"
#include "tilewave/core/math.hpp"
#include "tilewave/core/vec.hpp"

namespace tilewave {

/// The bits of one element of type T. An element of fp4 has two values, one of fp6 has four.
template <DType T>
using Storage = typename std::conditional_t<is_fp6(T), std::enable_if<true, Vec<std::uint8_t, 3>>,
                                            detail::Unsigned<is_fp6(T) ? 1 : size_of(T)>>::type;

/// Returns the bytes of n values of type T.
TILEWAVE_HOST_DEVICE constexpr int bytes_of(DType t, int n) { return n * size_of(t) / packing_of(t); }

/// n values of type T that one access moves; bytes_of(T, n) is 1, 2, 4, 8 or 16. They are stored as words where they
/// fill at least one, because compilers emit a move for every narrower member.
template <DType T, int n>
using Packed = Vec<UnsignedOf<bytes_of(T, n) < 4 ? bytes_of(T, n) : 4>, bytes_of(T, n) < 4 ? 1 : bytes_of(T, n) / 4>;

/// Returns the values of packed f32, f16, bf16, fp8, i8 or e8m0 elements. Every conversion is exact.
template <class B, DType T, int n>
TILEWAVE_DEVICE Vec<float, n> widen(const Packed<T, n>& packed) {
  Vec<float, n> values;
  if constexpr (T == DType::f32) {
    values = __builtin_bit_cast(Vec<float, n>, packed);
  } else if constexpr (T == DType::e8m0) {
    constexpr int per_word = min_of(n, 4);
    TILEWAVE_UNROLL
    for (int i = 0; i < n; ++i) {
      // This is e8m0_to_f32 in fewer instructions: of 0xff the product makes the infinity a NaN.
      const std::uint32_t word = packed[i / per_word];
      std::uint32_t bits = (word >> i % per_word * 8 & 255u) << 23;
      bits = max_of(bits, 0x00400000u);
      values[i] = __builtin_bit_cast(float, bits);
      values[i] = values[i] * 0.0f + values[i];
    }
  } else if constexpr (n == 1) {
    const auto bits = static_cast<std::uint32_t>(packed[0]);
    if constexpr (T == DType::bf16) {
      values[0] = bf16_to_f32(packed[0]);
    } else if constexpr (T == DType::f16) {
      values[0] = B::widen_f16(bits)[0];
    } else if constexpr (T == DType::i8) {
      values[0] = static_cast<float>(static_cast<std::int8_t>(packed[0]));
    } else {
      values[0] = __builtin_bit_cast(float, B::widen_fp8(bits)[0] << 16);
    }
  } else {
    constexpr int per_word = 4 / size_of(T);
    TILEWAVE_UNROLL
    for (int w = 0; w < n / per_word; ++w) {
      if constexpr (T == DType::f16) {
        const Vec<float, 2> pair = B::widen_f16(packed[w]);
        values[2 * w] = pair[0];
        values[2 * w + 1] = pair[1];
      } else if constexpr (T == DType::i8) {
        TILEWAVE_UNROLL
        for (int e = 0; e < 4; ++e) {
          values[4 * w + e] = static_cast<float>(static_cast<std::int32_t>(packed[w] << (24 - 8 * e)) >> 24);
        }
      } else {
        Vec<std::uint32_t, per_word / 2> pairs;
        if constexpr (T == DType::bf16) {
          pairs[0] = packed[w];
        } else {
          pairs = B::widen_fp8(packed[w]);
        }
        TILEWAVE_UNROLL
        for (int p = 0; p < per_word / 2; ++p) {
          values[per_word * w + 2 * p] = __builtin_bit_cast(float, pairs[p] << 16);
          values[per_word * w + 2 * p + 1] = __builtin_bit_cast(float, pairs[p] & 0xffff0000u);
        }
      }
    }
  }
  return values;
}

/// Rounds values to nearest, ties to even. fp8, fp6 and fp4 saturate; i8 truncates and saturates at +-127. n is a
/// multiple of 8 for fp4, and 32 for fp6.
template <class B, DType T, int n>
TILEWAVE_DEVICE Packed<T, n> narrow(const Vec<float, n>& values) {
  using P = Packed<T, n>;
  if constexpr (T == DType::f32) {
    return __builtin_bit_cast(P, values);
  } else if constexpr (is_fp6(T)) {
    static_assert(n == 32, "fp6 codes are made of 32 values at once");
    if constexpr (T == DType::fp6_e2m3) return B::pack_e2m3(values);
    if constexpr (T == DType::fp6_e3m2) return B::pack_e3m2(values);
  } else {
    constexpr int per_word = 4 / size_of(T) * packing_of(T), words = (n + per_word - 1) / per_word;
    static_assert(n == 1 || n == 2 || n % per_word == 0, "codes fill whole words, or there are one or two");
    P out;
    TILEWAVE_UNROLL
    for (int w = 0; w < words; ++w) {
      Vec<float, per_word> v;
      TILEWAVE_UNROLL
      for (int e = 0; e < per_word; ++e)
        v[e] = per_word * w + e < n ? values[per_word * w + e < n ? per_word * w + e : 0] : 0.0f;
      std::uint32_t word;
      if constexpr (T == DType::bf16) {
        word = B::round_bf16(v[0], v[1]);
      } else if constexpr (T == DType::f16) {
        word = B::pack_f16(v[0], v[1]);
      } else if constexpr (T == DType::i8) {
        word = B::pack_i8(v[0], v[1], v[2], v[3]);
      } else if constexpr (T == DType::fp4_e2m1) {
        word = B::pack_fp4(v);
      } else {
        word = B::pack_fp8(v[0], v[1], v[2], v[3]);
      }
      out[w] = static_cast<std::decay_t<decltype(out[w])>>(word);
    }
    return out;
  }
}

}  // namespace tilewave
