// SPDX-License-Identifier: MIT
#include "tilewave/core/region.hpp"

#include <limits>
#include <random>
#include <set>
#include <vector>

#include "test/catch_compat.hpp"

namespace {
using namespace tilewave;
using Dimension = Region::Dimension;

/// A region beside the list of its bytes, one for each time that a piece has it.
struct Listed {
  Region region;
  std::vector<std::int64_t> bytes;
};

Listed listed(std::int64_t start, int size, int columns, const Dimension& a, const Dimension& b, const Dimension& c) {
  Listed l{Region(reinterpret_cast<const void*>(start), size, columns, {a, b, c}), {}};
  for (std::int64_t i = 0; i < a.count; ++i)
    for (std::int64_t j = 0; j < b.count; ++j)
      for (std::int64_t k = 0; k < c.count; ++k)
        for (std::int64_t byte = 0; byte < size * columns; ++byte)
          l.bytes.push_back(start + (i * a.stride + j * b.stride + k * c.stride) * size + byte);
  return l;
}

std::int64_t below(std::mt19937& random, std::int64_t n) { return static_cast<std::int64_t>(random() % n); }
Listed drawn(std::mt19937& random, bool negative) {
  const auto dimension = [&](std::int64_t most) {
    const std::int64_t stride = below(random, most) - (negative ? most / 2 : 0);
    return Dimension{1 + below(random, 3), stride};
  };
  const Dimension a = dimension(5), b = dimension(20), c = dimension(60);
  const int size = below(random, 2) ? 1 : 4, columns = 1 + static_cast<int>(below(random, 4));
  return listed(10000 + below(random, 100), size, columns, a, b, c);
}

const void* address(std::int64_t at) { return reinterpret_cast<const void*>(at); }
}  // namespace

TEST_CASE("regions that are said to be apart share no byte, and what is said not to overlap itself does not") {
  std::mt19937 random(3);
  int apart = 0, whole = 0;
  for (int i = 0; i < 20000; ++i) {
    const bool negative = i % 4 == 0;
    const Listed x = drawn(random, negative), y = drawn(random, negative);
    const std::set<std::int64_t> of_x(x.bytes.begin(), x.bytes.end());
    if (!x.region.overlaps_itself()) {
      ++whole;
      REQUIRE(of_x.size() == x.bytes.size());
    }
    REQUIRE(overlap(x.region, y.region) == overlap(y.region, x.region));
    if (overlap(x.region, y.region)) continue;
    ++apart;
    for (const std::int64_t byte : y.bytes) REQUIRE(of_x.count(byte) == 0);
  }
  CHECK(apart > 2000);
  CHECK(whole > 2000);
}

TEST_CASE("parts of a fused tensor are apart, and a byte too near they are not") {
  constexpr std::int64_t base = 1 << 20, heads = 4, head_size = 64, token = 3 * heads * head_size;
  const auto part = [&](std::int64_t first) {
    return Region(address(base + 2 * first), 2, head_size, {{7, token}, {heads, head_size}});
  };
  const Region q = part(0), k = part(heads * head_size), v = part(2 * heads * head_size);
  CHECK_FALSE(overlap(q, k));
  CHECK_FALSE(overlap(v, q));
  CHECK(overlap(q, part(heads * head_size - 1)));
  CHECK(overlap(v, part(token - 1)));
  CHECK(overlap(q, q));
  CHECK(q == part(0));
  CHECK_FALSE(q == k);
  // Halves of every head, and a vector in a gap between rows.
  const auto half = [&](std::int64_t first) {
    return Region(address(base + 2 * first), 2, head_size / 2, {{7, 4 * head_size}, {4, head_size}});
  };
  CHECK_FALSE(overlap(half(0), half(head_size / 2)));
  CHECK(overlap(half(0), half(head_size / 2 - 1)));
  const Region rows(address(base), 4, 10, {{5, 16}});
  CHECK_FALSE(overlap(rows, Region(address(base + 4 * 42), 4, 6, {})));
  CHECK(overlap(rows, Region(address(base + 4 * 42), 4, 7, {})));
  CHECK_FALSE(overlap(rows, Region(address(base + 4 * 74), 4, 100, {})));
  CHECK(overlap(rows, Region(address(base + 4 * 73), 4, 100, {})));
}

TEST_CASE("a tensor that has the same bytes in another order of its indices is another one") {
  constexpr std::int64_t base = 1 << 20;
  const Region rows(address(base), 2, 8, {{3, 24}, {3, 8}});
  CHECK(rows == Region(address(base), 2, 8, {{3, 24}, {3, 8}}));
  CHECK_FALSE(rows == Region(address(base), 2, 8, {{3, 8}, {3, 24}}));                                // transposed
  CHECK_FALSE(Region(address(base), 2, 8, {{3, 8}}) == Region(address(base + 32), 2, 8, {{3, -8}}));  // reversed
  CHECK(Region(address(base), 2, 8, {{3, 8}, {1, 5}}) == Region(address(base), 2, 8, {{3, 8}, {1, 7}}));
}

TEST_CASE("a region that ends before its last pieces ends there") {
  constexpr std::int64_t base = 1 << 20;
  Region rows(address(base), 4, 8, {{2, 8}, {3, 16}});
  const Region behind(address(base + 4 * 40), 4, 1, {});
  CHECK(overlap(rows, behind));
  rows.end_at(4 * 40);
  CHECK_FALSE(overlap(rows, behind));
}

TEST_CASE("strides of 0, steps shorter than what they step over, and what is not there") {
  constexpr std::int64_t base = 1 << 20;
  CHECK(Region(address(base), 2, 8, {{3, 0}}).repeats());
  CHECK(Region(address(base), 2, 8, {{3, 0}}).overlaps_itself());
  CHECK_FALSE(Region(address(base), 2, 8, {{1, 0}}).repeats());
  CHECK_FALSE(Region(address(base), 2, 8, {{3, 8}}).overlaps_itself());
  CHECK(Region(address(base), 2, 8, {{3, 7}}).overlaps_itself());
  CHECK_FALSE(Region(address(base), 2, 8, {{3, -8}}).overlaps_itself());
  CHECK_FALSE(Region(address(base), 2, 8, {{3, 8}, {2, 24}}).overlaps_itself());
  CHECK_FALSE(Region(address(base), 2, 8, {{3, 16}, {2, 8}}).overlaps_itself());
  CHECK(Region(address(base), 2, 8, {{3, 8}, {2, 23}}).overlaps_itself());
  const Region all(address(base), 1, 1000, {});
  for (const Region& none :
       {Region(), Region(nullptr, 2, 8, {}), Region(address(base), 2, 0, {}), Region(address(base), 2, 8, {{0, 8}})}) {
    CHECK(none.empty());
    CHECK(none.addressable());
    CHECK_FALSE(none.repeats());
    CHECK_FALSE(none.overlaps_itself());
    CHECK_FALSE(overlap(none, all));
    CHECK_FALSE(overlap(all, none));
  }
}

TEST_CASE("strides whose multiples no address holds are told, without overflow") {
  constexpr std::int64_t most = std::numeric_limits<std::int64_t>::max();
  const auto rows = [](std::int64_t count, std::int64_t stride) {
    return Region(address(4096), 4, 8, {{count, stride}});
  };
  for (const std::int64_t stride : {std::int64_t{1} << 62, most, -most, -most - 1, std::int64_t{1} << 54}) {
    CAPTURE(stride);
    CHECK_FALSE(rows(2, stride).addressable());
    CHECK_FALSE(rows(1 << 30, stride).addressable());
    CHECK(rows(1, stride).addressable());
  }
  CHECK(rows(2, (std::int64_t{1} << 54) - 8).addressable());
  CHECK_FALSE(rows(2, (std::int64_t{1} << 54) - 7).addressable());
  CHECK_FALSE(rows(most, 1).addressable());
  CHECK_FALSE(Region(address(4096), 4, most, {}).addressable());
  CHECK_FALSE(Region(address(4096), 1, 8, {{2, std::int64_t{1} << 55}, {2, std::int64_t{1} << 55}}).addressable());
}
