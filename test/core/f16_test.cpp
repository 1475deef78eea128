// SPDX-License-Identifier: MIT
// IEEE half precision: values by definition (IEEE 754-2019, section 3.4) with ldexp, rounding against the tie between
// each two neighbours, and against the compiler's own type where it has one.
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "test/catch_compat.hpp"
#include "tilewave/core/dtype.hpp"

namespace {

using namespace tilewave;

constexpr std::uint16_t infinity_code = 0x7c00;

double by_definition(int code) {
  const int exponent = code >> 10 & 31, mantissa = code & 0x3ff;
  const double magnitude = exponent == 0 ? std::ldexp(mantissa, -24) : std::ldexp(1024 + mantissa, exponent - 25);
  return code & 0x8000 ? -magnitude : magnitude;
}

}  // namespace

TEST_CASE("every f16 code has the value of the format and rounds back to itself") {
  int nans = 0;
  for (int code = 0; code < 0x10000; ++code) {
    const auto bits = static_cast<std::uint16_t>(code);
    const float value = f16_to_f32(bits);
    if ((code & 0x7fff) > infinity_code) {
      ++nans;
      const std::uint16_t back = f32_to_f16(value);
      if (std::isnan(value) && back == (code | 0x200)) continue;
      CAPTURE(code, value, back);
      CHECK(std::isnan(value));
      CHECK(back == (code | 0x200));  // quiet, with its sign and payload
      continue;
    }
    const bool infinite = (code & 0x7fff) == infinity_code;
    const double expected = infinite ? std::copysign(HUGE_VAL, by_definition(code)) : by_definition(code);
    if (value == expected && std::signbit(value) == (code >> 15 != 0) && f32_to_f16(value) == code) continue;
    CAPTURE(code, value, expected);
    CHECK(value == expected);
    CHECK(std::signbit(value) == (code >> 15 != 0));
    CHECK(f32_to_f16(value) == code);
  }
  CHECK(nans == 2 * 1023);
}

TEST_CASE("f32 to f16 either side of every tie, the one to infinity included") {
  for (int code = 0; code < infinity_code; ++code) {
    const auto tie = static_cast<float>((by_definition(code) + by_definition(code + 1)) / 2);  // exact: one more bit
    const int even = code % 2 ? code + 1 : code;
    for (const int sign : {0, 0x8000}) {
      const float s = sign ? -1.0f : 1.0f;
      const int below = f32_to_f16(s * std::nextafter(tie, 0.0f)), at = f32_to_f16(s * tie);
      const int above = f32_to_f16(s * std::nextafter(tie, 1e9f));
      if (below == (sign | code) && at == (sign | even) && above == (sign | (code + 1))) continue;
      CAPTURE(code, sign, tie);
      CHECK(below == (sign | code));
      CHECK(at == (sign | even));
      CHECK(above == (sign | (code + 1)));
    }
  }
}

TEST_CASE("f32 to f16 beyond both ends of the range") {
  CHECK(f32_to_f16(65504.0f) == 0x7bff);
  CHECK(f32_to_f16(65519.996f) == 0x7bff);
  CHECK(f32_to_f16(65520.0f) == infinity_code);
  CHECK(f32_to_f16(-std::numeric_limits<float>::max()) == (0x8000 | infinity_code));
  CHECK(f32_to_f16(std::numeric_limits<float>::infinity()) == infinity_code);
  CHECK(f32_to_f16(0x1p-24f) == 1);
  CHECK(f32_to_f16(0x1p-25f) == 0);
  CHECK(f32_to_f16(0x1.000002p-25f) == 1);
  CHECK(f32_to_f16(-std::numeric_limits<float>::denorm_min()) == 0x8000);
  CHECK(f32_to_f16(-0.0f) == 0x8000);
  // The payload's low bits are all that tells this NaN from infinity.
  CHECK(std::isnan(f16_to_f32(f32_to_f16(std::bit_cast<float>(0x7f800001u)))));
}

TEST_CASE("both directions are constant expressions") {
  static_assert(f32_to_f16(1.5f) == 0x3e00 && f16_to_f32(0x3e00) == 1.5f);
  static_assert(f32_to_f16(0x3p-24f) == 3 && f16_to_f32(0x8003) == -0x3p-24f);
  SUCCEED();
}

#if defined(__FLT16_MANT_DIG__)
TEST_CASE("f32 to f16 agrees with the compiler's _Float16") {
  std::uint32_t bits = 0;
  int wrong = 0;
  for (int i = 0; i < 1 << 20; ++i, bits += 0x9e3779b9u) {
    const auto x = std::bit_cast<float>(i % 4 ? (0x33000000u + bits % 0x14800000u) | (bits & 0x80000000u) : bits);
    if (std::isnan(x)) continue;
    wrong += std::bit_cast<std::uint16_t>(static_cast<_Float16>(x)) != f32_to_f16(x);
  }
  CHECK(wrong == 0);
}
#endif
