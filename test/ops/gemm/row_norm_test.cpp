// SPDX-License-Identifier: MIT
// Tests of rows that are divided by their root mean square (GemmProblem::rms_norm), and of who refuses them.
#include "entries/gemm.hpp"
#include "test/ops/gemm/call.hpp"
#include "test/turns.hpp"

namespace tilewave::test {
namespace {

/// Calls f(entry) for each sampled entry of a spec that takes rms_norm.
template <class F>
void each_entry(const F& f) {
  for (const auto entries : {all_gemm_entries(), all_gemm_feature_entries(), all_gemm_gated_entries()}) {
    for (const GemmEntry* const entry : in_turn(entries)) {
      if (!gemm_spec_takes_norm(entry->spec)) continue;
      INFO(name_of(entry->arch) << " " << name_of(entry->spec) << " " << name_of(entry->policy));
      f(*entry);
    }
  }
}
void check(const GemmEntry& e, GemmShape s) {
  s.rms_norm = s.a_squares || !s.out_squares;
  if (e.spec.in_strips()) s.n = align_up(s.n, e.spec.gated ? 32 : 16), s.k = align_up(s.k, 32);
  if (e.spec.gated) s.n = align_up(s.n, 2);
  INFO(name_of(s));
  const std::string wrong = GemmCall(e.spec, s).run(e);
  if ((!s.rms_norm || detail::gemm_serves_norm(e.spec, e.policy, s.a_squares)) &&
      (!s.out_squares || detail::gemm_writes_squares(e.spec, e.policy))) {
    CHECK(wrong == "");
  } else {
    CHECK(wrong.starts_with("no_matching_entry"));
  }
}

TEST_CASE("rows are divided by their root mean square") {
  each_entry([](const GemmEntry& e) {
    const GemmPolicy& p = e.policy;
    const std::int32_t step = p.depth_bytes / 2;
    check(e, {.m = 1, .n = 1, .k = 1});
    check(e, {.m = p.rows, .n = p.columns, .k = 2 * step});
    check(e, {.m = p.rows + 5,
              .n = p.columns + 4,
              .k = 13 * step + 17,
              .batch = 2,
              .gap = 3,
              .bias = true,
              .residual = true,
              .alpha = -0.75f});
    if (p.splits == 1) return;
    check(e, {.m = 3, .n = p.columns + 1, .k = 9 * step + 5, .bias = true, .splits = 2});
    check(e, {.m = p.rows - 1, .n = 2 * p.columns, .k = p.splits * step, .splits = p.splits});
  });
}

TEST_CASE("squares of rows come from the product in front, and go to the next") {
  each_entry([](const GemmEntry& e) {
    const GemmPolicy& p = e.policy;
    if (e.spec.in_strips() || p.rows > 64) return;
    const bool writes = detail::gemm_writes_squares(e.spec, p);
    const std::int32_t n = align_up(p.columns, 64);
    check(e, {.m = 1, .n = n, .k = 64, .a_squares = true, .out_squares = writes});
    check(e, {.m = p.rows + 5,
              .n = 2 * n,
              .k = 192,
              .bias = true,
              .residual = true,
              .a_squares = true,
              .out_squares = writes});
    check(e, {.m = p.rows, .n = n, .k = 1088, .a_squares = true});
    if (p.splits == 1) return;
    check(e,
          {.m = p.rows - 1, .n = n, .k = 512, .residual = true, .a_squares = true, .out_squares = writes, .splits = 2});
    check(e, {.m = 3, .n = n, .k = 1024, .out_squares = writes, .splits = p.splits});
  });
}

TEST_CASE("a plan for rows to be divided takes an entry that serves them") {
  for (const ArchId arch : all_archs) {
    const ArchFacts& facts = facts_of(arch);
    std::vector<const GemmEntry*> entries;
    for (const GemmEntry* const e : all_gemm_entries())
      if (e->arch == arch && e->spec == GemmSpec{}) entries.push_back(e);
    if (entries.empty()) continue;
    INFO(name_of(arch));
    for (const std::int32_t m : {1, 16, 64, 700}) {
      GemmCall call(GemmSpec{}, {.m = m, .n = 512, .k = 256, .rms_norm = true});
      GemmPlan plan;
      const Status status = gemm_select(call.on_device(), entries, facts, plan);
      if (arch == ArchId::sm90) {
        REQUIRE(status.ok());
        CHECK(detail::gemm_serves_norm(plan.entry->spec, plan.entry->policy));
      } else {
        CHECK(status.code == StatusCode::no_matching_entry);
      }
    }
  }
}

TEST_CASE("a few rows of a chain take an entry that leaves the next product room, and no other call does") {
  std::vector<const GemmEntry*> entries;
  for (const GemmEntry* const e : all_gemm_entries())
    if (e->arch == ArchId::sm90 && e->spec == GemmSpec{}) entries.push_back(e);
  if (entries.empty()) return;
  const auto choice = [&](std::int32_t m, bool ready, bool invariant) {
    GemmProblem p = GemmCall(GemmSpec{}, {.m = m, .n = 6144, .k = 64}).on_device();
    // A choice reads no tensors, so they may be as large as those of a model, far from each other.
    const auto at = [](std::uintptr_t gib) { return reinterpret_cast<void*>(gib << 30); };
    p.k = 4096, p.a_stride = p.b_stride = 4096;
    p.a = at(1), p.b = at(2), p.out = at(3);
    p.b_ready = ready, p.batch_invariant = invariant;
    GemmPlan plan;
    const Status status = gemm_select(p, entries, sm90_facts, plan);
    INFO(status.reason);
    REQUIRE(status.ok());
    return plan;
  };
  const GemmPlan plan = choice(1, true, false);
  CHECK(plan.entry->policy.leaves_room());
  CHECK(plan.splits == 2);  // 96 tiles are too few for 132 SMs
  CHECK(choice(4, true, false).entry->policy.leaves_room());
  CHECK_FALSE(choice(5, true, false).entry->policy.leaves_room());
  CHECK_FALSE(choice(1, false, false).entry->policy.leaves_room());
  CHECK_FALSE(choice(1, true, true).entry->policy.leaves_room());
}

TEST_CASE("products of a chain that hand on squares take tiles of 64 columns, of which most SMs have a block") {
  std::vector<const GemmEntry*> entries;
  for (const GemmEntry* const e : all_gemm_entries())
    if (e->arch == ArchId::sm90 && e->spec == GemmSpec{}) entries.push_back(e);
  if (entries.empty()) return;
  const auto choice = [&](std::int32_t m, std::int32_t n, bool hands_on) {
    GemmProblem p = GemmCall(GemmSpec{}, {.m = m, .n = n, .k = 64}).on_device();
    const auto at = [](std::uintptr_t gib) { return reinterpret_cast<void*>(gib << 30); };
    p.k = 4096, p.a_stride = p.b_stride = 4096;
    p.a = at(1), p.b = at(2), p.out = at(3), p.b_ready = true;
    if (hands_on) p.out_squares = static_cast<float*>(at(4));
    GemmPlan plan;
    const Status status = gemm_select(p, entries, sm90_facts, plan);
    INFO(status.reason);
    REQUIRE(status.ok());
    return plan;
  };
  const auto is = [](const GemmPlan& plan, int rows, int blocks_an_sm, int splits) {
    const GemmPolicy& policy = plan.entry->policy;
    INFO(plan.name());
    CHECK(policy.rows == rows);
    CHECK(policy.columns == 64);
    CHECK(policy.waves_per_simd == blocks_an_sm);
    CHECK(plan.splits == splits);
  };
  for (const std::int32_t m : {5, 8, 16}) {
    is(choice(m, 4096, true), 16, 2, 2);
    is(choice(m, 6144, true), 16, 2, 2);
  }
  for (const std::int32_t m : {17, 64}) {
    is(choice(m, 4096, true), 64, 1, 2);
    is(choice(m, 6144, true), 64, 1, 1);  // two for each tile are more than there are SMs
  }
  CHECK(choice(64, 4096, false).entry->policy.rows == 80);  // alone: a row of the tuned table
}

TEST_CASE("rms_norm that makes no sense is refused") {
  const GemmCall call(GemmSpec{}, {.m = 4, .n = 16, .k = 64, .rms_norm = true});
  const auto code = [&](void (*change)(GemmProblem&)) {
    GemmProblem p = call.on_device();
    change(p);
    return gemm_check(p, sm90_facts).code;
  };
  CHECK(code([](GemmProblem&) {}) == StatusCode::ok);
  CHECK(code([](GemmProblem& p) { p.norm_eps = -1e-6f; }) == StatusCode::bad_value);
  CHECK(code([](GemmProblem& p) { p.norm_eps = std::numeric_limits<float>::infinity(); }) == StatusCode::bad_value);
  CHECK(code([](GemmProblem& p) { p.rms_norm = false; }) == StatusCode::bad_value);
  CHECK(code([](GemmProblem& p) { p.k = 0; }) == StatusCode::bad_extent);
  CHECK(code([](GemmProblem& p) { p.spec.a = p.spec.b = DType::i8; }) != StatusCode::ok);
}

TEST_CASE("squares that make no sense are refused") {
  const GemmCall call(GemmSpec{}, {.m = 4, .n = 64, .k = 64, .rms_norm = true, .a_squares = true, .out_squares = true});
  const auto code = [&](void (*change)(GemmProblem&)) {
    GemmProblem p = call.on_device();
    change(p);
    return gemm_check(p, sm90_facts).code;
  };
  CHECK(code([](GemmProblem&) {}) == StatusCode::ok);
  CHECK(code([](GemmProblem& p) { p.rms_norm = false, p.norm_eps = 0; }) == StatusCode::bad_value);
  CHECK(code([](GemmProblem& p) { p.k = 56; }) == StatusCode::bad_extent);
  CHECK(code([](GemmProblem& p) { p.n = 60; }) == StatusCode::bad_extent);
  CHECK(code([](GemmProblem& p) { p.batch = 2; }) == StatusCode::bad_extent);
  CHECK(code([](GemmProblem& p) { p.spec.out = DType::f32; }) == StatusCode::unsupported_layout);
  CHECK(code([](GemmProblem& p) { p.a_squares += 1; }) == StatusCode::misaligned);
  CHECK(code([](GemmProblem& p) { p.out_squares = static_cast<float*>(p.out); }) == StatusCode::bad_value);
  CHECK(code([](GemmProblem& p) { p.out_squares = const_cast<float*>(p.a_squares); }) == StatusCode::bad_value);
}

}  // namespace
}  // namespace tilewave::test
