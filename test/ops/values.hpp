// SPDX-License-Identifier: MIT
// Loops over the values of tensors and over their products. Tests are not optimised, and these take most of the time of what they
// do themselves, so they stand in functions that test/optimised.cpp compiles.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "bench/harness/random.hpp"
#include "tilewave/core/dtype.hpp"

namespace tilewave::test {

/// The bits of a value in an element type of up to four bytes. For i8 the value is a whole number.
inline std::uint32_t bits_of_value(DType type, float value) {
  switch (type) {
    case DType::f32: return __builtin_bit_cast(std::uint32_t, value);
    case DType::f16: return f32_to_f16(value);
    case DType::bf16: return f32_to_bf16(value);
    case DType::i8: return static_cast<std::uint8_t>(static_cast<std::int8_t>(value));
    default: return f32_to_fp8(type, value);
  }
}

/// Writes `count` values as elements: value i to element i / unit * unit_stride + i % unit * step of `to`.
inline void put_values(DType type, void* to, const float* values, int count, int unit, std::int64_t unit_stride,
                       std::int64_t step = 1) {
  const int bytes = size_of(type);
  for (int first = 0; first < count; first += unit, to = static_cast<std::byte*>(to) + unit_stride * bytes) {
    for (int i = first; i < count && i < first + unit; ++i) {
      const std::uint32_t bits = bits_of_value(type, values[i]);
      std::memcpy(static_cast<std::byte*>(to) + (i - first) * step * bytes, &bits, bytes);
    }
  }
}
inline void put_values(DType type, void* to, const float* values, int count) {
  put_values(type, to, values, count, count, 0);
}

/// A value in (-1, 1), drawn from four coordinates and a place in their row. The last row's stream is kept.
inline float drawn_of_row(std::uint64_t a, std::uint64_t b, std::uint64_t c, std::uint64_t d, int place) {
  struct Stream {
    std::uint64_t a = 0, b = 0, c = 0, d = 0, key = bench::random_bits({0, 0, 0, 0});
  };
  thread_local constinit Stream last;
  if (last.a != a || last.b != b || last.c != c || last.d != d) last = {a, b, c, d, bench::random_bits({a, b, c, d})};
  return bench::random_uniform(last.key, static_cast<std::uint64_t>(place));
}

/// A sum of products, and the sum of their magnitudes.
struct DotProduct {
  double value = 0, magnitude = 0;
};
/// Multiplies two rows of bf16, the elements of which lie `a_step` and `b_step` apart.
inline DotProduct dot_of_bf16(const std::uint16_t* a, std::int64_t a_step, const std::uint16_t* b, std::int64_t b_step,
                              int count) {
  DotProduct sum;
  for (int i = 0; i < count; ++i) {
    const double term = double{bf16_to_f32(a[i * a_step])} * double{bf16_to_f32(b[i * b_step])};
    sum.value += term, sum.magnitude += std::abs(term);
  }
  return sum;
}

}  // namespace tilewave::test
