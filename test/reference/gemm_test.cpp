// SPDX-License-Identifier: MIT
// The oracle of GEMM against sums worked out by hand.
#include "tilewave/reference/gemm.hpp"

#include <cmath>
#include <vector>

#include "test/catch_compat.hpp"

namespace tilewave {
namespace {

std::vector<std::uint8_t> fp8(std::initializer_list<float> values) {
  std::vector<std::uint8_t> codes;
  for (const float v : values) codes.push_back(f32_to_fp8(DType::fp8_e4m3fn, v));
  return codes;
}

TEST_CASE("a product with everything an epilogue has") {
  const std::vector<float> bias{0.5f, -2}, residual{10, 20, 99, 30, 40};
  std::vector<std::uint16_t> a, b;
  for (const float v : {1.f, 2.f, 3.f, 77.f, -1.f, 0.f, 4.f}) a.push_back(f32_to_bf16(v));
  for (const float v : {2.f, 1.f, 0.f, 1.f, 1.f, -3.f}) b.push_back(f32_to_bf16(v));
  GemmProblem p;
  p.spec = {.out = DType::f32, .activation = ActivationKind::relu};
  p.a = a.data(), p.b = b.data(), p.bias = bias.data(), p.residual = residual.data();
  p.m = 2, p.n = 2, p.k = 3;
  p.a_stride = 4, p.b_stride = 3, p.residual_stride = 3;
  p.alpha = 0.5f;
  const reference::Gemm gemm(p);
  CHECK(gemm.at(0, 0, 0).value == 0.5 * 4 + 0.5 + 10);
  CHECK(gemm.at(0, 0, 1).value == 0 + 20);  // 0.5 * -6 - 2 is below 0
  CHECK(gemm.at(0, 0, 1).magnitude == 0.5 * 12 + 2 + 20);
  CHECK(gemm.at(0, 1, 0).value == 0 + 30);
  p.spec.activation = ActivationKind::silu;
  CHECK(gemm.at(0, 0, 0).value == test::Approx(2.5 / (1 + std::exp(-2.5)) + 10).epsilon(1e-12));
}

TEST_CASE("block scales count from 128 to 128, groups have rows of their own") {
  constexpr int k = 144;
  std::vector<std::uint8_t> a(3 * k, 0), b(2 * k * 2, 0);
  const auto one = fp8({1})[0], two = fp8({2})[0];
  for (int row = 0; row < 3; ++row) a[row * k + 127] = a[row * k + 128] = one;
  for (int row = 0; row < 4; ++row) b[row * k + 127] = two, b[row * k + 128] = one;
  const std::vector<float> a_scale{1, 10, 2, 20, 3, 30}, b_scale{100, 1000, 7, 5};
  const std::vector<std::int32_t> offsets{0, 1, 3};
  GemmProblem p;
  p.spec = {.a = DType::fp8_e4m3fn, .b = DType::fp8_e4m3fn, .scale = Scaling::per_block};
  p.spec.groups = GemmGroups::contiguous;
  p.a = a.data(), p.b = b.data(), p.a_scale = a_scale.data(), p.b_scale = b_scale.data();
  p.group_offsets = offsets.data();
  p.m = 3, p.n = 2, p.k = k, p.groups = 2;
  p.a_stride = p.b_stride = k, p.b_batch_stride = 2 * k;
  p.a_scale_stride = 2, p.a_scale_k_stride = 1;
  p.b_scale_stride = 2, p.b_scale_k_stride = 1, p.b_scale_batch_stride = 2;
  const reference::Gemm gemm(p);
  CHECK(gemm.at(0, 0, 1).value == 2 * 1 * 100 + 1 * 10 * 1000);
  CHECK(gemm.at(1, 2, 0).value == 2 * 3 * 7 + 1 * 30 * 5);
  CHECK(gemm.first_row(1) == 1);
  CHECK(gemm.end_row(1) == 3);
}

TEST_CASE("preshuffled weights: units of 16 rows lie together") {
  CHECK(reference::preshuffled_index(0, 0, 64, DType::bf16) == 0);
  CHECK(reference::preshuffled_index(1, 0, 64, DType::bf16) == 8);
  CHECK(reference::preshuffled_index(0, 8, 64, DType::bf16) == 128);
  CHECK(reference::preshuffled_index(17, 9, 64, DType::bf16) == 16 * 64 + 128 + 8 + 1);
  CHECK(reference::preshuffled_index(15, 31, 64, DType::fp8_e4m3fn) == 256 + 15 * 16 + 15);
}

}  // namespace
}  // namespace tilewave
