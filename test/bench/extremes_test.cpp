// SPDX-License-Identifier: MIT
#include "test/bench/extremes.hpp"

#include "bench/ops/gemm/runner.hpp"
#include "bench/ops/gemm/sweep.hpp"
#include "bench/ops/paged_attention/sweep.hpp"
#include "bench/ops/rope/sweep.hpp"
#include "bench/ops/vec_add/sweep.hpp"
#include "tilewave/ops/paged_attention/registry.hpp"

namespace tilewave::bench {
namespace {

void plan(const GemmCase& c) {
  std::uintptr_t place = 0;
  const GemmProblem p = problem_of(c, {}, [&](const TwinBuffer&) -> void* { return somewhere(++place); });
  GemmPlan chosen;
  (void)gemm_select(p, {}, facts_of(c.arch), chosen);
  (void)name_of(launched(c));
  (void)work_of(launched(c));
}
void plan(const PagedAttentionCase& c) {
  PagedAttentionPlan chosen;
  (void)paged_attention_select(shape_of(c), {}, facts_of(c.arch), chosen);
  (void)name_of(c);
}
void plan(const CeilingCase& c) {
  (void)name_of(c);
  (void)work_of(c);
}

TEST_CASE("no word of a product's, an attention's or a ceiling's config ends a benchmark without a reason") {
  check_op<RopeOp>();
  for (const GemmSweep sweep : all_gemm_sweeps) {
    const std::vector<GemmCase> cases = cases_of(sweep, ArchId::gfx950);
    for (const std::size_t i : {std::size_t{0}, cases.size() - 1})
      CHECK(check_extremes(launched(cases[i]), gemm_model_cases, [](const GemmCase& c) { plan(c); }) > 1);
  }
  for (const Sweep sweep : all_sweeps) {
    const std::vector<PagedAttentionCase> cases = cases_of(sweep, ArchId::gfx950);
    for (const std::size_t i : {std::size_t{0}, cases.size() - 1})
      CHECK(check_extremes(cases[i], model_cases, [](const PagedAttentionCase& c) { plan(c); }) > 1);
  }
  const auto none = [](ArchId, const ModelStep&) { return std::vector<CeilingCase>{}; };
  for (const CeilingCase& c : ceiling_sweep(ArchId::gfx950))
    CHECK(check_extremes(c, none, [](const CeilingCase& x) { plan(x); }) >= 1);
}

}  // namespace
}  // namespace tilewave::bench
