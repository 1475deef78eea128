// SPDX-License-Identifier: MIT
// Element types: the enum that names them, and bit-exact conversions that every room uses. They use __builtin_bit_cast,
// because std::bit_cast is a host function to nvcc.
#pragma once

#include <cstdint>
#include <string_view>

#include "tilewave/core/config.hpp"

namespace tilewave {

/// The two fp8 flavours are different types: e4m3fnuz (gfx942: bias 8, max 240, 0x80 is NaN) and OCP e4m3fn (gfx950,
/// sm90: bias 7, max 448, 0x7f and 0xff are NaN). fp4_e2m1, fp6_e2m3 and fp6_e3m2 are OCP MX's: they have no NaN and no
/// infinity. i4 is two's complement. e8m0 is a scale of MX: 2^(code - 127), and 0xff is NaN.
enum class DType : int { f32, f16, bf16, fp8_e4m3fn, fp8_e4m3fnuz, i8, fp4_e2m1, fp6_e2m3, fp6_e3m2, i4, e8m0 };

TILEWAVE_HOST_DEVICE constexpr bool is_fp6(DType t) { return t == DType::fp6_e2m3 || t == DType::fp6_e3m2; }
/// Returns the number of values in an element in memory. An element of fp4 or i4 is a byte with two values; fp4 has the
/// first in its low bits. An element of fp6 is three bytes with four values; value i is in bits 6 i to 6 i + 5. Columns
/// count values; strides and sizes count elements.
TILEWAVE_HOST_DEVICE constexpr int packing_of(DType t) {
  return is_fp6(t) ? 4 : t == DType::fp4_e2m1 || t == DType::i4 ? 2 : 1;
}
/// Returns the bytes of one element.
TILEWAVE_HOST_DEVICE constexpr int size_of(DType t) {
  return t == DType::f32 ? 4 : is_fp6(t) ? 3 : (t == DType::f16 || t == DType::bf16) ? 2 : 1;
}
/// Returns the fewest elements that are whole 16 bytes. Rows of matrix operands lie a multiple of that apart.
TILEWAVE_HOST_DEVICE constexpr int elements_of_unit(DType t) { return is_fp6(t) ? 16 : 16 / size_of(t); }
TILEWAVE_HOST_DEVICE constexpr bool is_fp8(DType t) { return t == DType::fp8_e4m3fn || t == DType::fp8_e4m3fnuz; }

/// Returns the largest finite value of an fp8 flavour, which amax quantisation maps the largest magnitude to.
constexpr float fp8_max(DType t) { return t == DType::fp8_e4m3fnuz ? 240.0f : 448.0f; }

constexpr std::string_view name_of(DType t) {
  switch (t) {
    case DType::f32: return "f32";
    case DType::f16: return "f16";
    case DType::bf16: return "bf16";
    case DType::fp8_e4m3fn: return "fp8_e4m3fn";
    case DType::fp8_e4m3fnuz: return "fp8_e4m3fnuz";
    case DType::i8: return "i8";
    case DType::fp4_e2m1: return "fp4_e2m1";
    case DType::fp6_e2m3: return "fp6_e2m3";
    case DType::fp6_e3m2: return "fp6_e3m2";
    case DType::i4: return "i4";
    case DType::e8m0: return "e8m0";
  }
  return "unknown";
}

TILEWAVE_HOST_DEVICE constexpr float bf16_to_f32(std::uint16_t bits) {
  return __builtin_bit_cast(float, static_cast<std::uint32_t>(bits) << 16);
}

/// Rounds to nearest, ties to even. NaN stays NaN (quiet).
TILEWAVE_HOST_DEVICE constexpr std::uint16_t f32_to_bf16(float value) {
  const std::uint32_t bits = __builtin_bit_cast(std::uint32_t, value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<std::uint16_t>((bits >> 16) | 0x40u);
  return static_cast<std::uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

/// Converts exactly, subnormals included. NaN stays NaN (quiet).
TILEWAVE_HOST_DEVICE constexpr float f16_to_f32(std::uint16_t bits) {
  const std::uint32_t sign = (bits & 0x8000u) << 16, exponent = (bits >> 10) & 31u, mantissa = bits & 0x3ffu;
  if (exponent == 0) {
    const float value = static_cast<float>(mantissa) * 0x1p-24f;
    return sign ? -value : value;
  }
  if (exponent == 31) {
    return __builtin_bit_cast(float, sign | 0x7f800000u | (mantissa ? 0x400000u | mantissa << 13 : 0u));
  }
  return __builtin_bit_cast(float, sign | (exponent + 112) << 23 | mantissa << 13);
}

/// Rounds to nearest, ties to even. The result is infinity from 65520 on, which is halfway beyond the largest. NaN
/// stays NaN (quiet).
TILEWAVE_HOST_DEVICE constexpr std::uint16_t f32_to_f16(float value) {
  const std::uint32_t bits = __builtin_bit_cast(std::uint32_t, value);
  const std::uint32_t sign = (bits >> 16) & 0x8000u, magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return static_cast<std::uint16_t>(sign | 0x7e00u | ((magnitude >> 13) & 0x3ffu));
  if (magnitude >= 0x477ff000u) return static_cast<std::uint16_t>(sign | 0x7c00u);
  const int exponent = static_cast<int>(magnitude >> 23) - 127;
  // A normal result keeps 10 mantissa bits; below 2^-14 the step is fixed, so more bits are dropped.
  const int dropped = 13 + (exponent < -14 ? -14 - exponent : 0);
  if (dropped > 24) return static_cast<std::uint16_t>(sign);
  const std::uint32_t significand = (magnitude & 0x7fffffu) | 0x800000u;
  const std::uint32_t kept = significand >> dropped, rest = significand & ((1u << dropped) - 1u);
  const std::uint32_t half = 1u << (dropped - 1);
  const std::uint32_t rounded = kept + ((rest > half || (rest == half && (kept & 1u))) ? 1u : 0u);
  // A carry out of the mantissa moves into the exponent by itself.
  const std::uint32_t code = exponent < -14 ? rounded : rounded + (static_cast<std::uint32_t>(exponent + 14) << 10);
  return static_cast<std::uint16_t>(sign | code);
}

/// Decodes one fp8 code. Every code is exactly representable in bf16, so this is also the exact bf16 value.
TILEWAVE_HOST_DEVICE constexpr float fp8_to_f32(DType type, std::uint8_t code) {
  const bool fnuz = type == DType::fp8_e4m3fnuz;
  const std::uint32_t magnitude = code & 0x7fu;
  if (fnuz ? code == 0x80u : magnitude == 0x7fu) return __builtin_bit_cast(float, 0x7fc00000u);
  const int exponent = static_cast<int>(magnitude >> 3), mantissa = static_cast<int>(magnitude & 7u);
  const int bias = fnuz ? 8 : 7;
  // The value is 2^(e - bias) * 1.mmm, or 2^(1 - bias) * 0.mmm; both are (8 or 0 + mmm) * 2^(max(e, 1) - bias - 3).
  const int power = (exponent > 0 ? exponent : 1) - bias - 3;
  const float unit = __builtin_bit_cast(float, static_cast<std::uint32_t>(power + 127) << 23);
  const float value = static_cast<float>((exponent > 0 ? 8 : 0) + mantissa) * unit;
  return (code & 0x80u) ? -value : value;
}

/// Encodes with round to nearest, ties to even, and saturates at fp8_max. Any NaN becomes 0x7f (e4m3fn) or 0x80
/// (e4m3fnuz), without its sign, as sm90's conversion does it.
TILEWAVE_HOST_DEVICE constexpr std::uint8_t f32_to_fp8(DType type, float value) {
  const bool fnuz = type == DType::fp8_e4m3fnuz;
  const std::uint32_t bits = __builtin_bit_cast(std::uint32_t, value);
  const std::uint32_t sign = (bits >> 24) & 0x80u, magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return fnuz ? 0x80 : 0x7f;
  const std::uint32_t largest = fnuz ? 0x7fu : 0x7eu;
  const int bias = fnuz ? 8 : 7;
  const int exponent = static_cast<int>(magnitude >> 23) - 127;
  // A normal result keeps 3 mantissa bits; below 2^(1-bias) the step is fixed, so more bits are dropped.
  const int dropped = 20 + (exponent < 1 - bias ? (1 - bias) - exponent : 0);
  std::uint32_t code = 0;
  if (dropped <= 24) {
    const std::uint32_t significand = (magnitude & 0x7fffffu) | 0x800000u;
    const std::uint32_t kept = significand >> dropped, rest = significand & ((1u << dropped) - 1u);
    const std::uint32_t half = 1u << (dropped - 1);
    const std::uint32_t rounded = kept + ((rest > half || (rest == half && (kept & 1u))) ? 1u : 0u);
    // A carry out of the mantissa moves into the exponent by itself.
    code = exponent < 1 - bias ? rounded : rounded + (static_cast<std::uint32_t>(exponent + bias - 1) << 3);
  }
  if (exponent > 8 || code > largest) code = largest;
  if (fnuz && code == 0) return 0;  // this flavour has no negative zero: 0x80 is its NaN
  return static_cast<std::uint8_t>(code | sign);
}

/// Decodes one fp4 code, which is the low four bits: 0, 0.5, 1, 1.5, 2, 3, 4, 6 and a sign.
TILEWAVE_HOST_DEVICE constexpr float fp4_to_f32(std::uint8_t code) {
  const int exponent = code >> 1 & 3, mantissa = code & 1;
  const int halves = exponent > 0 ? (2 + mantissa) << (exponent - 1) : mantissa;
  const float value = 0.5f * static_cast<float>(halves);
  return (code & 8u) ? -value : value;
}

/// Encodes with round to nearest, ties to even, and saturates at 6. There is no NaN; the code of one is unspecified.
TILEWAVE_HOST_DEVICE constexpr std::uint8_t f32_to_fp4(float value) {
  const std::uint32_t bits = __builtin_bit_cast(std::uint32_t, value);
  const float magnitude = __builtin_bit_cast(float, bits & 0x7fffffffu);
  const int code = (magnitude > 0.25f) + (magnitude >= 0.75f) + (magnitude > 1.25f) + (magnitude >= 1.75f) +
                   (magnitude > 2.5f) + (magnitude >= 3.5f) + (magnitude > 5.0f);
  return static_cast<std::uint8_t>(static_cast<std::uint32_t>(code) | (bits >> 28 & 8u));
}

/// Decodes one fp6 code, which is the low six bits: up to 7.5 in steps of 0.125 (e2m3, bias 1) or up to 28 in steps of
/// 0.0625 (e3m2, bias 3).
TILEWAVE_HOST_DEVICE constexpr float fp6_to_f32(DType type, std::uint8_t code) {
  const int digits = type == DType::fp6_e2m3 ? 3 : 2, bias = type == DType::fp6_e2m3 ? 1 : 3;
  const int exponent = (code & 31) >> digits, mantissa = code & ((1 << digits) - 1);
  const int power = (exponent > 0 ? exponent : 1) - bias - digits;
  const float unit = __builtin_bit_cast(float, static_cast<std::uint32_t>(power + 127) << 23);
  const float value = static_cast<float>((exponent > 0 ? 1 << digits : 0) + mantissa) * unit;
  return (code & 32u) ? -value : value;
}

/// Encodes with round to nearest, ties to even, and saturates at 7.5 or 28. There is no NaN; the code of one is
/// unspecified.
TILEWAVE_HOST_DEVICE constexpr std::uint8_t f32_to_fp6(DType type, float value) {
  const int digits = type == DType::fp6_e2m3 ? 3 : 2, bias = type == DType::fp6_e2m3 ? 1 : 3;
  const std::uint32_t bits = __builtin_bit_cast(std::uint32_t, value), sign = bits >> 26 & 32u;
  const int exponent = static_cast<int>(bits >> 23 & 255u) - 127;
  // A normal result keeps `digits` mantissa bits; below 2^(1-bias) the step is fixed, so more bits are dropped.
  const int dropped = 23 - digits + (exponent < 1 - bias ? (1 - bias) - exponent : 0);
  std::uint32_t code = 0;
  if (exponent > 4) {
    code = 31;
  } else if (dropped <= 24) {
    const std::uint32_t significand = (bits & 0x7fffffu) | 0x800000u;
    const std::uint32_t kept = significand >> dropped, rest = significand & ((1u << dropped) - 1u);
    const std::uint32_t half = 1u << (dropped - 1);
    const std::uint32_t rounded = kept + ((rest > half || (rest == half && (kept & 1u))) ? 1u : 0u);
    // A carry out of the mantissa moves into the exponent by itself.
    code = exponent < 1 - bias ? rounded : rounded + (static_cast<std::uint32_t>(exponent + bias - 1) << digits);
  }
  return static_cast<std::uint8_t>((code > 31 ? 31 : code) | sign);
}

/// Decodes an e8m0 code, a scale of OCP MX.
TILEWAVE_HOST_DEVICE constexpr float e8m0_to_f32(std::uint8_t code) {
  // 2^-127 is subnormal. Of 0xff the second term makes the infinity a NaN.
  const std::uint32_t power = std::uint32_t{code} << 23, least = 0x00400000u;
  const std::uint32_t bits = (power > least ? power : least) | ((code + 1u) & 256u) << 14;
  return __builtin_bit_cast(float, bits);
}

}  // namespace tilewave
