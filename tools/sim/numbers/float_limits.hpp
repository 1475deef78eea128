// SPDX-License-Identifier: MIT
// Smallest, largest and middle of real numbers as the vector ALU chooses them.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>

namespace tilewave::sim {

inline bool signalling(float x) { return std::isnan(x) && !(std::bit_cast<std::uint32_t>(x) & 0x400000u); }
inline bool signalling(double x) { return std::isnan(x) && !(std::bit_cast<std::uint64_t>(x) >> 51 & 1); }

/// IEEE mode: a signalling NaN becomes quiet and wins; otherwise the number wins over a NaN; -0 < +0.
template <class T>
T minimum(T a, T b) {
  if (signalling(a)) return a + T(0);
  if (signalling(b)) return b + T(0);
  if (std::isnan(a)) return b;
  if (std::isnan(b)) return a;
  if (a == b) return std::signbit(a) ? a : b;
  return a < b ? a : b;
}
template <class T>
T maximum(T a, T b) {
  if (signalling(a)) return a + T(0);
  if (signalling(b)) return b + T(0);
  if (std::isnan(a)) return b;
  if (std::isnan(b)) return a;
  if (a == b) return std::signbit(a) ? b : a;
  return a > b ? a : b;
}
inline float median(float a, float b, float c) {
  if (std::isnan(a) || std::isnan(b) || std::isnan(c)) return minimum(minimum(a, b), c);
  return std::max(std::min(a, b), std::min(std::max(a, b), c));
}

}  // namespace tilewave::sim
