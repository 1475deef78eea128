// SPDX-License-Identifier: MIT
// One list of specs and policies per architecture: it feeds dispatch, tests, benchmarks and the tuner.
#pragma once

#include <utility>

#include "tilewave/ops/attention_combine/launch.hpp"
#include "tilewave/ops/attention_combine/policy.hpp"

namespace tilewave {

using AttentionCombineEntry = RowEntry<AttentionCombineSpec, AttentionCombineProblem>;

/// The specs every architecture serves: from f32 to any type, from a narrow type to itself and to f32.
constexpr std::array<AttentionCombineSpec, 7> attention_combine_specs(ArchId) {
  return {{{DType::f32, DType::bf16},
           {DType::f32, DType::f16},
           {DType::f32, DType::f32},
           {DType::bf16, DType::bf16},
           {DType::bf16, DType::f32},
           {DType::f16, DType::f16},
           {DType::f16, DType::f32}}};
}

/// All entries of one spec on one backend.
template <class B, AttentionCombineSpec S>
inline constexpr auto attention_combine_entries = []<std::size_t... i>(std::index_sequence<i...>) {
  constexpr RowPolicies policies = attention_combine_policies(B::facts.id, S);
  return std::array{AttentionCombineEntry{B::facts.id, B::emulated, S, policies.list[i],
                                          &attention_combine_launch<B, S, policies.list[i]>, 0}...};
}
(std::make_index_sequence<attention_combine_policies(B::facts.id, S).count>{});

/// Pick the entry for a problem: the candidate of its spec that suits the rows best (better_policy).
/// Errors: those of attention_combine_check, or no_matching_entry.
inline Status attention_combine_select(const AttentionCombineProblem& p,
                                       std::span<const AttentionCombineEntry* const> candidates, const ArchFacts& facts,
                                       const AttentionCombineEntry*& entry) {
  return select_row_entry(p, candidates, facts, attention_combine_check, attention_combine_aligned, entry);
}

/// The entry for a problem on backend B for the one spec S that the caller compiles in. Errors: those of
/// attention_combine_select.
template <class B, AttentionCombineSpec S>
Status attention_combine_plan(const AttentionCombineProblem& p, const AttentionCombineEntry*& entry) {
  entry = nullptr;
  if (Status s = check_planned_spec(S, p); !s.ok()) return s;
  return attention_combine_select(p, pointers_to(attention_combine_entries<B, S>), B::facts, entry);
}

}  // namespace tilewave
