// SPDX-License-Identifier: MIT
// Products of experts.
#pragma once

#include "plans_gemm.hpp"

namespace engine {

template <class R>
tilewave::Status MoePlans<R>::product(const tilewave::GemmProblem& p, tilewave::GemmPlan& plan) {
  return detail::gemm_among<R, expert_linear_spec, expert_gated_spec>(p, plan);
}

}  // namespace engine
