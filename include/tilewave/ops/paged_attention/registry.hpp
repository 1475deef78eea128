// SPDX-License-Identifier: MIT
// The entries of paged-attention decode: one list of specs and policies for each architecture. It feeds dispatch,
// tests, benchmarks, the tuner and the ISA gate.
#pragma once

#include <array>
#include <span>
#include <utility>

#include "tilewave/ops/paged_attention/choice/select.hpp"

namespace tilewave {

/// The specs that every architecture serves, head_size outermost.
constexpr std::array<PagedAttentionSpec, 9> paged_attention_specs(ArchId arch) {
  std::array<PagedAttentionSpec, 9> specs{};
  const DType fp8 = facts_of(arch).fp8;
  int n = 0;
  for (int head_size : {64, 128, 256}) {
    specs[n++] = {.kv = DType::bf16, .quant = Scaling::none, .head_size = head_size};
    specs[n++] = {.kv = fp8, .quant = Scaling::per_tensor, .head_size = head_size};
    specs[n++] = {.kv = fp8, .quant = Scaling::per_token, .head_size = head_size};
  }
  return specs;
}

template <class B, PagedAttentionSpec S, PagedAttentionPolicy P>
inline constexpr PagedAttentionEntry paged_attention_entry{
    B::facts.id,
    B::emulated,
    S,
    P,
    &paged_attention_launch<B, S, P>,
    sizeof(typename PagedAttentionKernel<B, S, P>::type::Shared)};

/// The entries of a spec for the policies that policies_of(arch, spec) lists.
template <class B, PagedAttentionSpec S, PagedAttentionPolicies (*policies_of)(ArchId, const PagedAttentionSpec&)>
constexpr auto paged_attention_entries_of() {
  return []<std::size_t... i>(std::index_sequence<i...>) {
    return std::array<PagedAttentionEntry, sizeof...(i)>{
        paged_attention_entry<B, S, policies_of(B::facts.id, S)[i]>...};
  }
  (std::make_index_sequence<policies_of(B::facts.id, S).size()>{});
}

/// All entries of one spec on one backend.
template <class B, PagedAttentionSpec S>
inline constexpr auto paged_attention_entries = paged_attention_entries_of<B, S, paged_attention_policies>();

namespace detail {

/// Pointers to the entries of one spec on one backend: what a plan is chosen among.
template <class B, PagedAttentionSpec S>
inline constexpr auto paged_attention_candidates = candidates_of(paged_attention_entries<B, S>);

}  // namespace detail

/// Makes the plan of a problem on backend B, for the one spec S that the caller compiles in. A spec that the chip does
/// not serve compiles as well: the status of paged_attention_check_spec is then the answer to every problem. Other
/// errors: no_matching_entry for a problem of another spec; those of paged_attention_select.
template <class B, PagedAttentionSpec S>
Status paged_attention_plan(const PagedAttentionProblem& p, PagedAttentionPlan& plan) {
  plan = {};
  constexpr Status served = paged_attention_check_spec(S, B::facts);
  if constexpr (!served.ok()) {  // its kernels would not compile
    return served;
  } else {
    plan.candidates = detail::paged_attention_candidates<B, S>;
    if (!(p.spec == S)) return not_the_compiled_spec;
    return paged_attention_select(p, detail::paged_attention_candidates<B, S>, B::facts, plan);
  }
}

}  // namespace tilewave
