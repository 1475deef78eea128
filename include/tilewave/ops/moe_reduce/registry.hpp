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
