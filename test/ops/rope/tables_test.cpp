// SPDX-License-Identifier: MIT
// Frequencies of models' configs, against numbers that transformers' formulas give in double, and the tables of them.
#include "tilewave/ops/rope/tables.hpp"

#include "test/catch_compat.hpp"
#include "tilewave/reference/rope.hpp"

namespace tilewave::test {
namespace {

bool near(double value, double right) { return std::fabs(value - right) <= 1e-12 * std::fabs(right); }

TEST_CASE("frequencies are powers of theta, divided by a linear factor") {
  const RopeFrequencies plain{.theta = 10000.0}, linear{.theta = 10000.0, .factor = 8.0};
  CHECK(plain.of_pair(0, 128) == 1.0);
  CHECK(near(plain.of_pair(1, 128), 0.8659643233600653));
  CHECK(near(plain.of_pair(32, 128), 0.01));
  CHECK(near(linear.of_pair(32, 128), 0.00125));
}

TEST_CASE("llama3 keeps short waves, divides long ones, and does both in part in between") {
  RopeFrequencies rope{.theta = 500000.0, .scaling = RopeScaling::llama3, .factor = 8.0};  // as Llama 3.1 has it
  CHECK(rope.of_pair(0, 128) == 1.0);
  CHECK(near(rope.of_pair(28, 128), 0.003211445994752591));
  CHECK(near(rope.of_pair(32, 128), 0.0005248461609929547));
  CHECK(near(rope.of_pair(63, 128), 3.068925988914511e-07));
}

TEST_CASE("yarn ramps over dimensions, whole ones or not") {
  RopeFrequencies rope{.theta = 150000.0, .scaling = RopeScaling::yarn, .factor = 32.0};  // as gpt-oss has it
  rope.original_positions = 4096.0, rope.truncate = false;
  CHECK(rope.of_pair(0, 64) == 1.0);
  CHECK(near(rope.of_pair(12, 64), 0.006794959489732219));
  CHECK(near(rope.of_pair(31, 64), 3.0235114281192144e-07));
  rope.truncate = true;
  CHECK(near(rope.of_pair(12, 64), 0.007015713910504388));
}

TEST_CASE("frequencies of all pairs are the reference's") {
  const auto same = [](const RopeFrequencies& rope, const reference::RopeAngles& right) {
    for (int i = 0; i < 64; ++i) CHECK(near(rope.of_pair(i, 128), right.frequency[i]));
  };
  RopeFrequencies rope{.theta = 500000.0, .factor = 4.0};
  same(rope, reference::rope_linear_angles(128, 500000.0, 4.0));
  rope.scaling = RopeScaling::llama3;
  same(rope, reference::rope_llama3_angles(128, 500000.0, 4.0, 1.0, 4.0, 8192.0));
  rope.scaling = RopeScaling::yarn;
  same(rope, reference::rope_yarn_angles(128, 500000.0, 4.0, 8192.0));
}

TEST_CASE("tables have a row for each position, and yarn's factor in both") {
  RopeFrequencies rope{.theta = 100.0};
  rope.attention_factor = 1.5;
  const RopeTables tables = rope_tables(rope, 4, 3);
  REQUIRE(tables.cos.size() == 6);
  REQUIRE(tables.sin.size() == 6);
  CHECK(tables.cos[0] == 1.5f);
  CHECK(tables.sin[1] == 0.0f);
  CHECK(tables.cos[4] == static_cast<float>(1.5 * std::cos(2.0)));
  CHECK(tables.sin[5] == static_cast<float>(1.5 * std::sin(0.2)));
}

}  // namespace
}  // namespace tilewave::test
