// SPDX-License-Identifier: MIT
// One list of specs and policies per architecture: it feeds dispatch, tests, benchmarks and the tuner.
#pragma once

#include <span>
#include <utility>

#include "tilewave/ops/vec_add/launch.hpp"
#include "tilewave/ops/vec_add/policy.hpp"

namespace tilewave {

/// A compiled kernel: what it computes, how, and how to start it.
struct VecAddEntry {
  ArchId arch;
  bool emulated;
  VecAddSpec spec;
  VecAddPolicy policy;
  Status (*launch)(const VecAddProblem&, hipStream_t);
};

/// The specs every architecture serves.
constexpr std::array<VecAddSpec, 3> vec_add_specs(ArchId) { return {{{DType::f32}, {DType::f16}, {DType::bf16}}}; }

/// All entries of one spec on one backend.
template <class B, VecAddSpec S>
inline constexpr auto vec_add_entries = []<std::size_t... i>(std::index_sequence<i...>) {
  constexpr auto policies = vec_add_policies(B::facts.id, S);
  return std::array{VecAddEntry{B::facts.id, B::emulated, S, policies[i], &vec_add_launch<B, S, policies[i]>}...};
}
(std::make_index_sequence<vec_add_policies(B::facts.id, S).size()>{});

/// Pick the entry for a problem: the first candidate of its spec whose policy takes it.
/// Errors: those of vec_add_check, or no_matching_entry.
inline Status vec_add_select(const VecAddProblem& p, std::span<const VecAddEntry* const> candidates,
                             const ArchFacts& facts, const VecAddEntry*& entry) {
  entry = nullptr;
  if (Status s = vec_add_check(p, facts); !s.ok()) return s;
  for (const VecAddEntry* e : candidates) {
    if (e->arch != facts.id || !(e->spec == p.spec) || !policy_takes(e->policy, p)) continue;
    entry = e;
    return {};
  }
  return {StatusCode::no_matching_entry, "no entry was built for this spec and this alignment"};
}

/// The entry for a problem on backend B for the one spec S that the caller compiles in.
template <class B, VecAddSpec S>
Status vec_add_plan(const VecAddProblem& p, const VecAddEntry*& entry) {
  entry = nullptr;
  if (Status s = check_planned_spec(S, p); !s.ok()) return s;
  return vec_add_select(p, pointers_to(vec_add_entries<B, S>), B::facts, entry);
}

}  // namespace tilewave
