// SPDX-License-Identifier: MIT
// The tests compare every entry with the reference: by one block and by many, any number of experts and choices, masks,
// ids that are no
// expert, pads; and what holds of any sort of choices.
#include <algorithm>
#include <set>

#include "test/ops/moe_sort/call.hpp"

namespace tilewave::test::moe_sort_tests {
namespace {

/// Runs every entry on every shape, and compares all outputs with the reference.
void each_entry_on(const std::vector<SortShape>& shapes) {
  for (const MoeSortEntry* e : all_moe_sort_entries()) {
    for (const SortShape& s : shapes) {
      INFO(name_of(e->arch) << ": " << s.tokens << " tokens, " << s.topk << " of " << s.experts << ", unit " << s.unit);
      SortCall call(s);
      CHECK(call.run(*e) == "");
      CHECK(call.wrong() == "");
    }
  }
}
bool odd(int expert) { return expert % 2 == 1; }

TEST_CASE("one block sorts the choices of a few tokens") {
  each_entry_on({{.tokens = 1, .topk = 8, .experts = 256},
                 {.tokens = 7, .topk = 5, .experts = 32, .unit = 1, .gap = 3},
                 {.tokens = 16, .topk = 9, .experts = 257, .unit = 16, .spare = 100},
                 {.tokens = 31, .topk = 6, .experts = 64, .unit = 256, .optional = false},
                 {.tokens = 128, .topk = 16, .experts = 1024, .unit = 7, .gap = 1},  // two tiles
                 {.tokens = 3, .topk = 1, .experts = 1, .unit = 5}});
}

TEST_CASE("blocks sort the choices of many tokens through a cluster or a workspace") {
  each_entry_on({{.tokens = 700, .topk = 8, .experts = 256},
                 {.tokens = 129, .topk = 16, .experts = 1024, .unit = 64, .gap = 2, .optional = false},
                 {.tokens = 1500, .topk = 3, .experts = 513, .unit = 1, .spare = 3000, .local = odd}});
}

TEST_CASE("a little more than one launch sorts takes a workspace") {
  for (const MoeSortEntry* e : all_moe_sort_entries()) {
    for (const int beyond : {0, 3}) {
      SortCall call({.tokens = e->policy.tiles_alone * e->policy.tile() / 16 + beyond, .topk = 16, .experts = 130});
      CHECK((moe_sort_workspace_size(call.p, e->policy) > 0) == (beyond > 0));
      CHECK(call.run(*e) == "");
      CHECK(call.wrong() == "");
    }
  }
}

TEST_CASE("every block takes several tiles where there are many more than blocks") {
  const MoeSortEntry* const first = all_moe_sort_entries()[0];
  const std::int32_t tokens = (most_sort_blocks * first->policy.tile() + 9) / 2;
  each_entry_on({{.tokens = tokens, .topk = 2, .experts = 40, .unit = 128, .local = [](int e) { return e % 3 != 0; }}});
}

TEST_CASE("a million tokens are sorted", "[full]") {
  each_entry_on({{.tokens = 1 << 20, .topk = 2, .experts = 384, .unit = 32}});
}

TEST_CASE("no tokens leave pads alone, and nothing is sorted to no expert") {
  each_entry_on({{.tokens = 0, .topk = 8, .experts = 256, .spare = 70},
                 {.tokens = 0, .topk = 1, .experts = 3, .unit = 1},
                 {.tokens = 40, .topk = 4, .experts = 16, .local = [](int) { return false; }},
                 {.tokens = 40, .topk = 4, .experts = 16, .id = [](int t, int s) { return t % 2 ? -1 - s : 16 + t; }},
                 {.tokens = 40, .topk = 4, .experts = 16, .gap = 2, .local = odd, .id = [](int t, int s) {
                    constexpr std::int32_t most = 0x7fffffff, ids[] = {-most - 1, most, 1 << 11, 1024, 16, 5};
                    return ids[(t + s) % 6];
                  }}});
}

TEST_CASE("all tokens may choose one expert, and experts have none") {
  std::vector<SortShape> shapes;
  for (const int tokens : {60, 2000}) {
    shapes.push_back({.tokens = tokens, .topk = 1, .experts = 300, .unit = 16, .id = [](int, int) { return 277; }});
    shapes.push_back({.tokens = tokens, .topk = 2, .experts = 8, .unit = 1, .id = [](int, int s) { return 7 * s; }});
    // Ids outside of all experts among the others.
    shapes.push_back({.tokens = tokens, .topk = 4, .experts = 12, .local = odd, .id = [](int t, int s) {
                        return (t * 5 + s * 3) % 17 - 2;
                      }});
  }
  for (SortShape& s : shapes) s.gap = 1;
  each_entry_on(shapes);
}

TEST_CASE("sorted choices are a permutation in order, whole units to an expert") {
  for (const MoeSortEntry* e : all_moe_sort_entries()) {
    for (const int tokens : {50, 900}) {
      const SortShape s{.tokens = tokens, .topk = 6, .experts = 96, .unit = 32, .local = odd};
      SortCall call(s);
      REQUIRE(call.run(*e) == "");
      const std::vector<std::int32_t> ids = call.sorted_ids(), experts = call.expert_ids(), rows = call.rows();
      const std::vector<std::int32_t> offsets = call.offsets(), counts = call.counts();
      const int total = call.post_pad()[0];
      CHECK(total % s.unit == 0);
      std::set<std::int32_t> seen;
      std::vector<int> found(s.experts);
      for (int row = 0; row < total; ++row) {
        const int token = ids[row] & 0xffffff, slot = ids[row] >> 24, local = experts[row / s.unit];
        CHECK(local >= 0);
        CHECK(row >= offsets[local]);
        CHECK(row < offsets[local + 1]);
        if (token == tokens) {
          CHECK(slot == s.topk);
          continue;
        }
        CHECK(seen.insert(ids[row]).second);
        CHECK(call.ids[token * s.topk + slot] == 2 * local + 1);  // the odd ones are local
        CHECK(rows[token * s.topk + slot] == row);
        const std::int32_t before = row > offsets[local] ? ids[row - 1] : -1;
        if (before >= 0) CHECK((before & 0xffffff) * s.topk + (before >> 24) < token * s.topk + slot);
        ++found[local];
      }
      CHECK(found == counts);
      CHECK(std::count(rows.begin(), rows.end(), -1) == static_cast<std::int64_t>(rows.size() - seen.size()));
    }
  }
}

TEST_CASE("a sort is the same under every schedule") {
  for (const MoeSortEntry* e : all_moe_sort_entries()) {
    each_schedule([&] {
      for (const int tokens : {40, 270}) {
        SortCall call({.tokens = tokens, .topk = 8, .experts = 33, .unit = 4});
        CHECK(call.run(*e) == "");
        CHECK(call.wrong() == "");
      }
    });
  }
}

}  // namespace
}  // namespace tilewave::test::moe_sort_tests
