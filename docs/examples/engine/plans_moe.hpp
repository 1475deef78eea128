// SPDX-License-Identifier: MIT
// Layers of experts.
#pragma once

#include "room_kernels.hpp"

namespace engine {

template <class R>
tilewave::Status MoePlans<R>::plan(const tilewave::MoeProblem& p, tilewave::MoePlan& plan) {
  return tilewave::moe_plan<R, experts_spec>(p, plan);
}

}  // namespace engine
