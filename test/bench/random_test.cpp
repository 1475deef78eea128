// SPDX-License-Identifier: MIT
#include "bench/harness/random.hpp"

#include <cmath>
#include <set>
#include <vector>

#include "test/catch_compat.hpp"

namespace tilewave::bench {
namespace {

TEST_CASE("splitmix64's finaliser gives its published sequence") {
  // First outputs of splitmix64 with seed 0, and with seed 1234567 (Vigna's splitmix64.c; Rosetta Code).
  CHECK(mix64(0x9e3779b97f4a7c15ull) == 0xe220a8397b1dcdafull);
  CHECK(mix64(1234567 + 0x9e3779b97f4a7c15ull) == 6457827717110365317ull);
}

TEST_CASE("uniform numbers are exact in f32, inside (-1, 1), flat, and uncorrelated") {
  constexpr int n = 1 << 16;
  const std::uint64_t key = random_bits({123, 'k', 5, 0, 17});
  std::vector<double> x;
  std::vector<int> bins(16, 0);
  for (int i = 0; i < n; ++i) {
    const float value = random_uniform(key, i);
    REQUIRE(std::abs(value) < 1.0f);
    REQUIRE(std::fmod(std::ldexp(value, 23), 2.0f) != 0.0f);  // an odd multiple of 2^-23
    x.push_back(value);
    ++bins[static_cast<int>((value + 1) * 8)];
  }
  double mean = 0, square = 0, neighbours = 0;
  for (int i = 0; i < n; ++i) {
    mean += x[i] / n;
    square += x[i] * x[i] / n;
    neighbours += x[i] * x[(i + 1) % n] / n;
  }
  // Five standard deviations: sqrt(1/3/n), sqrt(4/45/n), 1/3/sqrt(n), sqrt(n/16).
  CHECK(std::abs(mean) < 0.0113);
  CHECK(std::abs(square - 1.0 / 3) < 0.0059);
  CHECK(std::abs(neighbours) < 0.0066);
  for (const int count : bins) CHECK(std::abs(count - n / 16) < 320);
}

TEST_CASE("every coordinate matters, and so does its place") {
  std::set<std::uint64_t> seen;
  int made = 0;
  for (std::uint64_t seed : {1, 2})
    for (std::uint64_t tensor : {'k', 'v'})
      for (std::uint64_t page = 0; page < 20; ++page)
        for (std::uint64_t head = 0; head < 3; ++head)
          for (std::uint64_t slot = 0; slot < 20; ++slot, ++made)
            seen.insert(random_bits({seed, tensor, page, head, slot}));
  CHECK(static_cast<int>(seen.size()) == made);
  CHECK(random_bits({1, 2}) != random_bits({2, 1}));
  CHECK(random_bits({1}) != random_bits({0, 1}));
}

TEST_CASE("integers below n are drawn evenly") {
  const int n = GENERATE(1, 2, 7, 1000);
  CAPTURE(n);
  std::vector<int> counts(n, 0);
  constexpr int draws = 100000;
  for (std::uint64_t i = 0; i < draws; ++i) {
    const std::int64_t value = random_below(random_bits({9, i}), n);
    REQUIRE(value >= 0);
    REQUIRE(value < n);
    ++counts[value];
  }
  const double expected = static_cast<double>(draws) / n;
  for (const int count : counts) CHECK(std::abs(count - expected) <= 6 * std::sqrt(expected));
}

}  // namespace
}  // namespace tilewave::bench
