// SPDX-License-Identifier: MIT
// Helpers that host and device code share: integers, and the operations of a reduction.
#pragma once

#include <cstdint>

#include "tilewave/core/config.hpp"

namespace tilewave {

template <class T>
TILEWAVE_HOST_DEVICE constexpr T ceil_div(T a, T b) {
  return (a + b - 1) / b;
}
template <class T>
TILEWAVE_HOST_DEVICE constexpr T align_down(T a, T b) {
  return a / b * b;
}
template <class T>
TILEWAVE_HOST_DEVICE constexpr T align_up(T a, T b) {
  return ceil_div(a, b) * b;
}
/// True if no two of a x b vectors share an element. Each is `width` elements wide, and they lie these strides apart;
/// those of one extent must lie inside the steps of the other. Strides may be anything; Region tells whether their
/// multiples can be addressed.
constexpr bool disjoint(std::int64_t a_stride, std::int64_t a, std::int64_t b_stride, std::int64_t b,
                        std::int64_t width) {
  const auto inside = [&](std::int64_t inner, std::int64_t count, std::int64_t outer, std::int64_t outer_count) {
    const bool fits = outer >= width && (count == 1 || (inner > 0 && count - 1 <= (outer - width) / inner));
    return (count == 1 || inner >= width) && (outer_count == 1 || fits);
  };
  return inside(a_stride, a, b_stride, b) || inside(b_stride, b, a_stride, a);
}
template <class T>
TILEWAVE_HOST_DEVICE constexpr T min_of(T a, T b) {
  return a < b ? a : b;
}
template <class T>
TILEWAVE_HOST_DEVICE constexpr T max_of(T a, T b) {
  return a > b ? a : b;
}

TILEWAVE_HOST_DEVICE constexpr bool is_power_of_two(int n) { return n > 0 && (n & (n - 1)) == 0; }

/// Returns the largest divisor of n that is at most `limit`. Both are positive.
TILEWAVE_HOST_DEVICE constexpr int largest_divisor(int n, int limit) {
  int d = min_of(n, limit);
  while (n % d != 0) --d;
  return d;
}

/// Returns |x| of any float, NaN included.
TILEWAVE_HOST_DEVICE constexpr float abs_of(float x) {
  return __builtin_bit_cast(float, __builtin_bit_cast(std::uint32_t, x) & 0x7fffffffu);
}

/// Returns a b + c, rounded once in every room.
TILEWAVE_HOST_DEVICE float fused(float a, float b, float c) { return __builtin_fmaf(a, b, c); }

inline constexpr float log2_e = 1.4426950408889634f;
inline constexpr float ln_2 = 0.6931471805599453f;
inline constexpr float minus_infinity = -__builtin_inff();

/// The operations of Backend::reduce. Both are commutative to the bit, so all lanes of a group end with the same
/// result.
struct Sum {
  TILEWAVE_HOST_DEVICE constexpr float operator()(float a, float b) const { return a + b; }
};
/// A number wins over a NaN, and +0 wins over -0.
struct Max {
  TILEWAVE_HOST_DEVICE float operator()(float a, float b) const {
#if TILEWAVE_ON_GPU_COMPILER
    return __builtin_fmaxf(a, b);
#else
    if (a == b) return __builtin_signbit(a) ? b : a;  // the C library's fmaxf returns either zero
    return a > b || b != b ? a : b;
#endif
  }
};

/// Divides by a run-time constant with one multiply and shift (Granlund and Montgomery 1994, figure 4.1 with the
/// round-up multiplier). It is exact for every 0 <= n < 2^31 and 1 <= d < 2^31.
struct FastDiv {
  std::uint32_t multiplier = 0;
  std::uint32_t shift = 0;
  std::int32_t divisor = 1;

  static constexpr FastDiv by(std::int32_t d) {
    FastDiv f;
    f.divisor = d;
    while ((std::uint64_t{1} << f.shift) < static_cast<std::uint64_t>(d)) ++f.shift;
    // m = ceil(2^(31 + shift) / d) is at most 2^32 - 1 for d > 1 that is no power of two, and 2^31 for a power of two.
    f.multiplier = static_cast<std::uint32_t>(((std::uint64_t{1} << (31 + f.shift)) + d - 1) / d);
    return f;
  }
  TILEWAVE_HOST_DEVICE constexpr std::int32_t quotient(std::int32_t n) const {
    const std::uint64_t product = static_cast<std::uint64_t>(multiplier) * static_cast<std::uint32_t>(n);
    return static_cast<std::int32_t>(static_cast<std::uint32_t>(product >> 31) >> shift);
  }
  TILEWAVE_HOST_DEVICE constexpr std::int32_t remainder(std::int32_t n) const { return n - quotient(n) * divisor; }
};

}  // namespace tilewave
