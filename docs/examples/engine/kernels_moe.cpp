// SPDX-License-Identifier: MIT
// The chip's kernels for layers of experts as they come.
#include "plans.hpp"
#include "room.hpp"

namespace engine {
template Status plan_experts<Room, WeightFormat::bf16>(const MoeProblem&, MoePlan&);
template Status plan_experts<Room, WeightFormat::mxfp4>(const MoeProblem&, MoePlan&);
}  // namespace engine
