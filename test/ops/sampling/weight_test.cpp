// SPDX-License-Identifier: MIT
// Weights against powers of two in double, and the whole numbers around them.
#include "tilewave/ops/sampling/weight.hpp"

#include <cmath>

#include "test/catch_compat.hpp"
#include "tilewave/arch/backend.hpp"

namespace tilewave::test {
namespace {

/// The one primitive of a room that weights take.
struct Plain {
  static float subtract(float a, float b) { return a - b; }
};

TEST_CASE("a weight is a power of two within 2e-7, or half of one") {
  for (const float scale : {1.0f, 1.4426950408889634f, 0.37f}) {
    std::uint32_t before = 1u << weight_bits;
    for (int i = 0; i < 40000; ++i) {
      const float difference = 0.001f * static_cast<float>(i);
      const std::uint32_t weight = weight_of<Plain>(__builtin_bit_cast(std::uint32_t, difference), scale);
      const double wanted = std::exp2(31 - double{difference} * scale);
      CAPTURE(scale, difference);
      // The product is rounded: half an ulp of it is as much of the weight.
      REQUIRE(std::abs(weight - wanted) <= wanted * (2e-7 + difference * scale * 5e-8) + 0.5);
      REQUIRE(weight <= before);
      before = weight;
    }
  }
  CHECK(weight_of<Plain>(0, 1e30f) == 1u << weight_bits);
  CHECK(weight_of<Plain>(last_key, 1.0f) == 0);
  CHECK(weight_of<Plain>(last_key, 1e30f) == 0);
}

TEST_CASE("keys order logits by how far they are below the largest, NaN and -inf last") {
  constexpr float inf = std::numeric_limits<float>::infinity();
  CHECK(key_of<Plain>(2.0f, 2.0f) == 0);
  CHECK(key_of<Plain>(inf, inf) == 0);
  CHECK(key_of<Plain>(1.0f, 2.0f) < key_of<Plain>(0.5f, 2.0f));
  CHECK(key_of<Plain>(-3e38f, 0.0f) <= last_key);
  CHECK(key_of<Plain>(-inf, 2.0f) > last_key);
  CHECK(key_of<Plain>(1.0f, inf) > last_key);
  CHECK(key_of<Plain>(std::numeric_limits<float>::quiet_NaN(), 2.0f) > last_key);
}

TEST_CASE("draws stay below their end, and top p needs a part of the sum but never nothing") {
  constexpr std::uint64_t most = ~std::uint64_t{0};
  CHECK(multiply_high(most, most) == most - 1);
  CHECK(multiply_high(most, 1) == 0);
  CHECK(multiply_high(std::uint64_t{1} << 63, 10) == 5);
  CHECK(multiply_high(0x123456789abcdef0u, 0xfedcba9876543210u) == 0x121fa00ad77d7422u);
  CHECK(needed(1000, 0.5f) == 500);
  CHECK(needed(1000, 0.75f) == 750);
  CHECK(needed(std::uint64_t{1} << 49, 0.25f) == std::uint64_t{1} << 47);
  CHECK(needed(3, 0.25f) == 1);
  CHECK(needed(1000, -1.0f) == 1);
  for (std::uint32_t i = 0; i < 1000; ++i) REQUIRE(drawn_below(7, 1, 2, 3, i) < 7);
  CHECK(drawn_below(1, 1, 2, 3, 4) == 0);
}

}  // namespace
}  // namespace tilewave::test
