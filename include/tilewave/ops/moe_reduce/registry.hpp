// SPDX-License-Identifier: MIT
// One list of specs and policies per architecture: it feeds dispatch, tests, benchmarks, the tuner and the ISA gate.
#pragma once

#include "tilewave/ops/moe_reduce/launch.hpp"
#include "tilewave/ops/moe_reduce/policy.hpp"
#include "tilewave/tile/registry.hpp"

namespace tilewave {

/// The specs every architecture serves.
constexpr std::array<MoeReduceSpec, 3> moe_reduce_specs(ArchId) {
  return {{{DType::bf16}, {DType::f16}, {DType::f32}}};
}

struct MoeReduceRegistry : TileRegistry<MoeReduceSpec, MoeReduceProblem, moe_reduce_aligned> {
  static constexpr auto check = moe_reduce_check;
  static constexpr auto policies = moe_reduce_policies;
  /// The most accesses a slot with which all slots of a token are one batch and tiles fill the chip; then as for all
  /// tiles. A table's latency is shared by a lane's columns: where it names more slots than any such batch takes, the
  /// most accesses of which there are rounds of tiles enough.
  static bool better(const RowPolicy& a, const RowPolicy& b, const MoeReduceProblem& p, const ArchFacts& facts) {
    if (a.vec != b.vec || a.chunks == b.chunks) return better_tile(a, b, p.spec.x, p.rows, p.columns, facts);
    const std::int64_t slots = std::int64_t{facts.compute_units} * facts.simds_per_cu * facts.wave_lanes;
    const bool long_table = p.slots != nullptr && p.topk > 4;  // two accesses a slot take 4 slots a batch
    const auto suits = [&](const RowPolicy& policy) {
      const std::int64_t lanes = std::int64_t{p.rows} * tiles_of(policy, p.spec.x, p.columns) * policy.lanes;
      const bool one_batch = moe_reduce_batch(policy, p.spec.x) >= p.topk;
      return policy.chunks == 1 || (one_batch && lanes > 4 * slots) || (long_table && lanes > 16 * slots);
    };
    if (suits(a) != suits(b)) return suits(a);
    return suits(a) ? a.chunks > b.chunks : a.chunks < b.chunks;
  }
  template <class B, MoeReduceSpec S, RowPolicy P>
  static constexpr auto launch() {
    return &moe_reduce_launch<B, S, P>;
  }
  template <class B, MoeReduceSpec S, RowPolicy P>
  static constexpr int lds_bytes() {
    return 0;
  }
};

using MoeReduceEntry = OpEntry<MoeReduceRegistry>;

/// All entries of one spec on one backend; the choice among entries; the plan for one spec. See tile/registry.hpp.
template <class B, MoeReduceSpec S>
inline constexpr auto& moe_reduce_entries = op_entries<MoeReduceRegistry, B, S>;
inline constexpr auto moe_reduce_select = select_entry<MoeReduceRegistry>;
template <class B, MoeReduceSpec S>
inline constexpr auto moe_reduce_plan = plan_entry<MoeReduceRegistry, B, S>;

}  // namespace tilewave
