// SPDX-License-Identifier: MIT
// Products of bf16 weights.
#pragma once

#include "room_specs.hpp"

namespace engine {

namespace detail {
template <class R, tilewave::GemmSpec... specs>
tilewave::Status gemm_among(const tilewave::GemmProblem& p, tilewave::GemmPlan& plan) {
  tilewave::Status status = not_compiled;
  ((p.spec == specs && (status = tilewave::gemm_plan<R, specs>(p, plan), true)) || ...);
  return status;
}
}  // namespace detail

template <class R>
tilewave::Status GemmPlans<R>::plan(const tilewave::GemmProblem& p, tilewave::GemmPlan& plan) {
  return detail::gemm_among<R, linear_spec, gated_spec, gelu_spec, logits_spec>(p, plan);
}

}  // namespace engine
