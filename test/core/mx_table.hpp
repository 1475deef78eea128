// SPDX-License-Identifier: MIT
// OCP MX's fp4 and fp6 by their definitions (OCP Microscaling Formats specification 1.0, sections 5.3.3 and 5.3.2): a
// value table, or the fields of a code, and the nearest by brute force.
#pragma once

#include <cmath>

#include "tilewave/core/dtype.hpp"

namespace tilewave::test {

inline constexpr double fp4_magnitudes[] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};

inline double fp4_by_definition(int code) { return (code & 8 ? -1 : 1) * fp4_magnitudes[code & 7]; }

/// The code whose value is nearest, of two as near the even one; 6 for what is beyond it.
inline int nearest_fp4(double value) {
  const double magnitude = std::fmin(std::abs(value), 6);
  int best = 0;
  for (int code = 1; code < 8; ++code) {
    const double error = std::abs(magnitude - fp4_magnitudes[code]);
    const double least = std::abs(magnitude - fp4_magnitudes[best]);
    if (error < least || (error == least && code % 2 == 0)) best = code;
  }
  return best + (std::signbit(value) ? 8 : 0);
}

/// E2M3: bias 1, largest 7.5. E3M2: bias 3, largest 28.
inline double fp6_by_definition(DType type, int code) {
  const int digits = type == DType::fp6_e2m3 ? 3 : 2, bias = type == DType::fp6_e2m3 ? 1 : 3;
  const int exponent = (code & 31) >> digits;
  const double fraction = (code & ((1 << digits) - 1)) / double(1 << digits);
  const double magnitude = exponent == 0 ? std::ldexp(fraction, 1 - bias) : std::ldexp(1 + fraction, exponent - bias);
  return code & 32 ? -magnitude : magnitude;
}
inline int nearest_fp6(DType type, double value) {
  const double magnitude = std::fmin(std::abs(value), fp6_by_definition(type, 31));
  int best = 0;
  for (int code = 1; code < 32; ++code) {
    const double error = std::abs(magnitude - fp6_by_definition(type, code));
    const double least = std::abs(magnitude - fp6_by_definition(type, best));
    if (error < least || (error == least && code % 2 == 0)) best = code;
  }
  return best + (std::signbit(value) ? 32 : 0);
}

}  // namespace tilewave::test
