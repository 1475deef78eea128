// SPDX-License-Identifier: MIT
// OCP MX's fp4 by its definition (OCP Microscaling Formats specification 1.0, section 5.3.3): a value table, and the
// nearest by brute force over it.
#pragma once

#include <cmath>

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

}  // namespace tilewave::test
