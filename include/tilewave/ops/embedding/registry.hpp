// SPDX-License-Identifier: MIT
// Each architecture has one list of specs and policies, which feeds dispatch, tests, benchmarks, the tuner and the ISA
// gate.
#pragma once

#include "tilewave/ops/embedding/launch.hpp"
#include "tilewave/ops/embedding/policy.hpp"
#include "tilewave/tile/registry.hpp"

namespace tilewave {

/// Returns the specs that every architecture serves.
constexpr auto embedding_specs(ArchId) {
  return std::to_array<EmbeddingSpec>({{DType::bf16}, {DType::f16}, {DType::f32}});
}

struct EmbeddingRegistry : TileRegistry<EmbeddingSpec, EmbeddingProblem, embedding_aligned> {
  static constexpr auto check_spec = embedding_check_spec;
  static constexpr auto check = embedding_check;
  static constexpr auto policies = embedding_policies;
  template <class B, EmbeddingSpec S, RowPolicy P>
  static constexpr auto launch() {
    return &embedding_launch<B, S, P>;
  }
};

using EmbeddingEntry = OpEntry<EmbeddingRegistry>;
using EmbeddingPlan = OpPlan<EmbeddingRegistry>;

/// These are all entries of one spec on one backend, the choice among entries, and the plan of one spec
/// (tile/registry.hpp).
template <class B, EmbeddingSpec S>
inline constexpr auto& embedding_entries = op_entries<EmbeddingRegistry, B, S>;
inline constexpr auto embedding_select = select_entry<EmbeddingRegistry>;
template <class B, EmbeddingSpec S>
inline constexpr auto embedding_plan = plan_entry<EmbeddingRegistry, B, S>;

}  // namespace tilewave
