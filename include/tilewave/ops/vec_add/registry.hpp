// SPDX-License-Identifier: MIT
// Each architecture has one list of specs and policies, which feeds dispatch, tests, benchmarks and the tuner.
#pragma once

#include "tilewave/ops/vec_add/launch.hpp"
#include "tilewave/ops/vec_add/policy.hpp"
#include "tilewave/tile/registry.hpp"

namespace tilewave {

/// Returns the specs that every architecture serves.
constexpr auto vec_add_specs(ArchId) { return std::to_array<VecAddSpec>({{DType::f32}, {DType::f16}, {DType::bf16}}); }

struct VecAddRegistry {
  using Spec = VecAddSpec;
  using Problem = VecAddProblem;
  using Policy = VecAddPolicy;
  static constexpr auto check_spec = vec_add_check_spec;
  static constexpr auto check = vec_add_check;
  static constexpr auto policies = vec_add_policies;
  static Status takes(const VecAddPolicy& policy, const VecAddProblem& p, const ArchFacts&) {
    if (policy_takes(policy, p)) return {};
    return {StatusCode::no_matching_entry, "no entry was built for this alignment"};
  }
  /// Policies are listed by preference.
  static bool better(const VecAddPolicy&, const VecAddPolicy&, const VecAddProblem&, const ArchFacts&) { return false; }
  template <class B, VecAddSpec S, VecAddPolicy P>
  static constexpr auto launch() {
    return &vec_add_launch<B, S, P>;
  }
};

using VecAddEntry = OpEntry<VecAddRegistry>;
using VecAddPlan = OpPlan<VecAddRegistry>;

/// These are all entries of one spec on one backend, the choice among entries, and the plan of one spec
/// (tile/registry.hpp).
template <class B, VecAddSpec S>
inline constexpr auto& vec_add_entries = op_entries<VecAddRegistry, B, S>;
inline constexpr auto vec_add_select = select_entry<VecAddRegistry>;
template <class B, VecAddSpec S>
inline constexpr auto vec_add_plan = plan_entry<VecAddRegistry, B, S>;

}  // namespace tilewave
