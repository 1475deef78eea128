// SPDX-License-Identifier: MIT
#include "sim/numbers/microfloat.hpp"

#include <algorithm>
#include <cmath>

namespace tilewave::sim {
namespace {

float decode(MicroFormat format, std::uint32_t code) {
  const int m = format.mantissa_bits;
  const std::uint32_t magnitude = code & (format.sign() - 1);
  const bool negative = code & format.sign();
  const auto exponent = static_cast<int>(magnitude >> m);
  const auto mantissa = static_cast<int>(magnitude & ((1u << m) - 1));
  if (format.fnuz) {
    if (code == 0x80) return NAN;
  } else if (format.bits() == 8 && static_cast<int>(magnitude) > format.largest()) {
    return m == 3 || mantissa ? NAN : negative ? -INFINITY : INFINITY;
  }
  const double value = exponent ? std::ldexp((1 << m) + mantissa, exponent - format.bias() - m)
                                : std::ldexp(mantissa, 1 - format.bias() - m);
  return static_cast<float>(negative ? -value : value);
}

constexpr MicroFormat formats[] = {{4, 3, false}, {5, 2, false}, {4, 3, true}, {5, 2, true},
                                   fp6_format,    bf6_format,    fp4_format};

bool rounds_up(double fraction, int code, const Rounding& rounding) {
  if (!rounding.seed) return fraction > 0.5 || (fraction == 0.5 && (code & 1));
  const std::uint32_t bits = *rounding.seed >> (32 - rounding.seed_bits);
  return fraction + std::ldexp(bits, -rounding.seed_bits) >= 1;
}

}  // namespace

const std::array<float, 256>& micro_values(MicroFormat format) {
  static const auto tables = [] {
    std::array<std::array<float, 256>, std::size(formats)> made{};
    for (std::size_t i = 0; i < std::size(formats); ++i)
      for (std::uint32_t code = 0; code < 256; ++code)
        made[i][code] = decode(formats[i], code & (2 * formats[i].sign() - 1));
    return made;
  }();
  return tables[static_cast<std::size_t>(std::find(std::begin(formats), std::end(formats), format) - formats)];
}

std::uint8_t micro_encode(MicroFormat format, double value, const Rounding& rounding) {
  const auto& values = micro_values(format);
  const int largest = format.largest();
  const auto sign = static_cast<int>(std::signbit(value) ? format.sign() : 0u);
  const auto signed_code = [&](int code) { return static_cast<std::uint8_t>(format.fnuz && !code ? 0 : sign | code); };
  if (std::isnan(value))  // the MX types have none; the largest stands for it
    return format.fnuz ? std::uint8_t{0x80} : signed_code(format.bits() == 8 ? 0x7f : largest);
  const double x = std::fabs(value);
  // The first number above the largest, were there one: what rounds to it overflows.
  const double ulp = static_cast<double>(values[largest]) - values[largest - 1];
  const double over = (x - values[largest]) / ulp;
  if (over >= (rounding.seed ? 1 : 0.5)) {
    if (rounding.saturate || format.bits() < 8) return signed_code(largest);
    return format.fnuz ? std::uint8_t{0x80} : signed_code(format.mantissa_bits == 2 ? 0x7c : 0x7f);
  }
  const auto above = std::upper_bound(values.begin(), values.begin() + largest + 1, x,
                                      [](double a, float b) { return a < static_cast<double>(b); });
  int code = static_cast<int>(above - values.begin()) - 1;
  if (code < largest && rounds_up((x - values[code]) / (double{values[code + 1]} - values[code]), code, rounding))
    ++code;
  return signed_code(code);
}

}  // namespace tilewave::sim
