// SPDX-License-Identifier: MIT
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>

#include "test/catch_compat.hpp"
#include "tilewave/core/dtype.hpp"

namespace {

using namespace tilewave;

float f32_of(std::uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

// The value of a bf16 code by the definition of the format: 1 sign, 8 exponent (bias 127), 7 mantissa bits.
double bf16_by_definition(std::uint16_t code) {
  const int exponent = (code >> 7) & 0xff, mantissa = code & 0x7f;
  const double magnitude = exponent == 0xff ? (mantissa ? std::nan("") : std::numeric_limits<double>::infinity())
                           : exponent == 0  ? std::ldexp(mantissa, -133)
                                            : std::ldexp(128 + mantissa, exponent - 134);
  return (code & 0x8000) ? -magnitude : magnitude;
}

// Brute force around a guess: of the three codes nearest to the truncated one, the nearest value wins, even on a tie.
std::uint16_t nearest_bf16(float value) {
  std::uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  const auto down = static_cast<std::uint16_t>(bits >> 16);
  const auto up = static_cast<std::uint16_t>(down + 1);
  // The step above the largest finite value counts as 2^128 when rounding decides about infinity (IEEE 754, 4.3.1).
  const double up_value = (up & 0x7fff) == 0x7f80 ? std::copysign(std::ldexp(1.0, 128), value) : bf16_by_definition(up);
  const double below = std::fabs(value - bf16_by_definition(down)), above = std::fabs(up_value - value);
  if (below != above) return below < above ? down : up;
  return (down & 1) ? up : down;
}

}  // namespace

TEST_CASE("every bf16 code decodes to the value the format defines and encodes back to itself") {
  for (std::uint32_t code = 0; code < 0x10000; ++code) {
    const auto bits = static_cast<std::uint16_t>(code);
    const float value = bf16_to_f32(bits);
    const double expected = bf16_by_definition(bits);
    CAPTURE(code);
    if (std::isnan(expected)) {
      REQUIRE(std::isnan(value));
      REQUIRE(std::isnan(bf16_to_f32(f32_to_bf16(value))));
    } else {
      REQUIRE(static_cast<double>(value) == expected);
      REQUIRE(std::signbit(value) == ((code & 0x8000) != 0));
      REQUIRE(f32_to_bf16(value) == bits);
    }
  }
}

TEST_CASE("f32 to bf16 takes the nearest value, ties to even, between all neighbours") {
  // The low half of an f32 decides the rounding: around zero, around the tie, and up to the next code.
  const std::uint32_t low_halves[] = {0x0001, 0x00ff, 0x7ffe, 0x7fff, 0x8000, 0x8001, 0x8002, 0xff00, 0xffff};
  for (std::uint32_t code = 0; code < 0x10000; ++code) {
    if ((code & 0x7f80) == 0x7f80) continue;  // infinities and NaN have their own test
    for (const std::uint32_t low : low_halves) {
      const float value = f32_of(code << 16 | low);
      if (f32_to_bf16(value) != nearest_bf16(value)) FAIL("code " << code << ", low half " << low << ": " << value);
    }
  }
}

TEST_CASE("f32 to bf16 at the edges") {
  const float infinity = std::numeric_limits<float>::infinity();
  CHECK(f32_to_bf16(infinity) == 0x7f80);
  CHECK(f32_to_bf16(-infinity) == 0xff80);
  CHECK(f32_to_bf16(std::numeric_limits<float>::max()) == 0x7f80);  // above the last tie
  CHECK(f32_to_bf16(f32_of(0x7f7f7fff)) == 0x7f7f);                 // just below it
  CHECK(f32_to_bf16(0.0f) == 0x0000);
  CHECK(f32_to_bf16(-0.0f) == 0x8000);
  // NaN stays NaN also when only low mantissa bits, which are cut off, say so.
  for (const std::uint32_t bits : {0x7fc00000u, 0x7f800001u, 0xff800001u, 0x7fffffffu, 0xffffffffu, 0x7f80ffffu}) {
    CAPTURE(bits);
    const std::uint16_t code = f32_to_bf16(f32_of(bits));
    CHECK((code & 0x7f80) == 0x7f80);
    CHECK((code & 0x007f) != 0);
    CHECK((code & 0x8000) == ((bits >> 16) & 0x8000));
  }
}
