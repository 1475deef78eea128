// SPDX-License-Identifier: MIT
// Sums of references, which are most of the time of a test on the emulated device.
#pragma once

#include <cstdint>
#include <cstring>

namespace tilewave::reference {

/// Two doubles in a register of every x86-64 and AArch64, which a compiler that optimises little computes together
/// even so.
typedef double TwoDoubles [[gnu::vector_size(16)]];
typedef std::int64_t TwoWords [[gnu::vector_size(16)]];

/// Four doubles side by side.
struct FourDoubles {
  TwoDoubles low{}, high{};

  static FourDoubles at(const double* p) {
    TwoDoubles halves[2];
    std::memcpy(halves, p, sizeof(halves));
    return {halves[0], halves[1]};
  }
  static FourDoubles all(double x) {
    const TwoDoubles two{x, x};
    return {two, two};
  }
  void to(double* p) const { std::memcpy(p, this, sizeof(*this)); }
  friend FourDoubles operator+(const FourDoubles& a, const FourDoubles& b) { return {a.low + b.low, a.high + b.high}; }
  friend FourDoubles operator*(const FourDoubles& a, const FourDoubles& b) { return {a.low * b.low, a.high * b.high}; }
  FourDoubles& operator+=(const FourDoubles& b) {
    low += b.low, high += b.high;
    return *this;
  }
  double sum() const { return (low[0] + low[1]) + (high[0] + high[1]); }
};

/// Return the magnitude, and its larger one and what was the largest so far: a NaN is no larger than anything.
inline TwoDoubles magnitude(const TwoDoubles& x) {
  return reinterpret_cast<TwoDoubles>(reinterpret_cast<TwoWords>(x) & TwoWords{INT64_MAX, INT64_MAX});
}
inline FourDoubles magnitude(const FourDoubles& x) { return {magnitude(x.low), magnitude(x.high)}; }
inline void raise_to_magnitude(TwoDoubles& most, const TwoDoubles& x) {
  const TwoDoubles other = magnitude(x);
  const TwoWords larger = other > most;
  most = reinterpret_cast<TwoDoubles>((reinterpret_cast<TwoWords>(other) & larger) |
                                      (reinterpret_cast<TwoWords>(most) & ~larger));
}

/// Calls four(k) for each k that begins four below `count`, and one(k) for those that are left.
template <class Four, class One>
void for_four(std::int32_t count, const Four& four, const One& one) {
  std::int32_t k = 0;
  for (; k + 4 <= count; k += 4) four(k);
  for (; k < count; ++k) one(k);
}

}  // namespace tilewave::reference
