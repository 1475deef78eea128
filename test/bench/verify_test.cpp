// SPDX-License-Identifier: MIT
#include "bench/ops/paged_attention/verify.hpp"

#include <cmath>
#include <limits>
#include <vector>

#include "test/catch_compat.hpp"

namespace tilewave::bench {
namespace {

constexpr double inf = std::numeric_limits<double>::infinity();

/// A reference answer of 2 sequences x 2 tokens x 4 heads x 64, and a kernel's answer that rounds it to bf16.
struct Answers {
  PagedAttentionProblem p;
  reference::PagedAttentionResult expected;
  std::vector<std::uint16_t> out;
  std::vector<float> lse;

  Answers() {
    p.batch = 2;
    p.mtp = 2;
    p.num_q_heads = 4;
    p.num_kv_heads = 2;
    p.spec.head_size = 64;
    for (int i = 0; i < 16 * 64; ++i) expected.out.push_back(0.02 * std::sin(i * 0.7) + 0.001);
    for (int i = 0; i < 16; ++i) expected.lse.push_back(6.9 + 0.01 * i);
    round();
  }
  void round() {
    out.clear();
    lse.clear();
    for (const double x : expected.out) out.push_back(f32_to_bf16(static_cast<float>(x)));
    for (const double x : expected.lse) lse.push_back(static_cast<float>(x));
  }
  Verdict verdict(const Tolerance& tolerance = {}) const {
    const auto pairs = reference::all_pairs(p);
    return verify(p, expected, out.data(), lse.data(), tolerance, pairs);
  }
};

TEST_CASE("a correctly rounded answer passes, every element compared") {
  const Answers a;
  const Verdict v = a.verdict();
  CHECK(v.pass);
  CHECK(v.bad == 0);
  CHECK(v.elements == 16 * 64);
  CHECK(v.reason.empty());
  CHECK(v.max_abs_err > 0);
  CHECK(v.max_abs_err <= 0.021 / 256);
  CHECK(v.max_rel_err > 1e-4);
  CHECK(v.max_rel_err < 1.0 / 256);
}

TEST_CASE("one wrong element anywhere fails, and is named") {
  const int at = GENERATE(0, 63, 64, 500, 16 * 64 - 1);
  CAPTURE(at);
  Answers a;
  const auto value =
      GENERATE(1.0f, -1.0f, std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity());
  a.out[at] = f32_to_bf16(value);
  const Verdict v = a.verdict();
  CHECK_FALSE(v.pass);
  CHECK(v.bad >= 1);
  CHECK(v.reason.find("at row " + std::to_string(at / 64 / 4) + ", head " + std::to_string(at / 64 % 4)) !=
        std::string::npos);
  CHECK((std::isfinite(value) ? v.max_abs_err > 0.9 : v.max_abs_err == inf));
}

TEST_CASE("the element tolerance is atol + rtol * |reference|, inclusive") {
  Answers a;
  for (double& x : a.expected.out) x = 1.0;
  a.round();
  const Tolerance elements{.element = 1.0 / 256, .row = 1, .lse = 1};
  a.out[100] = f32_to_bf16(1.0f + 1.0f / 128);  // 2 / 256 = element * (1 + |1|)
  CHECK(a.verdict(elements).pass);
  a.out[100] = f32_to_bf16(1.0f + 2.0f / 128);
  CHECK_FALSE(a.verdict(elements).pass);
  CHECK(a.verdict(elements).bad == 1);
}

TEST_CASE("an error inside the element tolerance is caught by the row norm: one token of 1027 left out") {
  // Outputs of uniform attention over n random rows of V: leaving one out moves them by v / n, far below 8e-3.
  Answers a;
  constexpr int n = 1027;
  for (int d = 0; d < 64; ++d) {
    double sum = 0, last = 0;
    for (int t = 0; t < n; ++t) sum += last = random_uniform(random_bits({7, std::uint64_t(t)}), d);
    a.expected.out[5 * 64 + d] = sum / n;
    a.out[5 * 64 + d] = f32_to_bf16(static_cast<float>((sum - last) / (n - 1)));
  }
  const Verdict v = a.verdict();
  CHECK_FALSE(v.pass);
  CHECK(v.bad == 1);
  CHECK(v.reason.find("norm of out") != std::string::npos);
  CHECK(v.max_abs_err < 8e-3);
  CHECK(v.max_rel_err > 0.02);
  CHECK(a.verdict({.row = 1}).pass);
}

TEST_CASE("a wrong lse fails, one in base 2 included") {
  Answers a;
  for (const float error : {0.002f, 3e-5f}) {  // the latter is an element of K whose exponent is one off
    a.lse[7] += error;
    CHECK_FALSE(a.verdict().pass);
    CHECK(a.verdict().max_lse_err > 0.9f * error);
    a.round();
  }
  for (float& x : a.lse) x *= 1.44269504f;
  CHECK(a.verdict().bad == 16);
}

TEST_CASE("rows that see nothing must be 0 with lse -inf") {
  Answers a;
  for (int d = 0; d < 64; ++d) a.expected.out[3 * 64 + d] = 0;
  a.expected.lse[3] = -inf;
  a.round();
  CHECK(a.verdict().pass);
  SECTION("a tiny value is not 0") {
    a.out[3 * 64 + 9] = f32_to_bf16(1e-6f);
    CHECK_FALSE(a.verdict().pass);
    CHECK(a.verdict().max_rel_err == inf);
  }
  SECTION("a finite lse is not -inf") {
    a.lse[3] = -1e30f;
    CHECK_FALSE(a.verdict().pass);
  }
  SECTION("NaN is neither") {
    a.lse[3] = std::numeric_limits<float>::quiet_NaN();
    CHECK_FALSE(a.verdict().pass);
  }
}

TEST_CASE("only the given pairs are compared") {
  Answers a;
  a.out[0] = f32_to_bf16(1);  // row 0, head 0: pair (0, 0)
  const std::vector<reference::PagedAttentionPair> others{{0, 1}, {1, 0}, {1, 1}}, one{{0, 0}};
  CHECK(verify(a.p, a.expected, a.out.data(), a.lse.data(), {}, others).pass);
  CHECK(verify(a.p, a.expected, a.out.data(), a.lse.data(), {}, others).elements == 12 * 64);
  CHECK_FALSE(verify(a.p, a.expected, a.out.data(), a.lse.data(), {}, one).pass);
}

TEST_CASE("element tolerances are those of the original benchmark") {
  PagedAttentionCase c;
  CHECK(tolerance_of(c).element == 8e-3);
  c.kv_varlen = true;
  CHECK(tolerance_of(c).element == 5e-2);
  c.sliding_window = 1023;
  CHECK(tolerance_of(c).element == 6e-2);
  c.kv_varlen = false;
  CHECK(tolerance_of(c).element == 5e-2);
}

}  // namespace
}  // namespace tilewave::bench
