// SPDX-License-Identifier: MIT
// The tests compare every entry with the reference in double: any number of experts and choices, ties, -inf and NaN,
// bias, groups.

#include "test/ops/topk_gating/call.hpp"

namespace tilewave::test::topk_gating_tests {
namespace {

constexpr float inf = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
using enum GatingScore;

/// f(entry, shape) until one has an error.
template <class Shapes>
void each_entry_on(const Shapes& shapes) {
  each_gating_entry([&](const TopkGatingEntry& e) {
    for (const GatingShape& s : shapes) {
      const std::string error = error_of(facts_of(e.arch), e.spec, &e, s);
      if (error != "") {
        return std::to_string(s.experts) + " experts, " + std::to_string(s.topk) + " choices: " + error;
      }
    }
    return std::string();
  });
}
/// The same by the entries that are selected.
template <class Shapes>
void each_spec_on(const Shapes& shapes) {
  const TopkGatingEntry* last = nullptr;
  for (const TopkGatingEntry* e : all_topk_gating_entries()) {
    if (last != nullptr && last->arch == e->arch && last->spec == e->spec) continue;
    last = e;
    for (const GatingShape& s : shapes) {
      INFO(name_of(e->arch) << "/" << name_of(e->spec) << ": " << s.experts << " experts, " << s.topk << " choices");
      CHECK(error_of(facts_of(e->arch), e->spec, nullptr, s) == "");
    }
  }
}
float some_bias(int e) { return 0.5f * drawn('b', 0, e); }

TEST_CASE("every gating entry chooses as the reference does") {
  std::vector<GatingShape> shapes;
  int turn = 0;
  for (const auto& [experts, topk] : {std::pair{8, 2}, {128, 6}, {256, 8}, {1024, 16}, {257, 9}, {24, 8}, {7, 3}}) {
    GatingShape s{.tokens = 3 + turn, .experts = experts, .topk = topk, .gap = turn % 3 == 0 ? 8 : 0};
    s.score = turn % 2 ? sigmoid : softmax;
    s.renormalise = turn % 3 == 1;
    s.scale = turn % 4 == 2 ? 2.5f : 1.0f;
    shapes.push_back(s);
    s.bias = some_bias;
    s.pairs = false;
    shapes.push_back(s);
    ++turn;
  }
  each_entry_on(shapes);
}

TEST_CASE("an entry is selected for any number of experts and choices") {
  std::vector<GatingShape> shapes;
  for (const int experts : {8, 9, 16, 32, 63, 64, 129, 160, 385, 513, 896, 1000, 1024}) {
    for (const int topk : {1, 8, 16}) {
      if (topk <= experts) shapes.push_back({.tokens = 4, .experts = experts, .topk = topk, .renormalise = true});
    }
  }
  for (const int all : {1, 2, 5, 8, 13, 16}) {
    shapes.push_back({.experts = all, .topk = all});  // every expert is chosen, in order
    shapes.push_back({.experts = all, .topk = all, .score = sigmoid, .renormalise = true, .bias = some_bias});
  }
  each_spec_on(shapes);
}

TEST_CASE("gating sweeps over random shapes", "[full]") {
  std::vector<GatingShape> shapes;
  for (std::uint64_t i = 0; i < 300; ++i) {
    const auto draw = [&](std::uint64_t what, int count) {
      return static_cast<int>(bench::random_below(bench::random_bits({i, what}), count));
    };
    GatingShape s;
    const int size = 1 + draw(0, 40);
    s.groups = 1 + draw(1, std::min(1024 / size, 32));
    s.kept_groups = 1 + draw(2, s.groups);
    s.experts = size * s.groups;
    s.topk = 1 + draw(3, std::min(16, size * s.kept_groups));
    s.group_score = size > 1 && draw(4, 2) ? GroupScore::two_best : GroupScore::best;
    s.score = draw(5, 2) ? sigmoid : softmax;
    s.renormalise = draw(6, 2);
    s.tokens = 1 + draw(7, 9);
    s.gap = draw(8, 3) * 4;
    if (draw(9, 2)) s.bias = some_bias;
    s.logit = [i](int t, int e) { return 2.0f * drawn('x', std::int64_t(i) * 100 + t, e); };
    shapes.push_back(s);
  }
  each_spec_on(shapes);
}

TEST_CASE("of equal logits the lower indices are chosen") {
  std::vector<GatingShape> shapes{{.experts = 256, .topk = 8, .logit = [](int, int) { return 0.5f; }},
                                  {.experts = 1024, .topk = 16, .logit = [](int, int) { return -3.0f; }},
                                  {.experts = 8, .topk = 8, .logit = [](int, int) { return 0.0f; }},
                                  // in every other lane, -0 and +0 alike
                                  {.experts = 256, .topk = 8, .logit = [](int t, int e) {
                                     return e % 32 != 7 + t ? -1.0f : e % 64 == 7 + t ? -0.0f : 0.0f;
                                   }}};
  GatingShape biased = shapes[0];
  biased.score = sigmoid;
  biased.bias = [](int e) { return e % 100 == 99 ? 0.25f : 0.0f; };
  shapes.push_back(biased);
  each_entry_on(shapes);

  GatingCall call({DType::bf16}, shapes[0]);
  REQUIRE(call.run(facts_of(all_topk_gating_entries()[0]->arch)) == "");
  CHECK(call.indices(0) == std::vector<std::int32_t>{0, 1, 2, 3, 4, 5, 6, 7});
  CHECK(call.weight(0, 7) == 1.0f / 256);
  GatingCall ties({DType::bf16}, biased);
  REQUIRE(ties.run(facts_of(all_topk_gating_entries()[0]->arch)) == "");
  CHECK(ties.indices(0) == std::vector<std::int32_t>{99, 199, 0, 1, 2, 3, 4, 5});
}

TEST_CASE("gating ranks -inf behind numbers and NaN behind -inf, and chooses each expert once") {
  std::vector<GatingShape> shapes;
  for (const int experts : {8, 257, 1024}) {
    for (const GatingScore score : {softmax, sigmoid}) {
      GatingShape s{.tokens = 6, .experts = experts, .topk = std::min(8, experts), .score = score};
      s.logit = [=](int t, int e) {
        switch (t) {
          case 0: return nan;
          case 1: return -inf;
          case 2: return e % 2 ? nan : -inf;
          case 3: return e == experts - 1 ? 1.0f : nan;
          case 4: return e == 3 ? -inf : e < 3 ? 0.25f * static_cast<float>(e) : e < 7 ? nan : -inf;
          default: return e % 3 == 0 ? nan : static_cast<float>(e % 7);
        }
      };
      shapes.push_back(s);
      s.renormalise = true;
      shapes.push_back(s);
      s.bias = [](int e) { return e == 5 ? nan : e == 1 ? -inf : 0.125f * static_cast<float>(e % 4); };
      shapes.push_back(s);
    }
  }
  each_entry_on(shapes);

  GatingCall call({DType::f32}, shapes[0]);
  REQUIRE(call.run(facts_of(all_topk_gating_entries()[0]->arch)) == "");
  CHECK(call.indices(2) == std::vector<std::int32_t>{0, 2, 4, 6, 1, 3, 5, 7});
  CHECK(call.indices(4) == std::vector<std::int32_t>{2, 1, 0, 3, 7, 4, 5, 6});
  CHECK(call.weight(1, 0) == 0.0f);
  CHECK(std::isnan(call.weight(0, 0)));
}

TEST_CASE("a bias makes unlikely experts chosen, with the weights they have without it") {
  for (const GatingScore score : {softmax, sigmoid}) {
    GatingShape s{.experts = 256, .topk = 8, .score = score, .renormalise = true, .scale = 2.5f};
    s.logit = [](int, int e) { return e < 8 ? 4.0f : -2.0f; };
    s.bias = [](int e) { return e >= 100 && e < 108 ? 3.0f + 0.125f * static_cast<float>(e) : 0.0f; };
    each_entry_on(std::vector{s});
    GatingCall call({DType::bf16}, s);
    REQUIRE(call.run(facts_of(all_topk_gating_entries()[0]->arch)) == "");
    CHECK(call.indices(1) == std::vector<std::int32_t>{107, 106, 105, 104, 103, 102, 101, 100});
    for (int slot = 0; slot < 8; ++slot) CHECK(call.weight(1, slot) == Approx(2.5 / 8));
  }
}

TEST_CASE("gating chooses from the best groups alone") {
  std::vector<GatingShape> shapes;
  struct {
    int experts, groups, kept, topk;
  } const sizes[] = {{256, 8, 4, 8}, {160, 8, 3, 6}, {64, 8, 8, 8}, {16, 16, 5, 5}, {1024, 32, 4, 16}, {30, 3, 1, 10}};
  for (const auto& [experts, groups, kept, topk] : sizes) {
    for (const bool biased : {false, true}) {
      GatingShape s{.tokens = 7,
                    .experts = experts,
                    .topk = topk,
                    .score = biased ? sigmoid : softmax,
                    .renormalise = biased,
                    .groups = groups,
                    .kept_groups = kept};
      if (biased) s.bias = some_bias;
      shapes.push_back(s);
      if (groups == experts) continue;
      s.group_score = GroupScore::two_best;
      shapes.push_back(s);
    }
  }
  // Group 2 has the best expert, group 5 the best two; all equal; groups of NaN and -inf.
  GatingShape s{.tokens = 4, .experts = 64, .topk = 4, .score = sigmoid, .groups = 8, .kept_groups = 1};
  s.logit = [](int t, int e) {
    if (t == 1) return 1.0f;
    if (t == 2) return e < 48 ? nan : -inf;
    if (t == 3) return e < 56 ? nan : 0.5f;
    return e == 17 ? 3.0f : e == 41 || e == 43 ? 2.0f : -4.0f;
  };
  shapes.push_back(s);
  s.group_score = GroupScore::two_best;
  shapes.push_back(s);
  // A bias forces an expert and masks its neighbours: the best two of group 0 are +inf and -inf.
  GatingShape forced{.tokens = 6, .experts = 64, .topk = 4, .score = sigmoid, .groups = 8, .kept_groups = 2};
  forced.bias = [](int e) { return e == 3 ? inf : e < 8 ? -inf : 0.0f; };
  shapes.push_back(forced);
  forced.group_score = GroupScore::two_best;
  shapes.push_back(forced);
  each_entry_on(shapes);
  each_spec_on(shapes);

  GatingCall kept({DType::bf16}, forced);
  REQUIRE(kept.run(facts_of(all_topk_gating_entries()[0]->arch)) == "");
  for (int t = 0; t < forced.tokens; ++t) {
    std::set<int> of;
    for (const int expert : kept.indices(t)) of.insert(expert / 8);
    CHECK(kept.index(t, 0) == 3);
    CHECK(of.size() == 2);
  }
  GatingCall call({DType::bf16}, s);
  REQUIRE(call.run(facts_of(all_topk_gating_entries()[0]->arch)) == "");
  CHECK(call.indices(0) == std::vector<std::int32_t>{41, 43, 40, 42});
  CHECK(call.indices(1) == std::vector<std::int32_t>{0, 1, 2, 3});
}

TEST_CASE("tokens of a gating may start beyond 2^31 and 2^32 elements") {
  if (!has_memory(std::size_t{128} << 30)) return;
  const std::int64_t gap = (std::int64_t{1} << 31) + 640;
  each_spec_on(std::vector<GatingShape>{{.tokens = 3, .experts = 128, .topk = 8, .gap = gap, .bias = some_bias}});
}

TEST_CASE("gating gives the same bits under every schedule, and none for no token") {
  each_gating_entry([](const TopkGatingEntry& e) {
    std::string error;
    GatingShape s{.tokens = 9, .experts = 192, .topk = 8, .groups = 8, .kept_groups = 3, .bias = some_bias};
    GatingCall first(e.spec, s);
    if (!topk_gating_takes(e.policy, first.p)) return error;
    error += first.run(facts_of(e.arch), &e);
    each_schedule([&] {
      GatingCall again(e.spec, s);
      error += again.run(facts_of(e.arch), &e);
      for (int t = 0; t < s.tokens; ++t)
        for (int slot = 0; slot < s.topk; ++slot) {
          const bool same =
              again.index(t, slot) == first.index(t, slot) && again.weight(t, slot) == first.weight(t, slot);
          if (!same) error += " other bits at token " + std::to_string(t);
        }
    });
    s.tokens = 0;
    GatingCall none(e.spec, s);
    return error + none.run(facts_of(e.arch), &e);
  });
}

}  // namespace
}  // namespace tilewave::test::topk_gating_tests
