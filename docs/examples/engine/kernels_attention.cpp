// SPDX-License-Identifier: MIT
// The chip's kernels for attention over caches of bf16.
#include "plans.hpp"
#include "room.hpp"

namespace engine {
template Status plan_decode<Room, DType::bf16>(const PagedAttentionProblem&, PagedAttentionPlan&);
template Status plan_mixed<Room, DType::bf16>(const FlashAttentionProblem&, FlashAttentionPlan&);
}  // namespace engine
