// SPDX-License-Identifier: MIT
// One list of specs and policies per architecture: it feeds dispatch, tests, benchmarks, the tuner and the ISA gate.
#pragma once

#include <utility>

#include "tilewave/ops/softmax/launch.hpp"
#include "tilewave/ops/softmax/policy.hpp"

namespace tilewave {

using SoftmaxEntry = RowEntry<SoftmaxSpec, SoftmaxProblem>;

/// The specs every architecture serves.
constexpr std::array<SoftmaxSpec, 6> softmax_specs(ArchId) {
  return {{{SoftmaxKind::softmax, DType::bf16},
           {SoftmaxKind::softmax, DType::f16},
           {SoftmaxKind::softmax, DType::f32},
           {SoftmaxKind::log_softmax, DType::bf16},
           {SoftmaxKind::log_softmax, DType::f16},
           {SoftmaxKind::log_softmax, DType::f32}}};
}

/// All entries of one spec on one backend.
template <class B, SoftmaxSpec S>
inline constexpr auto softmax_entries = []<std::size_t... i>(std::index_sequence<i...>) {
  constexpr RowPolicies policies = softmax_policies(B::facts.id, S);
  return std::array{SoftmaxEntry{B::facts.id, B::emulated, S, policies.list[i], &softmax_launch<B, S, policies.list[i]>,
                                 sizeof(typename Softmax<B, S, policies.list[i]>::Shared)}...};
}
(std::make_index_sequence<softmax_policies(B::facts.id, S).count>{});

/// Pick the entry for a problem: the candidate of its spec that suits the rows best (better_policy).
/// Errors, with a null entry: those of softmax_check, or no_matching_entry.
inline Status softmax_select(const SoftmaxProblem& p, std::span<const SoftmaxEntry* const> candidates,
                             const ArchFacts& facts, const SoftmaxEntry*& entry) {
  return select_row_entry(p, candidates, facts, softmax_check, softmax_aligned, entry);
}

/// The entry for a problem on backend B for the one spec S that the caller compiles in.
template <class B, SoftmaxSpec S>
Status softmax_plan(const SoftmaxProblem& p, const SoftmaxEntry*& entry) {
  entry = nullptr;
  if (Status s = check_planned_spec(S, p); !s.ok()) return s;
  return softmax_select(p, pointers_to(softmax_entries<B, S>), B::facts, entry);
}

}  // namespace tilewave
