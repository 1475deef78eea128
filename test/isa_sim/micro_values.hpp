// SPDX-License-Identifier: MIT
// Values of 8-, 6- and 4-bit floats, for tests: the definition in one line, by exponent and mantissa.
#pragma once

#include <cmath>

namespace tilewave::sim::test {

struct MicroFormat8 {
  int exponent, mantissa;
  bool fnuz = false;
};

/// Returns the value of a finite code.
inline double micro_value(MicroFormat8 f, unsigned code) {
  const int e = static_cast<int>(code >> f.mantissa) & ((1 << f.exponent) - 1),
            m = static_cast<int>(code) & ((1 << f.mantissa) - 1);
  const int bias = (1 << (f.exponent - 1)) - 1 + f.fnuz;
  const double magnitude = (m + (e ? 1 << f.mantissa : 0)) * std::exp2((e ? e : 1) - bias - f.mantissa);
  return code >> (f.exponent + f.mantissa) & 1 ? -magnitude : magnitude;
}

}  // namespace tilewave::sim::test
