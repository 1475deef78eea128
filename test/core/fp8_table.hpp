// SPDX-License-Identifier: MIT
// Both fp8 flavours by the formats' definitions (OCP 8-bit floating point specification 1.0, section 5; the FNUZ variant
// as in arXiv:2206.02915): a value table built with ldexp, and a search for the nearest value in it.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "tilewave/core/dtype.hpp"

namespace tilewave::test {

inline double by_definition(DType type, int code) {
  const int sign = code >> 7, exponent = (code >> 3) & 15, mantissa = code & 7;
  double magnitude;
  if (type == DType::fp8_e4m3fn) {
    if (exponent == 15 && mantissa == 7) return std::nan("");
    magnitude = exponent == 0 ? std::ldexp(mantissa, -9) : std::ldexp(1.0 + mantissa / 8.0, exponent - 7);
  } else {
    if (code == 0x80) return std::nan("");
    magnitude = exponent == 0 ? std::ldexp(mantissa, -10) : std::ldexp(1.0 + mantissa / 8.0, exponent - 8);
  }
  return sign ? -magnitude : magnitude;
}

inline const std::array<double, 128>& magnitudes(DType type) {
  const auto table = [](DType t) {
    std::array<double, 128> values{};
    for (int code = 0; code < 0x80; ++code) values[code] = by_definition(t, code);
    return values;
  };
  static const std::array<double, 128> fn = table(DType::fp8_e4m3fn), fnuz = table(DType::fp8_e4m3fnuz);
  return type == DType::fp8_e4m3fn ? fn : fnuz;
}

// The nearest finite code; of two equally near the one with an even mantissa; beyond the largest, the largest.
inline int nearest_code(DType type, float value) {
  const bool fnuz = type == DType::fp8_e4m3fnuz;
  const int sign = std::signbit(value) ? 0x80 : 0;
  // The two codes around it: magnitudes grow with codes up to the largest, and NaN is below none.
  const std::array<double, 128>& of_codes = magnitudes(type);
  const auto end = of_codes.begin() + (fnuz ? 0x80 : 0x7f);
  // Saturating: beyond the largest value the largest is the answer.
  const double magnitude = std::fmin(std::fabs(static_cast<double>(value)), *(end - 1));
  const auto above = std::lower_bound(of_codes.begin(), end, magnitude);
  const int code = static_cast<int>(above - of_codes.begin());
  int best = code;
  if (code > 0) {
    const double down = magnitude - of_codes[code - 1], up = of_codes[code] - magnitude;
    if (down < up || (down == up && code % 2 != 0)) best = code - 1;
  }
  return fnuz && best == 0 ? 0 : best | sign;
}

}  // namespace tilewave::test
