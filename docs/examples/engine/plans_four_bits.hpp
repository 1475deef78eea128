// SPDX-License-Identifier: MIT
// Products of int4 weights, and layers of experts in MXFP4.
#pragma once

#include "plans_gemm.hpp"

namespace engine {

template <class R>
tilewave::Status FourBitPlans<R>::product(const tilewave::GemmProblem& p, tilewave::GemmPlan& plan) {
  return detail::gemm_among<R, int4_linear_spec, int4_gated_spec>(p, plan);
}
template <class R>
tilewave::Status FourBitPlans<R>::experts(const tilewave::MoeProblem& p, tilewave::MoePlan& plan) {
  return tilewave::moe_plan<R, mxfp4_experts_spec>(p, plan);
}

}  // namespace engine
