// SPDX-License-Identifier: MIT
// Each architecture has one list of specs and policies, which feeds dispatch, tests, benchmarks, the tuner and the ISA
// gate.
#pragma once

#include "tilewave/ops/softmax/launch.hpp"
#include "tilewave/ops/softmax/policy.hpp"
#include "tilewave/tile/registry.hpp"

namespace tilewave {

/// Returns the specs that every architecture serves.
constexpr auto softmax_specs(ArchId) {
  return std::to_array<SoftmaxSpec>({{SoftmaxKind::softmax, DType::bf16},
                                     {SoftmaxKind::softmax, DType::f16},
                                     {SoftmaxKind::softmax, DType::f32},
                                     {SoftmaxKind::log_softmax, DType::bf16},
                                     {SoftmaxKind::log_softmax, DType::f16},
                                     {SoftmaxKind::log_softmax, DType::f32}});
}

struct SoftmaxRegistry : RowRegistry<SoftmaxSpec, SoftmaxProblem, softmax_aligned> {
  static constexpr auto check_spec = softmax_check_spec;
  static constexpr auto check = softmax_check;
  static constexpr auto policies = softmax_policies;
  template <class B, SoftmaxSpec S, RowPolicy P>
  static constexpr auto launch() {
    return &softmax_launch<B, S, P>;
  }
};

using SoftmaxEntry = OpEntry<SoftmaxRegistry>;
using SoftmaxPlan = OpPlan<SoftmaxRegistry>;

/// These are all entries of one spec on one backend, the choice among entries, and the plan of one spec
/// (tile/registry.hpp).
template <class B, SoftmaxSpec S>
inline constexpr auto& softmax_entries = op_entries<SoftmaxRegistry, B, S>;
inline constexpr auto softmax_select = select_entry<SoftmaxRegistry>;
template <class B, SoftmaxSpec S>
inline constexpr auto softmax_plan = plan_entry<SoftmaxRegistry, B, S>;

}  // namespace tilewave
