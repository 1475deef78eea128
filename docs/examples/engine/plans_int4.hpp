// SPDX-License-Identifier: MIT
// Products of int4 weights.
#pragma once

#include "plans_gemm.hpp"

namespace engine {

template <class R>
tilewave::Status Int4Plans<R>::plan(const tilewave::GemmProblem& p, tilewave::GemmPlan& plan) {
  return detail::gemm_among<R, int4_linear_spec, int4_gated_spec, int4_gelu_spec>(p, plan);
}

}  // namespace engine
