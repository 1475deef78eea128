// SPDX-License-Identifier: MIT
#include "sim/clock/cache_clock.hpp"
#include "test/catch_compat.hpp"

namespace cache_tests {
namespace {

using tilewave::sim::Cache;

constexpr int line = 128, ways = 16, sets = 2048;

Cache l2() { return {sets * ways * line, ways, line}; }

}  // namespace

TEST_CASE("a set of the modelled cache gives up the line that was used longest ago") {
  Cache cache(4 * line, 4, line);  // one set
  for (std::uint64_t i = 0; i < 4; ++i) cache.insert(i, static_cast<double>(i));
  REQUIRE(cache.find(0));  // then 1, 2, 3 are older
  REQUIRE(cache.find(2));
  REQUIRE(cache.find(2));
  cache.insert(4, 4);
  CHECK_FALSE(cache.find(1));
  cache.insert(5, 5);
  CHECK_FALSE(cache.find(3));
  for (const std::uint64_t i : {0, 2, 4, 5}) {
    REQUIRE(cache.find(i));
    CHECK(*cache.find(i) == static_cast<double>(i));
  }
  cache.insert(6, 6);
  CHECK_FALSE(cache.find(0));
}

TEST_CASE("lines a power of two apart spread over the sets of the modelled cache") {
  for (const std::uint64_t apart : {sets / 32, sets, 2 * sets, 16 * sets}) {
    Cache cache = l2();
    constexpr std::uint64_t rows = 1024;
    for (std::uint64_t i = 0; i < rows; ++i) cache.insert(i * apart, 0);
    std::uint64_t kept = 0;
    for (std::uint64_t i = 0; i < rows; ++i) kept += cache.find(i * apart) != nullptr;
    CAPTURE(apart);
    CHECK(kept == rows);
  }
}

}  // namespace cache_tests
