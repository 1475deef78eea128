// SPDX-License-Identifier: MIT
// Each architecture has one list of specs and policies, which feeds dispatch, tests, benchmarks, the tuner and the ISA
// gate.
#pragma once

#include "tilewave/ops/rope/launch.hpp"
#include "tilewave/ops/rope/policy.hpp"
#include "tilewave/tile/registry.hpp"

namespace tilewave {

/// Returns the specs that every architecture serves. A full table of halves needs no kernel of its own.
constexpr auto rope_specs(ArchId) {
  using enum RopePairs;
  return std::to_array<RopeSpec>({{DType::bf16, DType::bf16, halves},
                                  {DType::bf16, DType::f32, halves},
                                  {DType::f16, DType::f16, halves},
                                  {DType::f16, DType::f32, halves},
                                  {DType::f32, DType::f32, halves},
                                  {DType::bf16, DType::bf16, neighbours},
                                  {DType::bf16, DType::f32, neighbours},
                                  {DType::f16, DType::f16, neighbours},
                                  {DType::f32, DType::f32, neighbours},
                                  {DType::bf16, DType::bf16, halves, true},
                                  {DType::f16, DType::f32, halves, true},
                                  {DType::bf16, DType::bf16, neighbours, true}});
}

struct RopeRegistry : RowRegistry<RopeSpec, RopeProblem, rope_aligned> {
  static constexpr auto check_spec = rope_check_spec;
  static constexpr auto check = rope_check;
  static constexpr auto policies = rope_policies;
  template <class B, RopeSpec S, RowPolicy P>
  static constexpr auto launch() {
    return &rope_launch<B, S, P>;
  }
};

using RopeEntry = OpEntry<RopeRegistry>;
using RopePlan = OpPlan<RopeRegistry>;

/// These are all entries of one spec on one backend, the choice among entries, and the plan of one spec
/// (tile/registry.hpp).
template <class B, RopeSpec S>
inline constexpr auto& rope_entries = op_entries<RopeRegistry, B, S>;
inline constexpr auto rope_select = select_entry<RopeRegistry>;
template <class B, RopeSpec S>
inline constexpr auto rope_plan = plan_entry<RopeRegistry, B, S>;

}  // namespace tilewave
