// SPDX-License-Identifier: MIT
// One list of specs and policies per architecture feeds dispatch, tests, benchmarks, the tuner and the ISA gate.
#pragma once

#include "tilewave/ops/flash_attention/choice/cost_sm90.hpp"
#include "tilewave/ops/flash_attention/choice/policies.hpp"
#include "tilewave/ops/flash_attention/launch.hpp"
#include "tilewave/tile/registry.hpp"

namespace tilewave {

/// Returns the specs that every architecture serves by default. Callers name all others themselves.
constexpr ValueList<FlashAttentionSpec> flash_attention_specs(ArchId arch) {
  constexpr DType bf16 = DType::bf16, f16 = DType::f16;
  const DType fp8 = facts_of(arch).fp8;
  ValueList<FlashAttentionSpec> specs;
  specs.add({.head_size = 64, .value_size = 64});
  specs.add({.head_size = 128, .value_size = 128});
  specs.add({.head_size = 192, .value_size = 128});
  specs.add({.head_size = 256, .value_size = 256});
  specs.add({.q = f16, .kv = f16, .out = f16});
  specs.add({.q = fp8, .kv = fp8, .out = bf16, .quant = Scaling::per_tensor});
  specs.add({.storage = KvStorage::paged});
  specs.add({.head_size = 64, .value_size = 64, .soft_cap = true});
  return specs;
}

struct FlashAttentionRegistry {
  using Spec = FlashAttentionSpec;
  using Problem = FlashAttentionProblem;
  using Policy = FlashAttentionPolicy;
  static constexpr auto check_spec = flash_attention_check_spec;
  static constexpr auto check = flash_attention_check;
  static constexpr auto policies = flash_attention_policies;

  static Status takes(const Policy& policy, const Problem& p, const ArchFacts&) {
    return flash_attention_takes(policy, p);
  }
  static std::size_t workspace_bytes(const Problem& p, const Policy& policy, const ArchFacts&, int) {
    return detail::check_flash_extents(p).ok() ? flash_attention_workspace_size(p, policy) : 0;
  }
  /// Returns true if policy a is better for the problem than b. On sm90 the expected time decides. Elsewhere path
  /// registers serves what no other path takes. A block of path lds has the rows of a kv head, so most of its waves
  /// have no rows if there are few queries. A batch-invariant call always takes the same entry.
  static bool better(const Policy& a, const Policy& b, const Problem& p, const ArchFacts& facts) {
    if (facts.tensor_copies && !p.batch_invariant)
      return flash_attention_cost_sm90(p, a) < flash_attention_cost_sm90(p, b);
    const auto rank = [&](const Policy& of) {
      if (of.path == FlashAttentionPath::registers) return 1;
      return of.path == FlashAttentionPath::lds && std::int64_t{p.q_length} * detail::flash_row_heads(of, p) <= 32 &&
                     !p.batch_invariant
                 ? 0
                 : 2;
    };
    return rank(a) > rank(b);
  }
  template <class B, FlashAttentionSpec S, FlashAttentionPolicy P>
  static constexpr auto launch() {
    return &flash_attention_launch<B, S, P>;
  }
};

using FlashAttentionEntry = OpEntry<FlashAttentionRegistry>;
using FlashAttentionPlan = OpPlan<FlashAttentionRegistry>;

/// These are all entries of one spec on one backend, the choice among entries, and the plan for one spec. See
/// tile/registry.hpp.
template <class B, FlashAttentionSpec S>
inline constexpr auto& flash_attention_entries = op_entries<FlashAttentionRegistry, B, S>;
inline constexpr auto flash_attention_select = select_entry<FlashAttentionRegistry>;
template <class B, FlashAttentionSpec S>
inline constexpr auto flash_attention_plan = plan_entry<FlashAttentionRegistry, B, S>;

}  // namespace tilewave
