// SPDX-License-Identifier: MIT
// One list of specs and policies per architecture: it feeds dispatch, tests, benchmarks, the tuner and the ISA gate.
#pragma once

#include <utility>

#include "tilewave/ops/norm/launch.hpp"
#include "tilewave/ops/norm/policy.hpp"

namespace tilewave {

using NormEntry = RowEntry<NormSpec, NormProblem>;

/// The specs every architecture serves: all outputs for bf16 rows, the plain and the per-token fp8 one for the others,
/// with every type, weight, output and kind. Benchmarks time 16. wide_specs.hpp has other combinations of these.
constexpr std::array<NormSpec, 20> norm_specs(ArchId arch) {
  std::array<NormSpec, 20> specs{};
  const DType fp8 = facts_of(arch).fp8;
  int n = 0;
  const auto add = [&](NormKind kind, DType x, DType weight, DType out, ScaleMode scale) {
    specs[n++] = {kind, x, weight, out, scale};
  };
  for (const NormKind kind : {NormKind::rms, NormKind::layer}) {
    for (const DType x : {DType::bf16, DType::f16, DType::f32}) add(kind, x, x, x, ScaleMode::none);
    for (const ScaleMode scale : {ScaleMode::per_token, ScaleMode::per_tensor, ScaleMode::per_group}) {
      add(kind, DType::bf16, DType::bf16, fp8, scale);
    }
    add(kind, DType::bf16, DType::bf16, DType::i8, ScaleMode::per_token);
    add(kind, DType::bf16, DType::bf16, DType::i8, ScaleMode::per_tensor);
  }
  add(NormKind::rms, DType::bf16, DType::f32, fp8, ScaleMode::per_token);
  add(NormKind::layer, DType::f16, DType::f32, DType::f16, ScaleMode::none);
  add(NormKind::rms, DType::f16, DType::f16, fp8, ScaleMode::per_token);
  add(NormKind::layer, DType::f32, DType::f32, fp8, ScaleMode::per_token);
  return specs;
}

/// All entries of one spec on one backend.
template <class B, NormSpec S>
inline constexpr auto norm_entries = []<std::size_t... i>(std::index_sequence<i...>) {
  constexpr RowPolicies policies = norm_policies(B::facts.id, S);
  return std::array{NormEntry{B::facts.id, B::emulated, S, policies.list[i], &norm_launch<B, S, policies.list[i]>,
                              sizeof(typename Norm<B, S, policies.list[i]>::Shared)}...};
}
(std::make_index_sequence<norm_policies(B::facts.id, S).count>{});

/// Pick the entry for a problem: the candidate of its spec that suits the rows best (better_policy).
/// Errors, with a null entry: those of norm_check, or no_matching_entry.
inline Status norm_select(const NormProblem& p, std::span<const NormEntry* const> candidates, const ArchFacts& facts,
                          const NormEntry*& entry) {
  return select_row_entry(p, candidates, facts, norm_check, norm_aligned, entry);
}

/// The entry for a problem on backend B for the one spec S that the caller compiles in.
template <class B, NormSpec S>
Status norm_plan(const NormProblem& p, const NormEntry*& entry) {
  entry = nullptr;
  if (Status s = check_planned_spec(S, p); !s.ok()) return s;
  return norm_select(p, pointers_to(norm_entries<B, S>), B::facts, entry);
}

}  // namespace tilewave
