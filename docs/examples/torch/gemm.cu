// SPDX-License-Identifier: MIT
// The choice of a product is looked up: making it takes tens of microseconds of the host, and a model calls few shapes.
#include <array>
#include <map>

#include "gemm.hpp"

namespace tilewave_torch {

using namespace tilewave;

Status run(const GemmProblem& p, const Call& call) {
  static constexpr auto lists = std::to_array({&gemm_bf16, &gemm_fp8_row, &gemm_fp8_row_fast, &gemm_fp8_tensor,
                                               &gemm_fp8_block, &gemm_int4, &gemm_grouped_bf16, &gemm_grouped_fp8});
  for (const auto& list : lists) {
    for (const GemmServed& served : list()) {
      if (!(served.spec == p.spec)) continue;
      using Shape = std::array<std::int32_t, 6>;
      thread_local std::map<std::pair<const GemmServed*, Shape>, GemmPlan> plans;
      GemmPlan& plan = plans[{&served, {p.m, p.n, p.k, p.batch, p.groups, p.bias != nullptr}}];
      if (plan.entry != nullptr && launch(p, plan, call).ok()) return {};
      // The first call of a shape, or one whose pointers are aligned otherwise: a refused launch has queued nothing.
      const Status status = served.plan(p, plan);
      return status.ok() ? launch(p, plan, call) : status;
    }
  }
  return not_served;
}

}  // namespace tilewave_torch
