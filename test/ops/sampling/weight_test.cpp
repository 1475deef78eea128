// SPDX-License-Identifier: MIT
// Weights against powers of two in double, and the whole numbers around them.
#include "tilewave/ops/sampling/weight.hpp"

#include <cmath>
#include <limits>

#include "test/catch_compat.hpp"
#include "tilewave/arch/backend.hpp"

namespace tilewave::test {
namespace {

constexpr float inf = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();

/// The primitives of a room that weights take. Rooms have other reciprocals.
template <int ulp>
struct Plain {
  static float subtract(float a, float b) { return a - b; }
  static Vec<float, 2> subtract(const Vec<float, 2>& a, const Vec<float, 2>& b) { return {{a[0] - b[0], a[1] - b[1]}}; }
  static Vec<float, 2> fused(const Vec<float, 2>& a, const Vec<float, 2>& b, const Vec<float, 2>& c) {
    return {{std::fma(a[0], b[0], c[0]), std::fma(a[1], b[1], c[1])}};
  }
  static float reciprocal(float x) {
    return __builtin_bit_cast(float, __builtin_bit_cast(std::uint32_t, 1.0f / x) + ulp);
  }
};
using Exact = Plain<0>;

TEST_CASE("a weight is a power of two within 2e-7, or one") {
  for (const float scale : {1.0f, 1.4426950408889634f, 0.37f}) {
    for (const float largest : {0.0f, 0.3f, 31.5f, -7.25f, 2500.0f, 1e5f}) {
      const Weigher<Exact> weigher(largest, scale);
      CHECK(weigher.plain == (largest < 1e4f));
      std::uint32_t before = weigher.weight(largest);
      for (int i = 0; i < 40000; ++i) {
        const float x = largest - 0.001f * static_cast<float>(i);
        const std::uint32_t weight = weigher.weight(x);
        const double wanted = std::exp2(31 + double{weigher.exponent(x)});
        const double exponent = (double{x} - weigher.base) * scale - weigher.shift;
        const bool near = std::abs(weigher.exponent(x) - exponent) <= 6e-8 * std::abs(exponent) + 1e-12;
        const bool right = std::abs(weight - wanted) <= wanted * (2e-7 + 5e-8 * std::abs(exponent)) + 1;
        const bool falls = weight <= before + before / 0x400000;
        if (!near || !right || !falls)
          FAIL("scale " << scale << ", largest " << largest << ", x " << x << ": " << weight);
        before = weight;
      }
      CHECK(std::abs(weigher.exponent(largest)) <= 0.5f + 1e-6f);
    }
  }
}

TEST_CASE("what is far below, -inf or NaN weighs nothing, infinity what its equals do") {
  for (const float scale : {1e-30f, 1.4426950408889634f, 1.4e5f}) {
    for (const float largest : {0.0f, -40.0f, 2800.0f, 3e38f, -3e38f}) {
      const Weigher<Exact> weigher(largest, scale);
      CAPTURE(scale, largest, weigher.plain);
      CHECK(weigher.weight(largest) >= 1518500249u);  // 2^30.5
      CHECK(weigher.weight(-inf) == 0);
      CHECK(weigher.weight(nan) == 0);
      if (weigher.plain) CHECK(weigher.weight(weigher.lowest) == 0);
      if (scale > 1) CHECK(weigher.weight(-std::numeric_limits<float>::max()) == 0);
    }
  }
  const Weigher<Exact> weigher(inf, 1.0f);
  CHECK(weigher.weight(inf) == 1u << 31);
  CHECK(weigher.exponent(inf) == 0);
  for (const float x : {3e38f, 0.0f, -inf, nan}) CHECK(weigher.weight(x) == 0);
}

TEST_CASE("rooms whose reciprocals differ weigh alike") {
  for (int i = 0; i < 200; ++i) {
    const float largest = 0.37f * static_cast<float>(i * i % 8191), scale = 0.01f + 0.09f * static_cast<float>(i % 31);
    const Weigher<Exact> exact(largest, scale);
    const Weigher<Plain<2>> above(largest, scale);
    const Weigher<Plain<-2>> below(largest, scale);
    for (int j = 0; j < 100; ++j) {
      const float x = largest - 0.5f * static_cast<float>(j) / scale;
      CAPTURE(largest, scale, x);
      REQUIRE(exact.weight(x) == above.weight(x));
      REQUIRE(exact.weight(x) == below.weight(x));
    }
  }
}

template <DType X>
void check_order(std::initializer_list<float> ascending) {
  using Order = LogitOrder<X>;
  std::uint32_t before = 0;
  for (const float x : ascending) {
    CAPTURE(x);
    CHECK(Order::key(x) > before);
    CHECK(Order::logit(Order::key(x)) == x);
    before = Order::key(x);
  }
}

TEST_CASE("keys order the logits of a type, in steps of 1") {
  check_order<DType::f32>({-inf, -3e38f, -1.0f, -1e-45f, 0.0f, 1e-45f, 1.0f, 3e38f, inf});
  check_order<DType::f16>({-inf, -65504.0f, -1.0f, -0x1p-24f, 0.0f, 0x1p-24f, 1.0f, 65504.0f, inf});
  check_order<DType::bf16>({-inf, -0x1.fep127f, -1.0f, -0x1p-133f, 0.0f, 0x1p-133f, 1.0f, 0x1.fep127f, inf});
  CHECK(LogitOrder<DType::bf16>::key(1.0f) + 1 == LogitOrder<DType::bf16>::key(1.0078125f));
  CHECK(LogitOrder<DType::f16>::key(-1.0f) - 1 == LogitOrder<DType::f16>::key(-1.0009765625f));
  CHECK(next_above(1.0f) == 0x1.000002p0f);
  CHECK(next_above(-1.0f) == -0x1.fffffep-1f);
  CHECK(next_above(0.0f) == 0x1p-149f);
  CHECK(next_above(-0.0f) == 0x1p-149f);
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
  CHECK(least_weight(1000, 0.25f) == 250);
  CHECK(least_weight(1000, 0.0f) == 0);
  CHECK(least_weight(1000, nan) == 0);
  for (const float p : {1.0f, 2.0f, inf}) CHECK(least_weight(0xb504f333u, p) == 0xb504f333u);
  for (std::uint32_t i = 0; i < 1000; ++i) REQUIRE(multiply_high(drawn_bits(1, 2, 3, i), 7) < 7);
  CHECK(drawn_bits(1, 2, 3, 4) != drawn_bits(1, 2, 4, 3));
}

}  // namespace
}  // namespace tilewave::test
