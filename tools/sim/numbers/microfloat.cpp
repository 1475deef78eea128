// SPDX-License-Identifier: MIT
#include "sim/numbers/microfloat.hpp"

#include <algorithm>
#include <bit>
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
  const int largest = format.largest(), m = format.mantissa_bits, bias = format.bias();
  const auto sign = static_cast<int>(std::signbit(value) ? format.sign() : 0u);
  const auto signed_code = [&](int code) { return static_cast<std::uint8_t>(format.fnuz && !code ? 0 : sign | code); };
  if (std::isnan(value))  // the MX types have none; the largest stands for it
    return format.fnuz ? std::uint8_t{0x80} : signed_code(format.bits() == 8 ? 0x7f : largest);
  const double x = std::fabs(value);
  const auto power = [](int exponent) {
    return std::bit_cast<double>(static_cast<std::uint64_t>(exponent + 1023) << 52);
  };
  // The first number above the largest, were there one: what rounds to it overflows.
  const int top = largest >> m, top_mantissa = (1 << m) + (largest & ((1 << m) - 1));
  const double over = x * power(bias + m - top) - top_mantissa;  // in steps of the largest
  if (over >= (rounding.seed ? 1 : 0.5)) {
    if (rounding.saturate || format.bits() < 8) return signed_code(largest);
    return format.fnuz ? std::uint8_t{0x80} : signed_code(format.mantissa_bits == 2 ? 0x7c : 0x7f);
  }
  // In steps of the numbers around x, which below the smallest normal number are those of that: all exact.
  const int exponent = std::max(static_cast<int>(std::bit_cast<std::uint64_t>(x) >> 52) - 1023, 1 - bias);
  const double steps = x * power(m - exponent);
  const int whole = static_cast<int>(steps);
  int code = ((exponent + bias - 1) << m) + whole;
  if (code < largest && rounds_up(steps - whole, code, rounding)) ++code;
  return signed_code(code);
}

}  // namespace tilewave::sim
