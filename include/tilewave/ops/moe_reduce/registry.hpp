// SPDX-License-Identifier: MIT
// Each architecture has one list of specs and policies, which feeds dispatch, tests, benchmarks, the tuner and the ISA
// gate.
#pragma once

#include "tilewave/ops/moe_reduce/launch.hpp"
#include "tilewave/ops/moe_reduce/policy.hpp"
#include "tilewave/tile/registry.hpp"

namespace tilewave {

/// Returns the specs that every architecture serves.
constexpr auto moe_reduce_specs(ArchId) {
  return std::to_array<MoeReduceSpec>({{DType::bf16}, {DType::f16}, {DType::f32}});
}

struct MoeReduceRegistry : TileRegistry<MoeReduceSpec, MoeReduceProblem, moe_reduce_aligned> {
  static constexpr auto check_spec = moe_reduce_check_spec;
  static constexpr auto check = moe_reduce_check;
  static constexpr auto policies = moe_reduce_policies;
  /// Prefers the most accesses a slot with which all slots of a token are one batch and tiles fill the chip. With a
  /// table, whose latency is shared by a lane's columns, tiles must fill it for as many rounds. Other cases go as for
  /// all tiles.
  static bool better(const RowPolicy& a, const RowPolicy& b, const MoeReduceProblem& p, const ArchFacts& facts) {
    if (a.vec != b.vec || a.chunks == b.chunks) return better_tile(a, b, p.spec.x, p.rows, p.columns, facts);
    const std::int64_t slots = std::int64_t{facts.compute_units} * facts.simds_per_cu * facts.wave_lanes;
    const auto suits = [&](const RowPolicy& policy) {
      const std::int64_t lanes = std::int64_t{p.rows} * tiles_of(policy, p.spec.x, p.columns) * policy.lanes;
      if (policy.chunks == 1) return true;
      if (p.slots != nullptr) return lanes > 2 * policy.chunks * slots;
      return moe_reduce_batch(policy, p.spec.x) >= p.topk && lanes > 4 * slots;
    };
    if (suits(a) != suits(b)) return suits(a);
    return suits(a) ? a.chunks > b.chunks : a.chunks < b.chunks;
  }
  template <class B, MoeReduceSpec S, RowPolicy P>
  static constexpr auto launch() {
    return &moe_reduce_launch<B, S, P>;
  }
};

using MoeReduceEntry = OpEntry<MoeReduceRegistry>;
using MoeReducePlan = OpPlan<MoeReduceRegistry>;

/// These are all entries of one spec on one backend, the choice among entries, and the plan of one spec
/// (tile/registry.hpp).
template <class B, MoeReduceSpec S>
inline constexpr auto& moe_reduce_entries = op_entries<MoeReduceRegistry, B, S>;
inline constexpr auto moe_reduce_select = select_entry<MoeReduceRegistry>;
template <class B, MoeReduceSpec S>
inline constexpr auto moe_reduce_plan = plan_entry<MoeReduceRegistry, B, S>;

}  // namespace tilewave
