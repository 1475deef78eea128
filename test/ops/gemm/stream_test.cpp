// SPDX-License-Identifier: MIT
// Tests of stream-K: which block has which stages, sums that are right and reproducible wherever tiles are cut, and
// what is refused.
#include <set>

#include "entries/gemm.hpp"
#include "test/ops/gemm/call.hpp"

namespace tilewave::test {
namespace {

template <class F>
void each_streamed(const F& f) {
  int found = 0;
  for (const GemmEntry* const entry : all_gemm_entries()) {
    if (!entry->policy.stream) continue;
    INFO(name_of(entry->spec) << " " << name_of(entry->policy));
    f(*entry);
    ++found;
  }
  const auto of_sm90 = [](const GemmEntry* e) { return e->arch == ArchId::sm90; };
  const auto all = all_gemm_entries();
  CHECK((found > 0) == std::any_of(all.begin(), all.end(), of_sm90));
}

constexpr int at_a_time = 132;  // blocks

TEST_CASE("every stage of tiles that fill no round is one block's, partials have numbers of their own") {
  for (const std::int64_t tiles : {1, 2, 7, 66, 131, 132, 133, 199, 263, 264, 265, 288, 1000}) {
    for (const std::int32_t neighbours : {1, 2, 8, 12}) {
      for (const std::int32_t k_steps : {0, 1, 2, 3, 7, 64, 1023, 16'000'000, 200'000'000}) {
        INFO(tiles << " tiles of " << k_steps << ", " << neighbours << " side by side");
        const auto s = GemmStream::of(tiles, at_a_time, k_steps, neighbours);
        const std::int32_t rest = tiles % at_a_time, run_tiles = s.run_tiles.divisor;
        CHECK((neighbours % run_tiles == 0 && s.tail % run_tiles == 0 && s.whole % run_tiles == 0));
        const std::int64_t run_stages = std::int64_t{rest / std::gcd(rest, std::gcd(neighbours, at_a_time))} * k_steps;
        CHECK(s.whole + s.tail == tiles);
        CHECK(s.tail == (run_stages > 0 && run_stages < std::int64_t{1} << 31 ? rest : 0));
        CHECK(s.blocks() <= at_a_time);
        if (s.tail == 0) CHECK((s.partial_count() == 0 && s.blocks() == 0));
        std::vector<std::int64_t> stages(s.tail);  // seen so far
        std::set<std::int32_t> numbers;
        std::int64_t fewest = run_stages, most = 0;
        for (std::int32_t block = 0; block < at_a_time; ++block) {
          std::int64_t block_stages = 0;
          for (GemmStream::TailWork work(s, block); work.next();) {
            REQUIRE((work.tile >= 0 && work.tile < s.tail && work.first < work.end && work.end <= k_steps));
            REQUIRE(work.first == stages[work.tile]);
            const GemmStream::Partials partials = s.partials_of(work.tile);
            CHECK(work.whole() == (partials.count == 1));
            CHECK(((work.partial - partials.first) % run_tiles == 0 && work.partial >= partials.first));
            CHECK((work.partial - partials.first) / run_tiles < partials.count);
            CHECK(work.partial < s.partial_count());
            CHECK(numbers.insert(work.partial).second);
            stages[work.tile] = work.end;
            block_stages += work.end - work.first;
          }
          CHECK((block_stages > 0) == (block < s.blocks()));
          if (block_stages > 0) fewest = std::min(fewest, block_stages);
          most = std::max(most, block_stages);
        }
        if (s.tail == 0) continue;
        CHECK(std::count(stages.begin(), stages.end(), k_steps) == s.tail);
        CHECK((most - fewest <= 1 && most <= k_steps));
        CHECK((s.blocks() == s.tail || fewest >= GemmStream::min_stages));
      }
    }
  }
}

/// A row of A has a single 1, which picks one k of a row of B. So a stage that is left out or counted twice shows.
float picking(char tensor, std::int64_t r, std::int64_t c) {
  if (tensor == 'a') return float(c == 37 * r % 1213);
  if (tensor == 'b') return float((3 * r + 5 * c) % 16 - 8);
  return 1.0f;
}

/// Returns a product of so many tiles below each other, one tile wide, with ragged edges.
GemmShape column(const GemmEntry& e, std::int32_t tiles, std::int32_t k_steps) {
  const std::int32_t step = e.policy.depth_bytes / size_of(e.spec.a);
  return {.m = tiles * e.policy.rows - 3, .n = e.policy.columns - 5, .k = k_steps * step - 9, .gap = 3};
}

TEST_CASE("tiles are right wherever they are cut") {
  each_streamed([](const GemmEntry& e) {
    const std::int32_t step = e.policy.depth_bytes / size_of(e.spec.a);
    std::vector<GemmShape> shapes{column(e, 1, 1), column(e, 1, 9), column(e, 2, 10)};
    if (e.policy.columns == 128 && e.spec == GemmSpec{}) {
      shapes.push_back(column(e, 5, 18));  // Blocks end one tile and begin the next.
      shapes.push_back({.m = 33 * e.policy.rows - 1, .n = 4 * e.policy.columns, .k = step});      // whole rounds
      shapes.push_back({.m = 19 * e.policy.rows - 1, .n = 7 * e.policy.columns, .k = 8 * step});  // and one tile
      shapes.push_back(
          {.m = 1, .n = 2 * e.policy.columns + 4, .k = 6 * step, .batch = 3, .bias = true, .residual = true});
    }
    for (const GemmShape& s : shapes) {
      INFO(name_of(s));
      CHECK(GemmCall(e.spec, s).run(e) == "");
    }
    const GemmShape exact = column(e, 2, 13);
    GemmCall call(e.spec, exact, picking);
    REQUIRE(call.run(e) == "");
    for (std::int32_t r = 0; r < exact.m; ++r) {
      const std::int32_t k = 37 * r % 1213;
      for (std::int32_t c = 0; c < exact.n; ++c) {
        if (call.out().at(r, c) != (k < exact.k ? (3 * c + 5 * k) % 16 - 8 : 0)) FAIL("row " << r << " column " << c);
      }
    }
  });
}

TEST_CASE("a streamed product is the same bits again") {
  each_streamed([](const GemmEntry& e) {
    const GemmShape s = column(e, 1, 11);
    GemmCall first(e.spec, s), again(e.spec, s);
    REQUIRE(first.run(e) == "");
    REQUIRE(again.run(e) == "");
    for (std::int32_t r = 0; r < s.m; ++r)
      for (std::int32_t c = 0; c < s.n; ++c)
        if (first.out().at(r, c) != again.out().at(r, c)) FAIL("row " << r << " column " << c);
  });
}

TEST_CASE("a streamed product needs a workspace where tiles are left, and is never batch-invariant") {
  each_streamed([](const GemmEntry& e) {
    GemmCall call(e.spec, column(e, 1, 2 * GemmStream::min_stages));
    GemmProblem p = call.on_device();
    const GemmPlan plan{&e, 1};
    const std::size_t bytes = plan.workspace_bytes(p);
    CHECK(static_cast<std::int64_t>(bytes) == std::int64_t{2} * e.policy.rows * e.policy.columns * 4);
    CHECK(e.launch(p, 1, {}).code == StatusCode::null_pointer);
    const bench::DeviceBuffer workspace(static_cast<std::size_t>(bytes) + 16);
    p.workspace = workspace.data(), p.workspace_bytes = bytes - 1;
    CHECK(e.launch(p, 1, {}).code == StatusCode::workspace_too_small);
    p.workspace = moved(workspace.data(), 4), p.workspace_bytes = bytes;
    CHECK(e.launch(p, 1, {}).code == StatusCode::misaligned);
    p.workspace = workspace.data();
    p.batch_invariant = true;
    CHECK(e.launch(p, 1, {}).code == StatusCode::bad_value);
    const GemmEntry* const alone[] = {&e};
    GemmPlan none;
    const Status refused = gemm_select(p, alone, sm90_facts, none, {});
    CHECK(refused.code == StatusCode::no_matching_entry);
    CHECK(std::string(refused.reason).find("batch-invariant") != std::string::npos);
    p.batch_invariant = false;
    CHECK(gemm_select(p, alone, sm90_facts, none, {}).ok());
    CHECK(e.launch(p, 1, {}).ok());
    p.m = 33 * e.policy.rows, p.n = 4 * e.policy.columns;
    CHECK(plan.workspace_bytes(p) == 0);
  });
}

}  // namespace
}  // namespace tilewave::test
