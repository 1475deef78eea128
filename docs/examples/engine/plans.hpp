// SPDX-License-Identifier: MIT
// Plans of the ops that take long to compile: of each, the specs that the engine has. Files kernels_*.cpp instantiate some of
// them each, so that they compile side by side.
#pragma once

#include "room_specs.hpp"

namespace engine {

namespace detail {
template <class R, auto spec>
Status plan_of(const GemmProblem& p, GemmPlan& plan) {
  return gemm_plan<R, spec>(p, plan);
}
template <class R, auto spec>
Status plan_of(const PagedAttentionProblem& p, PagedAttentionPlan& plan) {
  return paged_attention_plan<R, spec>(p, plan);
}
template <class R, auto spec>
Status plan_of(const FlashAttentionProblem& p, FlashAttentionPlan& plan) {
  return flash_attention_plan<R, spec>(p, plan);
}
/// Makes the plan of the one of `specs` that is the problem's.
template <class R, auto... specs, class Problem, class Plan>
Status plan_among(const Problem& p, Plan& plan) {
  Status status{StatusCode::no_matching_entry, "the engine was compiled without this spec"};
  ((p.spec == specs && (status = plan_of<R, specs>(p, plan), true)) || ...);
  return status;
}
}  // namespace detail

template <class R, WeightFormat weights>
Status plan_product(const GemmProblem& p, GemmPlan& plan) {
  constexpr GemmSpec linear = with_weights<R>(weights, linear_spec), gated = with_weights<R>(weights, gated_spec);
  if constexpr (weights == WeightFormat::bf16) {
    return detail::plan_among<R, linear, gated, with_gelu(gated), logits_spec>(p, plan);
  } else {
    return detail::plan_among<R, linear, gated, with_gelu(gated)>(p, plan);
  }
}
/// Heads of all sizes. Gemma 2 bounds scores.
template <class R, DType kv>
Status plan_decode(const PagedAttentionProblem& p, PagedAttentionPlan& plan) {
  return detail::plan_among<R, decode_spec(64, false, kv), decode_spec(128, false, kv), decode_spec(256, false, kv),
                            decode_spec(256, true, kv)>(p, plan);
}
template <class R, DType kv>
Status plan_mixed(const FlashAttentionProblem& p, FlashAttentionPlan& plan) {
  return detail::plan_among<R, mixed_spec(64, false, kv), mixed_spec(128, false, kv), mixed_spec(256, false, kv),
                            mixed_spec(256, true, kv)>(p, plan);
}
template <class R, WeightFormat weights>
Status plan_experts(const MoeProblem& p, MoePlan& plan) {
  return moe_plan<R, experts_spec<R>(weights)>(p, plan);
}

}  // namespace engine
