// SPDX-License-Identifier: MIT
// The chip's kernels for layers of experts that were quantised while loading.
#include "plans.hpp"
#include "room.hpp"

namespace engine {
template Status plan_experts<Room, WeightFormat::fp8>(const MoeProblem&, MoePlan&);
template Status plan_experts<Room, WeightFormat::int4>(const MoeProblem&, MoePlan&);
}  // namespace engine
