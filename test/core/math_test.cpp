// SPDX-License-Identifier: MIT
#include "tilewave/core/math.hpp"

#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include "test/catch_compat.hpp"

namespace {
using namespace tilewave;
constexpr std::int32_t int_max = 0x7fffffff;
}  // namespace

TEST_CASE("FastDiv equals operator/ for small divisors and dividends, exhaustively") {
  for (std::int32_t d = 1; d <= 300; ++d) {
    const FastDiv fast = FastDiv::by(d);
    for (std::int32_t n = 0; n <= 3000; ++n) {
      if (fast.quotient(n) == n / d && fast.remainder(n) == n % d) continue;
      CAPTURE(n, d);
      REQUIRE(fast.quotient(n) == n / d);
      REQUIRE(fast.remainder(n) == n % d);
    }
  }
}

TEST_CASE("FastDiv equals operator/ around multiples, powers of two and the ends of its range") {
  std::vector<std::int32_t> divisors{1, 2, 3, 5, 7, 10, 641, 65535, 65536, 65537, 1 << 30, int_max - 1, int_max};
  for (int bit = 1; bit < 31; ++bit) {
    for (const int nudge : {-1, 0, 1}) {
      if ((1 << bit) + nudge >= 1) divisors.push_back((1 << bit) + nudge);
    }
  }
  std::mt19937 random(7);
  for (int i = 0; i < 2000; ++i) divisors.push_back(static_cast<std::int32_t>(random() >> (1 + i % 31)) | 1);
  for (const std::int32_t d : divisors) {
    const FastDiv fast = FastDiv::by(d);
    std::vector<std::int64_t> dividends{0, 1, int_max, int_max - 1};
    // One step either side of a multiple is where a multiplier that is off by one shows first, most at the largest.
    for (const std::int64_t multiple :
         {std::int64_t{d}, std::int64_t{2} * d, std::int64_t{int_max / d} * d, std::int64_t{int_max / d / 2} * d}) {
      for (const int nudge : {-1, 0, 1}) dividends.push_back(multiple + nudge);
    }
    for (int i = 0; i < 50; ++i) dividends.push_back(random() >> 1);
    for (const std::int64_t wide : dividends) {
      if (wide < 0 || wide > int_max) continue;
      const auto n = static_cast<std::int32_t>(wide);
      CAPTURE(n, d);
      REQUIRE(fast.quotient(n) == n / d);
      REQUIRE(fast.remainder(n) == n % d);
    }
  }
}

TEST_CASE("FastDiv is usable at compile time") {
  constexpr FastDiv by_seven = FastDiv::by(7);
  STATIC_REQUIRE(by_seven.quotient(int_max) == int_max / 7);
  STATIC_REQUIRE(by_seven.remainder(int_max) == int_max % 7);
}

TEST_CASE("rounding helpers agree with their definitions") {
  for (int b = 1; b <= 70; ++b) {
    for (int a = 0; a <= 300; ++a) {
      CAPTURE(a, b);
      REQUIRE(ceil_div(a, b) == a / b + (a % b != 0));
      REQUIRE(align_down(a, b) == a - a % b);
      REQUIRE(align_up(a, b) % b == 0);
      REQUIRE((align_up(a, b) >= a && align_up(a, b) < a + b));
    }
  }
  CHECK(ceil_div<std::int64_t>(5'000'000'001, 2) == 2'500'000'001);
  CHECK(min_of(3, -4) == -4);
  CHECK(max_of(3, -4) == 3);
}

TEST_CASE("disjoint places, by any strides") {
  constexpr std::int64_t far = std::int64_t{1} << 62;
  STATIC_REQUIRE(disjoint(64, 4, 16, 4, 16));
  STATIC_REQUIRE(disjoint(16, 4, 64, 4, 16));
  STATIC_REQUIRE_FALSE(disjoint(63, 4, 16, 4, 16));
  STATIC_REQUIRE_FALSE(disjoint(64, 4, 15, 4, 16));
  STATIC_REQUIRE_FALSE(disjoint(0, 2, 16, 4, 16));
  STATIC_REQUIRE(disjoint(0, 1, 16, 4, 16));
  STATIC_REQUIRE(disjoint(16, 4, 0, 1, 16));
  STATIC_REQUIRE_FALSE(disjoint(-64, 4, 16, 4, 16));
  // Multiples that overflow: not a constant expression if they were made.
  STATIC_REQUIRE_FALSE(disjoint(far, 4, far, 4, 16));
  STATIC_REQUIRE_FALSE(disjoint(64, 4, far, 4, 128));
}

TEST_CASE("Max prefers numbers to NaN and +0 to -0, in either order") {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  CHECK(Max{}(nan, -1.0f) == -1.0f);
  CHECK(Max{}(-1.0f, nan) == -1.0f);
  CHECK(std::isnan(Max{}(nan, nan)));
  CHECK(Max{}(-2.0f, -1.0f) == -1.0f);
  CHECK(Max{}(-1.0f, -2.0f) == -1.0f);
  CHECK_FALSE(std::signbit(Max{}(0.0f, -0.0f)));
  CHECK_FALSE(std::signbit(Max{}(-0.0f, 0.0f)));
  CHECK(std::signbit(Max{}(-0.0f, -0.0f)));
}
