// SPDX-License-Identifier: MIT
// Products of fp8 weights, and attention over caches of fp8.
#pragma once

#include "plans_attention.hpp"
#include "plans_gemm.hpp"

namespace engine {

template <class R>
tilewave::Status Fp8Plans<R>::product(const tilewave::GemmProblem& p, tilewave::GemmPlan& plan) {
  return detail::gemm_among<R, fp8_linear_spec<R>, fp8_gated_spec<R>, fp8_gelu_spec<R>>(p, plan);
}
template <class R>
tilewave::Status Fp8Plans<R>::decode(const tilewave::PagedAttentionProblem& p, tilewave::PagedAttentionPlan& plan) {
  constexpr auto fp8 = R::facts.fp8;
  return detail::decode_among<R, decode_spec(64, false, fp8), decode_spec(128, false, fp8),
                              decode_spec(256, false, fp8), decode_spec(256, true, fp8)>(p, plan);
}
template <class R>
tilewave::Status Fp8Plans<R>::mixed(const tilewave::FlashAttentionProblem& p, tilewave::FlashAttentionPlan& plan) {
  constexpr auto fp8 = R::facts.fp8;
  return detail::mixed_among<R, mixed_spec(64, false, fp8), mixed_spec(128, false, fp8), mixed_spec(256, false, fp8),
                             mixed_spec(256, true, fp8)>(p, plan);
}

}  // namespace engine
