// SPDX-License-Identifier: MIT
// One list of specs and policies for each architecture. It feeds dispatch, tests, benchmarks and the tuner.
#pragma once

#include "tilewave/ops/attention_combine/launch.hpp"
#include "tilewave/ops/attention_combine/policy.hpp"
#include "tilewave/tile/registry.hpp"

namespace tilewave {

/// The specs that every architecture serves: from f32 to any type, and from a narrow type to itself and to f32.
constexpr auto attention_combine_specs(ArchId) {
  return std::to_array<AttentionCombineSpec>({{DType::f32, DType::bf16},
                                              {DType::f32, DType::f16},
                                              {DType::f32, DType::f32},
                                              {DType::bf16, DType::bf16},
                                              {DType::bf16, DType::f32},
                                              {DType::f16, DType::f16},
                                              {DType::f16, DType::f32}});
}

struct AttentionCombineRegistry
    : RowRegistry<AttentionCombineSpec, AttentionCombineProblem, attention_combine_aligned> {
  static constexpr auto check_spec = attention_combine_check_spec;
  static constexpr auto check = attention_combine_check;
  static constexpr auto policies = attention_combine_policies;
  template <class B, AttentionCombineSpec S, RowPolicy P>
  static constexpr auto launch() {
    return &attention_combine_launch<B, S, P>;
  }
};

using AttentionCombineEntry = OpEntry<AttentionCombineRegistry>;
using AttentionCombinePlan = OpPlan<AttentionCombineRegistry>;

/// All entries of one spec on one backend, the choice among entries, and the plan for one spec. See tile/registry.hpp.
template <class B, AttentionCombineSpec S>
inline constexpr auto& attention_combine_entries = op_entries<AttentionCombineRegistry, B, S>;
inline constexpr auto attention_combine_select = select_entry<AttentionCombineRegistry>;
template <class B, AttentionCombineSpec S>
inline constexpr auto attention_combine_plan = plan_entry<AttentionCombineRegistry, B, S>;

}  // namespace tilewave
