// SPDX-License-Identifier: MIT
// One list of specs and policies per architecture: it feeds dispatch, tests, benchmarks and the tuner.
#pragma once

#include "tilewave/ops/sampling/launch.hpp"
#include "tilewave/ops/sampling/policy.hpp"
#include "tilewave/tile/registry.hpp"

namespace tilewave {

/// The specs every architecture serves.
constexpr std::array<SamplingSpec, 3> sampling_specs(ArchId) { return {{{DType::bf16}, {DType::f16}, {DType::f32}}}; }

struct SamplingRegistry : RowRegistry<SamplingSpec, SamplingProblem, sampling_aligned> {
  static constexpr auto check = sampling_check;
  static constexpr auto policies = sampling_policies;
  /// As of all rows, but no clusters where they come in many rounds, nor with top_k, whose blocks wait for each other
  /// digit by digit (docs/performance.md has the times).
  static bool better(const RowPolicy& a, const RowPolicy& b, const SamplingProblem& p, const ArchFacts& facts) {
    const bool counts = p.top_k.data != nullptr || p.top_k.value > 0;
    const auto waits = [&](const RowPolicy& policy) {
      return policy.blocks > 1 && (counts || std::int64_t{p.rows} * policy.blocks > 6 * facts.compute_units);
    };
    if (a.vec == b.vec && waits(a) != waits(b)) return waits(b);
    return RowRegistry::better(a, b, p, facts);
  }
  template <class B, SamplingSpec S, RowPolicy P>
  static constexpr auto launch() {
    return &sampling_launch<B, S, P>;
  }
  template <class B, SamplingSpec S, RowPolicy P>
  static constexpr int lds_bytes() {
    return sizeof(typename Sampling<B, S, P>::Shared);
  }
};

using SamplingEntry = OpEntry<SamplingRegistry>;

/// All entries of one spec on one backend; the choice among entries; the plan for one spec. See tile/registry.hpp.
template <class B, SamplingSpec S>
inline constexpr auto& sampling_entries = op_entries<SamplingRegistry, B, S>;
inline constexpr auto sampling_select = select_entry<SamplingRegistry>;
template <class B, SamplingSpec S>
inline constexpr auto sampling_plan = plan_entry<SamplingRegistry, B, S>;

}  // namespace tilewave
