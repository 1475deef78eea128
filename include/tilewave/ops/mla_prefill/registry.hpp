// SPDX-License-Identifier: MIT
// The specs of prefill of latent attention, and the plan on one backend. Its products and its attention are those of
// other ops: their lists have the entries that these specs ask for.
#pragma once

#include "tilewave/ops/mla_prefill/launch.hpp"
#include "tilewave/tile/registry.hpp"

namespace tilewave {

/// Returns the specs that every architecture serves: caches of bf16, of fp8 with one scale, and of scaled groups.
constexpr ValueList<MlaPrefillSpec> mla_prefill_specs(ArchId arch) {
  const DType fp8 = facts_of(arch).fp8;
  ValueList<MlaPrefillSpec> specs;
  specs.add({});
  specs.add({.kv = fp8});
  specs.add({.kv = fp8, .layout = LatentLayout::groups_128});
  return specs;
}

namespace detail {

template <class B, MlaPrefillSpec S, std::size_t... i>
constexpr auto mla_prefill_entries_of(std::index_sequence<i...>) {
  constexpr auto policies = mla_prefill_policies(B::facts.id, S);
  return std::array<MlaPrefillEntry, sizeof...(i)>{MlaPrefillEntry{B::facts.id, B::emulated, S, policies[i],
                                                                   &mla_prefill_starts_launch<B>,
                                                                   &mla_prefill_gather_launch<B, S, policies[i]>}...};
}

}  // namespace detail

/// All entries of one spec on one backend: one for each policy.
template <class B, MlaPrefillSpec S>
inline constexpr auto mla_prefill_entries =
    detail::mla_prefill_entries_of<B, S>(std::make_index_sequence<mla_prefill_policies(B::facts.id, S).size()>{});

namespace detail {

template <class B, MlaPrefillSpec S>
inline constexpr auto mla_prefill_candidates = candidates_of(mla_prefill_entries<B, S>);

}  // namespace detail

/// Sets the plan on backend B for the one spec S that the caller compiles in, with all entries of its parts.
/// Errors: no_matching_entry for a problem of another spec; those of mla_prefill_select.
template <class B, MlaPrefillSpec S>
Status mla_prefill_plan(const MlaPrefillProblem& p, MlaPrefillPlan& plan) {
  plan = {};
  constexpr Status served = mla_prefill_check_spec(S, B::facts);
  if constexpr (!served.ok()) {  // its kernels would not compile
    return served;
  } else {
    if (!(p.spec == S)) return not_the_compiled_spec;
    const MlaPrefillParts parts{.layers = detail::mla_prefill_candidates<B, S>,
                                .products = gemm_candidates<B, mla_prefill_up_spec()>,
                                .attention = op_candidates<FlashAttentionRegistry, B, mla_prefill_attention_spec()>,
                                .merge = op_candidates<AttentionCombineRegistry, B, mla_prefill_merge_spec()>};
    return mla_prefill_select(p, parts, B::facts, plan);
  }
}

}  // namespace tilewave
