// SPDX-License-Identifier: MIT
// Kernels of others do these things, and none of the library's does (kernels/user.hip).
#include <algorithm>
#include <cmath>

#include "sim/machine/lanes.hpp"
#include "test/catch_compat.hpp"
#include "toy.hpp"

namespace user_tests {
namespace {

using namespace tilewave::sim;
using namespace tilewave::sim::test;
using u32 = std::uint32_t;
using i32 = std::int32_t;
using u64 = std::uint64_t;

constexpr Arch both[] = {Arch::gfx942, Arch::gfx950};

std::string error_of(Toy& toy, const std::string& kernel, std::array<u32, 3> grid, const MachineOptions& options) {
  try {
    toy.run(kernel, grid, {256, 1, 1}, options);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

/// Returns the results of the kernel's atomics where zeros were, and all ones at indices 3 and 6.
template <class T>
std::vector<T> applied(const std::vector<T>& in, int first, int step) {
  std::vector<T> p{0, 0, 0, static_cast<T>(~T{0}), 0, 0, static_cast<T>(~T{0}), 0};
  for (std::size_t i = static_cast<std::size_t>(first); i < in.size(); i += static_cast<std::size_t>(step)) {
    p[0] += in[i], p[1] -= in[i], p[2] = std::max(p[2], in[i]), p[3] = std::min(p[3], in[i]);
    p[4] ^= in[i], p[5] |= in[i], p[6] &= in[i];
  }
  return p;
}

template <class T>
void check_atomics(Arch arch, const std::string& kernel) {
  Patterns random(5);
  std::vector<T> in(64), out(32);
  for (T& x : in) x = static_cast<T>(u64{random.next()} << 32 | random.next());
  for (const std::size_t i : {3, 6, 11, 14}) out[i] = static_cast<T>(~T{0});
  Toy(arch, "user").out(out).in(in).value(1).run(kernel);
  const auto is = [&](std::size_t at, const std::vector<T>& expected) {
    return std::equal(expected.begin(), expected.end() - 1, out.begin() + static_cast<std::ptrdiff_t>(at));
  };
  CHECK(is(0, applied(in, 0, 1)));   // global
  CHECK(is(8, applied(in, 0, 2)));   // flat, global memory
  CHECK(is(16, applied(in, 0, 1)));  // LDS
  CHECK(is(24, applied(in, 1, 2)));  // flat, LDS
}

}  // namespace

TEST_CASE("blocks wait for blocks that come after them") {
  for (const Arch arch : both)
    for (const int threads : {1, 2})
      for (const bool reverse : {false, true}) {
        constexpr u32 blocks = 40;
        std::vector<u32> counter(1, 0), data(64 * blocks), out(64 * blocks);
        Toy toy(arch, "user");
        toy.out(counter).out(data).out(out).value(blocks).run("grid_barrier", {blocks, 1, 1}, {64, 1, 1},
                                                              {.threads = threads, .reverse = reverse});
        int wrong = 0;
        for (u32 i = 0; i < 64 * blocks; ++i) wrong += out[i] != (blocks - 1 - i / 64) * 1000 + i % 64;
        CHECK(wrong == 0);
        CHECK(counter[0] == blocks);
      }
}

TEST_CASE("blocks that wait for what nobody writes are given up") {
  std::vector<u32> counter(1, 0), data(64 * 4), out(64 * 4);
  Toy toy(Arch::gfx942, "user");
  toy.out(counter).out(data).out(out).value(5);  // four of five blocks
  const std::string said = error_of(toy, "grid_barrier", {1, 1, 1}, {.max_wave_instructions = 2'000'000});
  CHECK(said.find("block (0, 0, 0) wave 0 at ") != std::string::npos);
}

TEST_CASE("a lock in LDS orders waves, which only the check of races does not know") {
  for (const Arch arch : both) {
    std::vector<u32> out(1);
    Toy toy(arch, "user");
    toy.out(out).run("lds_lock", {1, 1, 1}, {256, 1, 1}, {.races = false});
    CHECK(out[0] == 10);
    CHECK(error_of(toy, "lds_lock", {1, 1, 1}, {}).find("LDS race") != std::string::npos);
  }
}

TEST_CASE("atomics of global memory, LDS and flat addresses") {
  for (const Arch arch : both) {
    check_atomics<u32>(arch, "atomics_32");
    check_atomics<u64>(arch, "atomics_64");
  }
}

TEST_CASE("f64 division is rounded as IEEE 754 says") {
  for (const Arch arch : both) {
    Patterns random(6);
    std::vector<double> a(64), b(64), c(64);
    for (std::size_t i = 0; i < 64; ++i) {
      a[i] = std::ldexp(1 + random.unit() * 0.49999999, static_cast<int>(random.next() % 1800) - 900);
      b[i] = std::ldexp(-1 + random.unit() * 0.123456, static_cast<int>(random.next() % 200) - 100);
    }
    constexpr double inf = std::numeric_limits<double>::infinity();
    const double special[][2] = {{0, 1},     {1, 0},          {-1, 0},         {inf, 2},    {2, inf}, {0, 0},
                                 {inf, inf}, {1e300, 1e-300}, {1e-300, 1e300}, {3, 5e-324}, {NAN, 1}};
    for (std::size_t i = 0; i < std::size(special); ++i) a[i] = special[i][0], b[i] = special[i][1];
    Toy(arch, "user").in(a).in(b).out(c).run("divide");
    for (std::size_t i = 0; i < 64; ++i) {
      INFO(a[i] << " / " << b[i] << " = " << c[i]);
      const double quotient = a[i] / b[i];
      CHECK((std::isnan(quotient) ? std::isnan(c[i]) : c[i] == quotient));
    }
  }
}

TEST_CASE("f16 is rounded, fused and compared") {
  for (const Arch arch : both) {
    Patterns random(7);
    std::vector<std::uint16_t> a(64), b(64), c(64), out(12 * 64);
    for (auto* values : {&a, &b, &c})
      for (std::uint16_t& x : *values) x = Half(random.unit() * 300).bits;
    Toy(arch, "user").in(a).in(b).in(c).out(out).run("halves");
    const auto f = [](std::uint16_t bits) { return static_cast<float>(Half::from_bits(bits)); };
    for (std::size_t i = 0; i < 64; ++i) {
      const float x = f(a[i]), y = f(b[i]), z = f(c[i]);
      const double sum = double{x} * y + z;
      const float expected[] = {std::floor(x),           std::ceil(x),        std::trunc(x),  std::nearbyint(x),
                                static_cast<float>(sum), std::max({x, y, z}), std::trunc(x),  std::trunc(std::fabs(y)),
                                std::min(x, y),          std::min(y, z),      std::max(x, y), std::max(y, z)};
      INFO(x << " " << y << " " << z);
      for (std::size_t e = 0; e < 12; ++e) CHECK(f(out[12 * i + e]) == f(Half(expected[e]).bits));
    }
  }
}

TEST_CASE("dot products and differences of packed integers") {
  for (const Arch arch : both) {
    Patterns random(8);
    std::vector<u32> a(64), b(64), c(64), out(6 * 64);
    for (auto* values : {&a, &b, &c})
      for (u32& x : *values) x = random.next();
    Toy(arch, "user").in(a).in(b).in(c).out(out).run("dots");
    const auto part = [](u32 word, int bits, int i, bool is_signed) {
      const i32 x = static_cast<i32>(word >> bits * i & ((1u << bits) - 1));
      return is_signed && x >> (bits - 1) ? x - (1 << bits) : x;
    };
    for (std::size_t i = 0; i < 64; ++i) {
      const auto dot = [&](int bits, bool is_signed) {
        u32 sum = c[i];
        for (int e = 0; e < 32 / bits; ++e)
          sum += static_cast<u32>(part(a[i], bits, e, is_signed) * part(b[i], bits, e, is_signed));
        return sum;
      };
      u32 apart = c[i];
      for (int e = 0; e < 4; ++e)
        apart += static_cast<u32>(std::abs(part(a[i], 8, e, false) - part(b[i], 8, e, false)));
      const u32 expected[] = {dot(8, true), dot(8, false), dot(4, true), dot(4, false), dot(16, true), apart};
      for (std::size_t e = 0; e < 6; ++e) CHECK(out[6 * i + e] == expected[e]);
    }
  }
}

}  // namespace user_tests
