// SPDX-License-Identifier: MIT
// Products of shuffled bf16 weights.
#pragma once

#include "plans_gemm.hpp"

namespace engine {

template <class R>
tilewave::Status ShuffledPlans<R>::plan(const tilewave::GemmProblem& p, tilewave::GemmPlan& plan) {
  return detail::gemm_among<R, shuffled_linear_spec, shuffled_gated_spec>(p, plan);
}

}  // namespace engine
