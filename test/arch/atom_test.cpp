// SPDX-License-Identifier: MIT
// The lane maps of every atom: each operand and accumulator element has exactly one lane, and two products chain.
#include "tilewave/arch/atom.hpp"

#include <algorithm>
#include <vector>

#include "test/catch_compat.hpp"

namespace tilewave {
namespace {

const std::vector<AtomFacts> atoms = [] {
  std::vector<AtomFacts> all{gfx942_fp8_atom};
  for (const ArchId id : all_archs) all.push_back(atom_of(id));
  return all;
}();

/// Counts how often `map` hits each element of [rows, columns], over all lanes and their `per_lane` elements.
template <class Map>
std::vector<int> hits(const AtomFacts& a, int per_lane, int rows, int columns, Map map) {
  std::vector<int> count(rows * columns, 0);
  for (int lane = 0; lane < a.lanes; ++lane) {
    for (int i = 0; i < per_lane; ++i) {
      const AtomElement e = map(lane, i);
      REQUIRE(e.index >= 0);
      REQUIRE(e.index < rows);
      REQUIRE(e.k >= 0);
      REQUIRE(e.k < columns);
      ++count[e.index * columns + e.k];
    }
  }
  return count;
}

bool each_once(const std::vector<int>& count) {
  return std::all_of(count.begin(), count.end(), [](int n) { return n == 1; });
}

}  // namespace

TEST_CASE("atom maps are bijections") {
  for (const AtomFacts& a : atoms) {
    INFO(name_of(a.arch));
    CHECK(a.lanes == facts_of(a.arch).wave_lanes);
    CHECK(each_once(hits(a, a.k_per_lane, a.kv, a.k, [&](int lane, int e) { return a.kv_operand(lane, e); })));
    CHECK(each_once(hits(a, a.rows_per_lane * a.k_per_lane, a.rows, a.k,
                         [&](int lane, int i) { return a.rows_operand(lane, i); })));
    CHECK(each_once(hits(a, a.rows_per_lane * a.kv_per_lane, a.rows, a.kv,
                         [&](int lane, int i) { return a.accumulator(lane, i); })));
  }
}

TEST_CASE("the bijection check notices a map that repeats an element") {
  const AtomFacts& a = gfx942_atom;
  const auto broken = [&](int lane, int e) { return a.kv_operand(lane, e == 3 ? 2 : e); };
  CHECK_FALSE(each_once(hits(a, a.k_per_lane, a.kv, a.k, broken)));
}

TEST_CASE("lane_of, position and group are inverse to each other") {
  for (const AtomFacts& a : atoms) {
    INFO(name_of(a.arch));
    for (int lane = 0; lane < a.lanes; ++lane) {
      CHECK(a.lane_of(a.position(lane), a.group(lane)) == lane);
      CHECK(a.group(lane) < AtomFacts::groups);
      CHECK(a.position(lane) < a.kv);
    }
    CHECK(AtomFacts::groups * a.kv_per_lane == a.kv);
    CHECK(AtomFacts::groups * a.k_per_lane == a.k);
  }
}

// Documented layouts, copied element by element: CDNA3 and CDNA4 ISA guides "MFMA operand layouts", PTX ISA m16n8k16.
TEST_CASE("atom maps agree with the instruction manuals") {
  // v_mfma_f32_16x16x16_bf16: lane 37 = row 5 of A, k 8..11; its results are column 5, rows 8..11.
  CHECK(gfx942_atom.kv_operand(37, 1).index == 5);
  CHECK(gfx942_atom.kv_operand(37, 1).k == 9);
  CHECK(gfx942_atom.accumulator(37, 3).index == 5);
  CHECK(gfx942_atom.accumulator(37, 3).k == 11);
  // v_mfma_f32_16x16x32_bf16: lane 37 holds k 16..23.
  CHECK(gfx950_atom.rows_operand(37, 7).index == 5);
  CHECK(gfx950_atom.rows_operand(37, 7).k == 23);
  // m16n8k16, lane 13 (group 3, thread 1): a0 a1 = row 3, k 2 3; a2 a3 = row 11; a4 a5 = row 3, k 10 11; b0 b1 = k 2 3,
  // b2 b3 = k 10 11 of column 3; c0 c1 = row 3, columns 2 3; c2 c3 = row 11.
  CHECK(sm90_atom.rows_operand(13, 0).index == 3);
  CHECK(sm90_atom.rows_operand(13, 0).k == 2);
  CHECK(sm90_atom.rows_operand(13, 3).index == 3);
  CHECK(sm90_atom.rows_operand(13, 3).k == 11);
  CHECK(sm90_atom.rows_operand(13, 4).index == 11);
  CHECK(sm90_atom.rows_operand(13, 4).k == 2);
  CHECK(sm90_atom.kv_operand(13, 2).index == 3);
  CHECK(sm90_atom.kv_operand(13, 2).k == 10);
  CHECK(sm90_atom.accumulator(13, 1).index == 3);
  CHECK(sm90_atom.accumulator(13, 1).k == 3);
  CHECK(sm90_atom.accumulator(13, 2).index == 11);
}

// Scores of tile j (KV row p = C*g + c is token x*g + C*j + c) are, element C*j + c of lane group g, what the second
// product reads as ROWS element e: same row, and a k that both operands give the same token.
TEST_CASE("accumulators of score tiles are the rows operand of the next product") {
  for (const AtomFacts& a : atoms) {
    INFO(name_of(a.arch));
    const int C = a.kv_per_lane, E = a.k_per_lane, tiles = E / C, x = E;
    REQUIRE(E % C == 0);
    std::vector<int> token_of_k(a.k, -1);
    for (int lane = 0; lane < a.lanes; ++lane) {
      for (int r = 0; r < a.rows_per_lane; ++r) {
        for (int j = 0; j < tiles; ++j) {
          for (int c = 0; c < C; ++c) {
            const AtomElement score = a.accumulator(lane, r * C + c);
            const AtomElement probability = a.rows_operand(lane, r * E + C * j + c);
            CHECK(score.index == probability.index);
            const int token = x * (score.k / C) + C * j + score.k % C;
            int& known = token_of_k[probability.k];
            if (known == -1) known = token;
            CHECK(known == token);
            // The KV side of that k is held by the lanes of the same group, at the same e.
            CHECK(a.k_of(a.lane_of(0, score.k / C), C * j + c) == probability.k);
          }
        }
      }
    }
    std::sort(token_of_k.begin(), token_of_k.end());
    for (int k = 0; k < a.k; ++k) CHECK(token_of_k[k] == k);
  }
}

}  // namespace tilewave
