// SPDX-License-Identifier: MIT
// Each architecture has one list of specs and policies, which feeds dispatch, tests, benchmarks and the tuner.
#pragma once

#include "tilewave/ops/sampling/launch.hpp"
#include "tilewave/ops/sampling/policy.hpp"
#include "tilewave/tile/registry.hpp"

namespace tilewave {

/// Returns the specs that every architecture serves.
constexpr std::array<SamplingSpec, 3> sampling_specs(ArchId) { return {{{DType::bf16}, {DType::f16}, {DType::f32}}}; }

struct SamplingRegistry : RowRegistry<SamplingSpec, SamplingProblem, sampling_aligned> {
  static constexpr auto check_spec = sampling_check_spec;
  static constexpr auto check = sampling_check;
  static constexpr auto policies = sampling_policies;
  static std::size_t workspace_bytes(const SamplingProblem& p, const RowPolicy&, const ArchFacts& facts, int) {
    return sampling_workspace_size(p, facts);
  }
  /// Compares as for all rows where only one policy is wide, or where rows fit a wave; otherwise by the least time.
  static bool better(const RowPolicy& a, const RowPolicy& b, const SamplingProblem& p, const ArchFacts& facts) {
    const auto of_wave = [&](const RowPolicy& policy) { return policy.lanes == facts.wave_lanes; };
    if (facts.max_cluster_blocks == 1 || a.vec != b.vec || of_wave(a) || of_wave(b)) {
      return RowRegistry::better(a, b, p, facts);
    }
    return microseconds(a, p, facts) < microseconds(b, p, facts);
  }
  template <class B, SamplingSpec S, RowPolicy P>
  static constexpr auto launch() {
    return &sampling_launch<B, S, P>;
  }

 private:
  /// Returns the modelled time: rounds of blocks, each with a latency and the logits of an SM, which arrive sooner
  /// where few SMs load. Clusters of more than two blocks leave SMs out: an H200 has room for 62 of 66 clusters of 4,
  /// and for 30 of 33 clusters of 8. It was fitted to bf16 rows of `bench_sampling --policies=all` (H100, 2026-11-26)
  /// without filters, which lengthen all policies alike.
  static float microseconds(const RowPolicy& policy, const SamplingProblem& p, const ArchFacts& facts) {
    const int most = facts.simds_per_cu * policy.waves_per_simd * facts.wave_lanes / policy.block_threads();
    const auto rows_at_once = [&](int blocks_of_sm) {
      const int clusters = facts.compute_units * blocks_of_sm / policy.blocks;
      return policy.blocks > 2 ? clusters * 15 / 16 : clusters;
    };
    const int shared = p.rows <= rows_at_once(1) ? 1 : most;
    const int rounds = ceil_div(p.rows, rows_at_once(shared));
    const float latency = policy.blocks > 1 ? 6.4f + 0.06f * policy.blocks : 5.0f;
    const float logits = static_cast<float>(p.columns) / policy.blocks;
    const float busy = min_of(static_cast<float>(p.rows) * policy.blocks / facts.compute_units, 1.0f);
    const float work = policy.held ? (1.1e-4f + 0.4e-4f * busy) * logits : 0.76e-4f * logits * size_of(p.spec.x);
    return (0.44f + 0.56f * rounds) * (latency + work * shared);
  }
};

using SamplingEntry = OpEntry<SamplingRegistry>;
using SamplingPlan = OpPlan<SamplingRegistry>;

/// These are all entries of one spec on one backend, the choice among entries, and the plan of one spec
/// (tile/registry.hpp).
template <class B, SamplingSpec S>
inline constexpr auto& sampling_entries = op_entries<SamplingRegistry, B, S>;
inline constexpr auto sampling_select = select_entry<SamplingRegistry>;
template <class B, SamplingSpec S>
inline constexpr auto sampling_plan = plan_entry<SamplingRegistry, B, S>;

}  // namespace tilewave
