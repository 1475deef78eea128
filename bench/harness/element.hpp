// SPDX-License-Identifier: MIT
// Elements of any type on the host: writing one, the byte that poisons one, and the error of rounding to one.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <string_view>

#include "tilewave/core/dtype.hpp"

namespace tilewave::bench {

/// Returns the byte that makes a NaN of every float type when it is repeated. It is all ones, except that 0x80 is
/// e4m3fnuz's only NaN. i8 has no NaN; -128 is a code that no quantisation here makes.
constexpr int poison_byte(DType type) { return type == DType::fp8_e4m3fnuz || type == DType::i8 ? 0x80 : 0xff; }

/// Returns the bytes of an element by its name: that of a DType, i32, or bytes.
inline int bytes_of_element(std::string_view name) {
  return name == "f32" || name == "i32" ? 4 : name == "f16" || name == "bf16" ? 2 : 1;
}

/// Sets element `index` of an array to the one nearest to `value`.
inline void set_element(DType type, void* data, std::int64_t index, float value) {
  switch (type) {
    case DType::f16: static_cast<std::uint16_t*>(data)[index] = f32_to_f16(value); break;
    case DType::bf16: static_cast<std::uint16_t*>(data)[index] = f32_to_bf16(value); break;
    case DType::f32: static_cast<float*>(data)[index] = value; break;
    case DType::i8: static_cast<std::int8_t*>(data)[index] = static_cast<std::int8_t>(std::lrint(value)); break;
    default: static_cast<std::uint8_t*>(data)[index] = f32_to_fp8(type, value);
  }
}

/// Returns half a step of a float type at a value, which is the largest error of rounding to nearest.
inline double half_step(DType type, double value) {
  const int bits = type == DType::f32        ? 24
                   : type == DType::f16      ? 11
                   : type == DType::bf16     ? 8
                   : type == DType::fp4_e2m1 ? 2
                   : type == DType::fp6_e3m2 ? 3
                                             : 4;
  const double smallest = type == DType::f16            ? 0x1p-25
                          : type == DType::fp8_e4m3fn   ? 0x1p-10
                          : type == DType::fp8_e4m3fnuz ? 0x1p-11
                          : type == DType::fp4_e2m1     ? 0x1p-2
                          : type == DType::fp6_e2m3     ? 0x1p-4
                          : type == DType::fp6_e3m2     ? 0x1p-5
                                                        : 0;
  if (value == 0 || !std::isfinite(value)) return smallest;
  // The exponent alone: a power of two. ldexp and ilogb took an eighth of the time in which GEMM is verified.
  const auto exponent = std::bit_cast<std::uint64_t>(value) & 0x7ff0'0000'0000'0000;
  return std::max(smallest, std::bit_cast<double>(exponent) * std::bit_cast<double>(std::uint64_t(1023 - bits) << 52));
}

}  // namespace tilewave::bench
