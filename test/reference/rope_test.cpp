// SPDX-License-Identifier: MIT
// The oracle of rotary position embeddings: angles of each scaling, and a head turned by hand.
#include "tilewave/reference/rope.hpp"

#include <cmath>
#include <vector>

#include "test/catch_compat.hpp"

namespace tilewave {
namespace {

using namespace reference;
using test::Approx;

TEST_CASE("rope: plain and linear angles fall by equal factors") {
  const RopeAngles plain = rope_angles(128, 10000), linear = rope_linear_angles(128, 10000, 4);
  REQUIRE(plain.frequency.size() == 64);
  CHECK(plain.frequency[0] == 1);
  CHECK(plain.frequency[32] == Approx(0.01));
  for (int i = 0; i < 64; ++i) CHECK(linear.frequency[i] == Approx(plain.frequency[i] / 4));
  CHECK(linear.magnitude == 1);
}

TEST_CASE("rope: Llama-3 angles keep short waves and slow long ones") {
  const RopeAngles plain = rope_angles(128, 500000), scaled = rope_llama3_angles(128, 500000, 8, 1, 4, 8192);
  int kept = 0, slowed = 0;
  for (int i = 0; i < 64; ++i) {
    const double wave = 2 * std::numbers::pi / plain.frequency[i], ratio = scaled.frequency[i] / plain.frequency[i];
    if (wave < 8192.0 / 4) {
      CHECK(ratio == Approx(1));
      ++kept;
    } else if (wave > 8192) {
      CHECK(ratio == Approx(1.0 / 8));
      ++slowed;
    } else {
      const double smooth = (8192 / wave - 1) / 3;
      CHECK(ratio == Approx((1 - smooth) / 8 + smooth));
    }
  }
  CHECK(kept == 29);  // of Llama 3.1: 29 kept, 6 between, 29 slowed
  CHECK(slowed == 29);
}

TEST_CASE("rope: YaRN angles ramp between the dimensions of its two speeds") {
  const RopeAngles plain = rope_angles(128, 10000), scaled = rope_yarn_angles(128, 10000, 16, 4096);
  // 32 turns in 4096 positions: dimension 20.9; one turn: 45.02.
  for (int i = 0; i < 64; ++i) {
    const double slowed = i <= 20 ? 0 : i >= 46 ? 1 : (i - 20) / 26.0;
    CHECK(scaled.frequency[i] == Approx(plain.frequency[i] * (slowed / 16 + 1 - slowed)));
  }
  CHECK(scaled.magnitude == Approx(1.2772588722));
}

TEST_CASE("rope: a head of four dimensions turns as by hand, from tables of either width") {
  const float x[] = {1, 2, 3, 4};
  const std::int32_t position = 1;
  for (const RopePairs pairs : {RopePairs::halves, RopePairs::neighbours}) {
    for (const bool full : {false, true}) {
      RopeProblem p;
      p.spec = {DType::f32, DType::f32, pairs, full};
      // Angle 0 is a quarter turn, angle 1 none; row 0 is not asked for.
      const std::vector<float> half_cos{9, 9, 0, 1}, half_sin{9, 9, 1, 0};
      std::vector<float> cos = half_cos, sin = half_sin;
      if (full) {
        cos.assign(8, 9);
        sin.assign(8, 9);
        for (int c = 0; c < 4; ++c) {
          const int angle = rope_angle_of(p.spec, 4, c);
          cos[4 + c] = half_cos[2 + angle];
          sin[4 + c] = half_sin[2 + angle];
        }
      }
      p.q = x;
      p.cos = cos.data();
      p.sin = sin.data();
      p.positions = &position;
      p.tokens = p.q_heads = 1;
      p.head_size = p.rotary = 4;
      p.table_rows = 2;
      p.table_stride = full ? 4 : 2;
      const std::vector<double> turned = rope_head(p, 0, 0);
      CHECK(turned ==
            (pairs == RopePairs::halves ? std::vector<double>{-3, 2, 1, 4} : std::vector<double>{-2, 1, 3, 4}));
      p.table_rows = 1;
      for (const double v : rope_head(p, 0, 0)) CHECK(std::isnan(v));
    }
  }
}

}  // namespace
}  // namespace tilewave
