// SPDX-License-Identifier: MIT
// One list of specs and policies per architecture: it feeds dispatch, tests, benchmarks, the tuner and the ISA gate.
#pragma once

#include <utility>

#include "tilewave/ops/quant/launch.hpp"
#include "tilewave/ops/quant/policy.hpp"

namespace tilewave {

using QuantEntry = RowEntry<QuantSpec, QuantProblem>;

/// The specs every architecture serves: bf16 and f16 to fp8 and i8 with every scale, f32 with one a row; back to bf16
/// with every scale, to f16 and f32 with one a row.
constexpr std::array<QuantSpec, 24> quant_specs(ArchId arch) {
  std::array<QuantSpec, 24> specs{};
  int n = 0;
  for (const DType codes : {facts_of(arch).fp8, DType::i8}) {
    for (const ScaleMode scale : {ScaleMode::per_token, ScaleMode::per_tensor, ScaleMode::per_group}) {
      specs[n++] = {DType::bf16, codes, scale};
      specs[n++] = {DType::f16, codes, scale};
      specs[n++] = {codes, DType::bf16, scale};
    }
    specs[n++] = {DType::f32, codes, ScaleMode::per_token};
    specs[n++] = {codes, DType::f16, ScaleMode::per_token};
    specs[n++] = {codes, DType::f32, ScaleMode::per_token};
  }
  return specs;
}

/// All entries of one spec on one backend.
template <class B, QuantSpec S>
inline constexpr auto quant_entries = []<std::size_t... i>(std::index_sequence<i...>) {
  constexpr RowPolicies policies = quant_policies(B::facts.id, S);
  return std::array{QuantEntry{B::facts.id, B::emulated, S, policies.list[i], &quant_launch<B, S, policies.list[i]>,
                               sizeof(typename Quant<B, S, policies.list[i]>::Shared)}...};
}
(std::make_index_sequence<quant_policies(B::facts.id, S).count>{});

/// Pick the entry for a problem: the candidate of its spec that suits the rows best (better_policy).
/// Errors, with a null entry: those of quant_check, or no_matching_entry.
inline Status quant_select(const QuantProblem& p, std::span<const QuantEntry* const> candidates, const ArchFacts& facts,
                           const QuantEntry*& entry) {
  return select_row_entry(p, candidates, facts, quant_check, quant_aligned, entry);
}

/// The entry for a problem on backend B for the one spec S that the caller compiles in.
template <class B, QuantSpec S>
Status quant_plan(const QuantProblem& p, const QuantEntry*& entry) {
  entry = nullptr;
  if (Status s = check_planned_spec(S, p); !s.ok()) return s;
  return quant_select(p, pointers_to(quant_entries<B, S>), B::facts, entry);
}

}  // namespace tilewave
