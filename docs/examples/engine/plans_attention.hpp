// SPDX-License-Identifier: MIT
// Attention over caches of bf16.
#pragma once

#include "room_specs.hpp"

namespace engine {

namespace detail {
template <class R, tilewave::PagedAttentionSpec... specs>
tilewave::Status decode_among(const tilewave::PagedAttentionProblem& p, tilewave::PagedAttentionPlan& plan) {
  tilewave::Status status = not_compiled;
  ((p.spec == specs && (status = tilewave::paged_attention_plan<R, specs>(p, plan), true)) || ...);
  return status;
}
template <class R, tilewave::FlashAttentionSpec... specs>
tilewave::Status mixed_among(const tilewave::FlashAttentionProblem& p, tilewave::FlashAttentionPlan& plan) {
  tilewave::Status status = not_compiled;
  ((p.spec == specs && (status = tilewave::flash_attention_plan<R, specs>(p, plan), true)) || ...);
  return status;
}
}  // namespace detail

template <class R>
tilewave::Status AttentionPlans<R>::decode(const tilewave::PagedAttentionProblem& p,
                                           tilewave::PagedAttentionPlan& plan) {
  constexpr auto bf16 = tilewave::DType::bf16;
  return detail::decode_among<R, decode_spec(64, false, bf16), decode_spec(128, false, bf16),
                              decode_spec(256, false, bf16), decode_spec(256, true, bf16)>(p, plan);
}
template <class R>
tilewave::Status AttentionPlans<R>::mixed(const tilewave::FlashAttentionProblem& p,
                                          tilewave::FlashAttentionPlan& plan) {
  constexpr auto bf16 = tilewave::DType::bf16;
  return detail::mixed_among<R, mixed_spec(64, false, bf16), mixed_spec(128, false, bf16), mixed_spec(256, false, bf16),
                             mixed_spec(256, true, bf16)>(p, plan);
}

}  // namespace engine
