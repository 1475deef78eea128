// SPDX-License-Identifier: MIT
// Layers of experts: as they come, in bf16 and MXFP4, and quantised while loading, in fp8 and int4.
#pragma once

#include "room_specs.hpp"

namespace engine {

template <class R>
tilewave::Status MoePlans<R>::plan(const tilewave::MoeProblem& p, tilewave::MoePlan& plan) {
  return p.spec == mxfp4_experts_spec<R> ? tilewave::moe_plan<R, mxfp4_experts_spec<R>>(p, plan)
                                         : tilewave::moe_plan<R, experts_spec>(p, plan);
}
template <class R>
tilewave::Status MoePlans<R>::quantised(const tilewave::MoeProblem& p, tilewave::MoePlan& plan) {
  return p.spec == fp8_experts_spec<R> ? tilewave::moe_plan<R, fp8_experts_spec<R>>(p, plan)
                                       : tilewave::moe_plan<R, int4_experts_spec>(p, plan);
}

}  // namespace engine
