// SPDX-License-Identifier: MIT
// The chip's kernels for products of int4 weights.
#include "plans.hpp"
#include "room.hpp"

namespace engine {
template Status plan_product<Room, WeightFormat::int4>(const GemmProblem&, GemmPlan&);
}  // namespace engine
