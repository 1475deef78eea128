// SPDX-License-Identifier: MIT
// The chip's kernels for weights and caches of fp8.
#include "plans.hpp"
#include "room.hpp"

namespace engine {
template Status plan_product<Room, WeightFormat::fp8>(const GemmProblem&, GemmPlan&);
template Status plan_decode<Room, Room::facts.fp8>(const PagedAttentionProblem&, PagedAttentionPlan&);
template Status plan_mixed<Room, Room::facts.fp8>(const FlashAttentionProblem&, FlashAttentionPlan&);
}  // namespace engine
