// SPDX-License-Identifier: MIT
// The e8m0 scales of 32 values: by default none saturates, in every format; the other roundings by their definitions.
#include "tilewave/tile/quant_scale.hpp"

#include <cmath>
#include <vector>

#include "test/catch_compat.hpp"
#include "tilewave/ops/activation/problem.hpp"
#include "tilewave/ops/norm/problem.hpp"
#include "tilewave/ops/quant/problem.hpp"
#include "tilewave/reference/rows.hpp"

namespace tilewave::test {
namespace {

constexpr DType mx_types[] = {DType::fp8_e4m3fn, DType::fp4_e2m1, DType::fp6_e2m3, DType::fp6_e3m2};

/// Every 509th positive float, all of the mantissas where a scale can change, and the ends.
std::vector<float> magnitudes() {
  std::vector<float> all{0.0f, 0x1p-149f, 0x1p-127f, 0x1p-126f, 0x1.fffffep127f};
  for (std::uint32_t bits = 1; bits < 0x7f800000u; bits += 509) all.push_back(__builtin_bit_cast(float, bits));
  for (int power = -126; power < 128; ++power)
    for (const float side : {1.0f, 1.25f, 1.3125f, 1.5f, 1.75f, 1.875f})
      for (const int step : {-1, 0, 1}) {
        const auto bits = __builtin_bit_cast(std::uint32_t, std::ldexp(side, power)) + static_cast<std::uint32_t>(step);
        all.push_back(__builtin_bit_cast(float, bits));
      }
  return all;
}

double scale(DType type, MxRounding rounding, float largest) {
  return e8m0_to_f32(mx_scale(type, mx_carry(type, rounding), largest));
}

TEST_CASE("no value of 32 saturates under the mx scale that is the default, and no smaller one would do") {
  constexpr MxRounding rounding = QuantProblem{}.mx_rounding;
  static_assert(NormProblem{}.mx_rounding == rounding && ActivationProblem{}.mx_rounding == rounding);
  for (const DType type : mx_types) {
    int saturated = 0, too_large = 0;
    for (const float largest : magnitudes()) {
      const double quotient = largest / scale(type, rounding, largest);
      saturated += quotient > largest_code(type);
      too_large += 2 * quotient <= largest_code(type) && scale(type, rounding, largest) > 0x1p-127;
    }
    INFO(name_of(type));
    CHECK(saturated == 0);
    CHECK(too_large == 0);
  }
}

TEST_CASE("mx scales of each rounding are those of the reference") {
  for (const DType type : mx_types)
    for (const MxRounding rounding : {MxRounding::up, MxRounding::floor, MxRounding::nearest}) {
      int wrong = 0;
      for (const float largest : magnitudes())
        wrong += scale(type, rounding, largest) != reference::mx_scale_of(largest, type, rounding);
      INFO(name_of(type) << " " << name_of(rounding));
      CHECK(wrong == 0);
      for (const std::uint32_t bits : {0x7f800000u, 0x7fc00000u})
        CHECK(mx_scale(type, mx_carry(type, rounding), __builtin_bit_cast(float, bits)) == 0xff);
    }
}

TEST_CASE("mx scales of some magnitudes, each rounding in turn") {
  struct Known {
    DType type;
    float largest;
    double up, floor, nearest;
  };
  constexpr Known known[] = {
      {DType::fp8_e4m3fn, 448, 1, 1, 1},  {DType::fp8_e4m3fn, 449, 2, 1, 1}, {DType::fp8_e4m3fn, 671, 2, 2, 1},
      {DType::fp8_e4m3fn, 672, 2, 2, 2},  {DType::fp8_e4m3fn, 512, 2, 2, 1}, {DType::fp8_e4m3fn, 255, 1, 0.5, 0.5},
      {DType::fp4_e2m1, 6, 1, 1, 2},      {DType::fp4_e2m1, 5.9f, 1, 1, 1},  {DType::fp4_e2m1, 7, 2, 1, 2},
      {DType::fp4_e2m1, 3.5f, 1, 0.5, 1}, {DType::fp6_e2m3, 7.5f, 1, 1, 2},  {DType::fp6_e2m3, 7.75f, 2, 1, 2},
      {DType::fp6_e2m3, 5.9f, 1, 1, 1},   {DType::fp6_e3m2, 28, 1, 1, 2},    {DType::fp6_e3m2, 29, 2, 1, 2},
      {DType::fp6_e3m2, 23, 1, 1, 1},
  };
  for (const Known& k : known) {
    INFO(name_of(k.type) << " " << k.largest);
    CHECK(scale(k.type, MxRounding::up, k.largest) == k.up);
    CHECK(scale(k.type, MxRounding::floor, k.largest) == k.floor);
    CHECK(scale(k.type, MxRounding::nearest, k.largest) == k.nearest);
  }
}

}  // namespace
}  // namespace tilewave::test
