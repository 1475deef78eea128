// SPDX-License-Identifier: MIT
// Each architecture has one list of specs and policies, which feeds dispatch, tests, benchmarks, the tuner and the ISA
// gate.
#pragma once

#include "tilewave/ops/moe_sort/launch.hpp"
#include "tilewave/ops/moe_sort/policy.hpp"
#include "tilewave/tile/registry.hpp"

namespace tilewave {

/// Returns the specs that every architecture serves.
constexpr std::array<MoeSortSpec, 1> moe_sort_specs(ArchId) { return {}; }

struct MoeSortRegistry {
  using Spec = MoeSortSpec;
  using Problem = MoeSortProblem;
  using Policy = MoeSortPolicy;
  /// A sort has one spec, which every chip serves.
  static constexpr Status check_spec(const MoeSortSpec&, const ArchFacts&) { return {}; }
  static constexpr auto check = moe_sort_check;
  static constexpr auto policies = moe_sort_policies;
  static std::size_t workspace_bytes(const Problem& p, const Policy& policy, const ArchFacts&, int) {
    return moe_sort_workspace_size(p, policy);
  }

  static Status takes(const Policy&, const Problem&, const ArchFacts&) { return {}; }
  static bool better(const Policy&, const Policy&, const Problem&, const ArchFacts&) { return false; }
  template <class B, MoeSortSpec S, MoeSortPolicy P>
  static constexpr auto launch() {
    return &moe_sort_launch<B, S, P>;
  }
};

using MoeSortEntry = OpEntry<MoeSortRegistry>;
using MoeSortPlan = OpPlan<MoeSortRegistry>;

/// These are all entries of one spec on one backend, the choice among entries, and the plan of one spec
/// (tile/registry.hpp).
template <class B, MoeSortSpec S>
inline constexpr auto& moe_sort_entries = op_entries<MoeSortRegistry, B, S>;
inline constexpr auto moe_sort_select = select_entry<MoeSortRegistry>;
template <class B, MoeSortSpec S>
inline constexpr auto moe_sort_plan = plan_entry<MoeSortRegistry, B, S>;

}  // namespace tilewave
