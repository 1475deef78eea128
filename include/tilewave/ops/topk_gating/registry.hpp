// SPDX-License-Identifier: MIT
// Each architecture has one list of specs and policies, which feeds dispatch, tests, benchmarks, the tuner and the ISA
// gate.
#pragma once

#include "tilewave/ops/topk_gating/launch.hpp"
#include "tilewave/ops/topk_gating/policy.hpp"
#include "tilewave/tile/registry.hpp"

namespace tilewave {

/// Returns the specs that every architecture serves.
constexpr std::array<TopkGatingSpec, 3> topk_gating_specs(ArchId) {
  return {{{DType::bf16}, {DType::f16}, {DType::f32}}};
}

struct TopkGatingRegistry : RowRegistry<TopkGatingSpec, TopkGatingProblem, topk_gating_aligned> {
  using Policy = TopkGatingPolicy;
  static constexpr auto check_spec = topk_gating_check_spec;
  static constexpr auto check = topk_gating_check;
  static constexpr auto policies = topk_gating_policies;

  static Status takes(const Policy& policy, const Problem& p, const ArchFacts& facts) {
    if (!topk_gating_takes(policy, p)) {
      return {StatusCode::no_matching_entry, "no entry takes so many experts and choices"};
    }
    return RowRegistry::takes(policy, p, facts);
  }
  /// Prefers wide accesses, then few keys to merge. Few tokens take as long as one lane does, so few experts a lane
  /// come next; the rest goes as for rows.
  static bool better(const Policy& a, const Policy& b, const Problem& p, const ArchFacts& facts) {
    if (a.vec != b.vec) return a.vec > b.vec;
    if (a.keep != b.keep) return a.keep < b.keep;
    const std::int64_t slots = std::int64_t{facts.compute_units} * facts.simds_per_cu * facts.wave_lanes;
    const bool few = std::int64_t{rows_of(p)} * max_of(a.lanes, b.lanes) <= 2 * slots;
    if (few && a.chunks != b.chunks) return a.chunks < b.chunks;
    return RowRegistry::better(a, b, p, facts);
  }
  template <class B, TopkGatingSpec S, TopkGatingPolicy P>
  static constexpr auto launch() {
    return &topk_gating_launch<B, S, P>;
  }
};

using TopkGatingEntry = OpEntry<TopkGatingRegistry>;
using TopkGatingPlan = OpPlan<TopkGatingRegistry>;

/// These are all entries of one spec on one backend, the choice among entries, and the plan of one spec
/// (tile/registry.hpp).
template <class B, TopkGatingSpec S>
inline constexpr auto& topk_gating_entries = op_entries<TopkGatingRegistry, B, S>;
inline constexpr auto topk_gating_select = select_entry<TopkGatingRegistry>;
template <class B, TopkGatingSpec S>
inline constexpr auto topk_gating_plan = plan_entry<TopkGatingRegistry, B, S>;

}  // namespace tilewave
