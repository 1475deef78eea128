// SPDX-License-Identifier: MIT
// The chip's kernels for products of bf16 weights.
#include "plans.hpp"
#include "room.hpp"

namespace engine {
template Status plan_product<Room, WeightFormat::bf16>(const GemmProblem&, GemmPlan&);
}  // namespace engine
