// SPDX-License-Identifier: MIT
// Tests that a table of measured choices overrules the cost model, for the problems that it names and for no others.
#include <array>

#include "test/catch_compat.hpp"
#include "tilewave/ops/gemm/registry.hpp"
#if !TILEWAVE_ON_GPU_COMPILER
#include "tilewave/arch/host/backend.hpp"
#endif

namespace tilewave {
namespace {

/// The choice depends on extents and addresses, not on what tensors hold.
GemmProblem problem(std::int32_t m) {
  const auto somewhere = [](std::uintptr_t i) { return reinterpret_cast<void*>(i << 44); };
  GemmProblem p;
  p.a = somewhere(1), p.b = somewhere(2), p.out = somewhere(3);
  p.m = m, p.n = 4096, p.k = 4096;
  p.a_stride = p.b_stride = p.k, p.out_stride = p.n;
  return p;
}

TEST_CASE("a tuned row decides where it serves the problem and its entry is built") {
  const GemmPolicies policies = gemm_policies(ArchId::sm90, {});
  std::array<GemmEntry, GemmPolicies::capacity> built{};
  std::array<const GemmEntry*, GemmPolicies::capacity> all{};
  for (int i = 0; i < policies.count; ++i) {
    built[i] = {ArchId::sm90, true, {}, policies[i], nullptr, 0};
    all[i] = &built[i];
  }
  const std::span<const GemmEntry* const> entries(all.data(), policies.count);
  const auto select = [&](const GemmProblem& p, std::span<const TunedGemm> tuned) {
    GemmPlan plan;
    CHECK(gemm_select(p, entries, sm90_facts, plan, tuned).ok());
    return plan;
  };
  const GemmPlan usual = select(problem(16), {});
  // This is another policy than the cost model's, and one with which blocks may share K.
  const GemmEntry* other = nullptr;
  for (const GemmEntry* e : entries)
    if (e != usual.entry && e->policy.splits >= 3) other = e;
  REQUIRE(other != nullptr);
  TunedGemm row{{}, 9, 16, 4096, 4096, 1, 0, other->policy, 3};
  CHECK(select(problem(16), {&row, 1}).entry == other);
  CHECK(select(problem(9), {&row, 1}).splits == 3);
  const auto untouched = [&](const GemmProblem& p) {
    const GemmPlan with = select(p, {&row, 1}), without = select(p, {});
    CHECK((with.entry == without.entry && with.splits == without.splits));
  };
  untouched(problem(8));
  untouched(problem(17));
  GemmProblem p = problem(16);
  p.batch_invariant = true;
  untouched(p);
  p = problem(16), p.n = 4352, p.out_stride = p.n;
  untouched(p);
  row.splits = row.policy.splits + 1;
  untouched(problem(16));
  row.splits = 1, row.policy.stages += 1;  // No entry has this policy.
  untouched(problem(16));
}

TEST_CASE("the library's own tables decide without being asked for, and their entries exist") {
  CHECK_FALSE(tuned_gemm(ArchId::gfx950).empty());
  for (const ArchId arch : all_archs) {
    int others = 0;  // rows whose policy is not the cost model's choice
    for (const TunedGemm& row : tuned_gemm(arch)) {
      const GemmPolicies policies = gemm_policies(arch, row.spec);
      std::array<GemmEntry, GemmPolicies::capacity> built{};
      std::array<const GemmEntry*, GemmPolicies::capacity> all{};
      for (int i = 0; i < policies.count; ++i) {
        built[i] = {arch, true, row.spec, policies[i], nullptr, 0};
        all[i] = &built[i];
      }
      for (const std::int32_t m : {row.m_from, row.m_to}) {
        GemmProblem p = problem(m);
        p.spec = row.spec, p.n = row.n, p.k = row.k, p.batch = row.batch, p.groups = row.groups;
        p.a_stride = p.b_stride = p.k, p.out_stride = p.n;
        if (row.spec.scale != Scaling::none) p.a_scale = p.b_scale = reinterpret_cast<const float*>(1ULL << 46);
        if (row.spec.scale == Scaling::per_block) {
          p.a_scale_stride = p.b_scale_stride = ceil_div(p.k, gemm_scale_block);
          p.a_scale_k_stride = p.b_scale_k_stride = 1;
        }
        GemmPlan plan, model;
        CHECK(gemm_select(p, std::span(all.data(), policies.count), facts_of(arch), model, {}).ok());
        CHECK(gemm_select(p, std::span(all.data(), policies.count), facts_of(arch), plan).ok());
        REQUIRE(plan.entry != nullptr);
        CHECK(plan.entry->policy == row.policy);
        CHECK(plan.splits == row.splits);
        others += model.entry != plan.entry || model.splits != plan.splits;
      }
    }
    CHECK((others > 0 || tuned_gemm(arch).empty()));
  }
}

#if !TILEWAVE_ON_GPU_COMPILER
TEST_CASE("a caller plans with the entries of the one spec it compiles in") {
  constexpr GemmSpec spec{.weights = GemmWeights::preshuffled};  // This spec has few policies.
  GemmProblem p = problem(5);
  p.spec = spec;
  p.b_stride = 0;
  GemmPlan plan;
  REQUIRE(gemm_plan<host::Backend<ArchId::gfx942>, spec>(p, plan).ok());
  CHECK(plan.entry->spec == spec);
  CHECK(plan.entry->arch == ArchId::gfx942);
  p.spec = {};
  CHECK(gemm_plan<host::Backend<ArchId::gfx942>, spec>(p, plan).code == StatusCode::no_matching_entry);
  constexpr GemmSpec none{.out = DType::fp8_e4m3fn,
                          .weights = GemmWeights::preshuffled,
                          .gated = true,
                          .out_scale = Scaling::per_group};  // for sm90
  p.spec = none;
  p.out_scale = reinterpret_cast<float*>(std::uintptr_t{4} << 44);
  p.out_scale_stride = p.n / 256;
  CHECK(gemm_plan<host::Backend<ArchId::sm90>, none>(p, plan).code == StatusCode::no_matching_entry);
  CHECK(plan.entry == nullptr);
}
#endif

}  // namespace
}  // namespace tilewave
