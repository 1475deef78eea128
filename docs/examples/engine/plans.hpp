// SPDX-License-Identifier: MIT
// Plans of the ops that take long to compile, part 8 of the tutorial: the specs that the engine has of each.
#pragma once

#include "room_specs.hpp"

namespace engine {

namespace detail {
template <class R>
struct PlanMaker {
  template <GemmSpec spec>
  static Status plan(const GemmProblem& p, GemmPlan& plan) {
    return gemm_plan<R, spec>(p, plan);
  }
  template <PagedAttentionSpec spec>
  static Status plan(const PagedAttentionProblem& p, PagedAttentionPlan& plan) {
    return paged_attention_plan<R, spec>(p, plan);
  }
  template <FlashAttentionSpec spec>
  static Status plan(const FlashAttentionProblem& p, FlashAttentionPlan& plan) {
    return flash_attention_plan<R, spec>(p, plan);
  }
};
}  // namespace detail

template <class R, WeightFormat weights>
Status plan_product(const GemmProblem& p, GemmPlan& plan) {
  constexpr GemmSpec linear = with_weights<R>(weights, linear_spec), gated = with_weights<R>(weights, gated_spec);
  if constexpr (weights == WeightFormat::bf16) {
    return plan_among<detail::PlanMaker<R>, linear, gated, with_gelu(gated), logits_spec>(p, plan);
  } else {
    return plan_among<detail::PlanMaker<R>, linear, gated, with_gelu(gated)>(p, plan);
  }
}
/// Heads of all sizes. Gemma 2 bounds scores.
template <class R, DType kv>
Status plan_decode(const PagedAttentionProblem& p, PagedAttentionPlan& plan) {
  return plan_among<detail::PlanMaker<R>, decode_spec(64, false, kv), decode_spec(128, false, kv),
                    decode_spec(256, false, kv), decode_spec(256, true, kv)>(p, plan);
}
template <class R, DType kv>
Status plan_mixed(const FlashAttentionProblem& p, FlashAttentionPlan& plan) {
  return plan_among<detail::PlanMaker<R>, mixed_spec(64, false, kv), mixed_spec(128, false, kv),
                    mixed_spec(256, false, kv), mixed_spec(256, true, kv)>(p, plan);
}
template <class R, WeightFormat weights>
Status plan_experts(const MoeProblem& p, MoePlan& plan) {
  return moe_plan<R, experts_spec<R>(weights)>(p, plan);
}

}  // namespace engine
