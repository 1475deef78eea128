// SPDX-License-Identifier: MIT
// One list of specs and policies for each architecture. It feeds dispatch, tests, benchmarks, the tuner and the ISA
// gate.
#pragma once

#include "tilewave/ops/mqa_logits/launch.hpp"
#include "tilewave/ops/mqa_logits/policy.hpp"
#include "tilewave/tile/registry.hpp"

namespace tilewave {

/// The specs of an architecture: the indexer of DeepSeek-V3.2, decode and prefill, and on chips with fp4 decode in fp4.
constexpr ValueList<MqaLogitsSpec> mqa_logits_specs(ArchId arch) {
  const DType fp8 = facts_of(arch).fp8;
  ValueList<MqaLogitsSpec> specs;
  specs.add({fp8, MqaKeys::paged});
  specs.add({fp8, MqaKeys::ranges});
  if (facts_of(arch).mx) specs.add({DType::fp4_e2m1, MqaKeys::paged});
  return specs;
}

struct MqaLogitsRegistry {
  using Spec = MqaLogitsSpec;
  using Problem = MqaLogitsProblem;
  using Policy = MqaLogitsPolicy;
  static constexpr auto check_spec = mqa_logits_check_spec;
  static constexpr auto check = mqa_logits_check;
  static constexpr auto policies = mqa_logits_policies;

  static Status takes(const Policy& policy, const Problem& p, const ArchFacts&) { return mqa_logits_takes(policy, p); }
  /// A bulk entry goes first if it takes the problem. Then comes the one with the fewest queries a block that still
  /// holds all of a sequence, for which keys are loaded once; or else the one with the most.
  static bool better(const Policy& a, const Policy& b, const Problem& p, const ArchFacts&) {
    if (a.bulk != b.bulk) return a.bulk;
    return a.queries < p.queries || b.queries < p.queries ? a.queries > b.queries : a.queries < b.queries;
  }
  template <class B, MqaLogitsSpec S, MqaLogitsPolicy P>
  static constexpr auto launch() {
    return &mqa_logits_launch<B, S, P>;
  }
};

using MqaLogitsEntry = OpEntry<MqaLogitsRegistry>;
using MqaLogitsPlan = OpPlan<MqaLogitsRegistry>;

/// All entries of one spec on one backend, the choice among entries, and the plan for one spec. See tile/registry.hpp.
template <class B, MqaLogitsSpec S>
inline constexpr auto& mqa_logits_entries = op_entries<MqaLogitsRegistry, B, S>;
inline constexpr auto mqa_logits_select = select_entry<MqaLogitsRegistry>;
template <class B, MqaLogitsSpec S>
inline constexpr auto mqa_logits_plan = plan_entry<MqaLogitsRegistry, B, S>;

}  // namespace tilewave
