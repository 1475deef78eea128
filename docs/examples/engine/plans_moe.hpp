// SPDX-License-Identifier: MIT
// Layers of experts, of bf16 and of MXFP4.
#pragma once

#include "room_specs.hpp"

namespace engine {

template <class R>
tilewave::Status MoePlans<R>::plan(const tilewave::MoeProblem& p, tilewave::MoePlan& plan) {
  return p.spec == mxfp4_experts_spec<R> ? tilewave::moe_plan<R, mxfp4_experts_spec<R>>(p, plan)
                                         : tilewave::moe_plan<R, experts_spec>(p, plan);
}

}  // namespace engine
