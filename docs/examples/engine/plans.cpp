// SPDX-License-Identifier: MIT
// The chip's plans, part 8 of the tutorial. Their kernels take minutes to compile: CMakeLists.txt compiles this file once for
// each ENGINE_PART, side by side.
#include "plans.hpp"

#include "room.hpp"

namespace engine {

#if ENGINE_PART == 1  // attention over caches of bf16
template Status plan_decode<Room, DType::bf16>(const PagedAttentionProblem&, PagedAttentionPlan&);
template Status plan_mixed<Room, DType::bf16>(const FlashAttentionProblem&, FlashAttentionPlan&);
#elif ENGINE_PART == 2  // experts as they come
template Status plan_experts<Room, WeightFormat::bf16>(const MoeProblem&, MoePlan&);
template Status plan_experts<Room, WeightFormat::mxfp4>(const MoeProblem&, MoePlan&);
#elif ENGINE_PART == 3  // experts that were quantised while loading
template Status plan_experts<Room, WeightFormat::fp8>(const MoeProblem&, MoePlan&);
template Status plan_experts<Room, WeightFormat::int4>(const MoeProblem&, MoePlan&);
#elif ENGINE_PART == 4  // weights and caches of fp8
template Status plan_product<Room, WeightFormat::fp8>(const GemmProblem&, GemmPlan&);
template Status plan_decode<Room, Room::facts.fp8>(const PagedAttentionProblem&, PagedAttentionPlan&);
template Status plan_mixed<Room, Room::facts.fp8>(const FlashAttentionProblem&, FlashAttentionPlan&);
#elif ENGINE_PART == 5
template Status plan_product<Room, WeightFormat::bf16>(const GemmProblem&, GemmPlan&);
#elif ENGINE_PART == 6
template Status plan_product<Room, WeightFormat::int4>(const GemmProblem&, GemmPlan&);
#endif

}  // namespace engine
