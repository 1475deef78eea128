// SPDX-License-Identifier: MIT
// Each architecture has one list of specs and policies, which feeds dispatch, tests, benchmarks, the tuner and the ISA
// gate.
#pragma once

#include "tilewave/ops/latent_cache_write/launch.hpp"
#include "tilewave/ops/latent_cache_write/policy.hpp"
#include "tilewave/tile/registry.hpp"

namespace tilewave {

/// Returns the specs that every architecture serves: each layout that mla_decode reads. Callers name others themselves.
constexpr ValueList<LatentCacheWriteSpec> latent_cache_write_specs(ArchId arch) {
  const DType fp8 = facts_of(arch).fp8;
  ValueList<LatentCacheWriteSpec> specs;
  specs.add({});
  specs.add({.head_size = 512, .pairs = RopePairs::halves, .table = DType::bf16});
  specs.add({.kv = fp8});
  specs.add({.kv = fp8, .layout = LatentLayout::groups_128});
  specs.add({.kv = fp8, .layout = LatentLayout::groups_64, .head_size = 512});
  return specs;
}

struct LatentCacheWriteRegistry {
  using Spec = LatentCacheWriteSpec;
  using Problem = LatentCacheWriteProblem;
  using Policy = LatentCacheWritePolicy;
  static constexpr auto check_spec = latent_cache_write_check_spec;
  static constexpr auto check = latent_cache_write_check;
  static constexpr auto policies = latent_cache_write_policies;
  static Status takes(const Policy&, const Problem&, const ArchFacts&) { return {}; }
  /// Returns true if policy a is better for the problem than b: the larger block, if the chip is full of its blocks.
  static bool better(const Policy& a, const Policy& b, const Problem& p, const ArchFacts& facts) {
    return (a.rows > b.rows) == (rows_of(p) / 8 + p.tokens >= 4 * facts.compute_units) && a.rows != b.rows;
  }
  template <class B, LatentCacheWriteSpec S, LatentCacheWritePolicy P>
  static constexpr auto launch() {
    return &latent_cache_write_launch<B, S, P>;
  }
};

using LatentCacheWriteEntry = OpEntry<LatentCacheWriteRegistry>;
using LatentCacheWritePlan = OpPlan<LatentCacheWriteRegistry>;

/// These are all entries of one spec on one backend, the choice among entries, and the plan of one spec
/// (tile/registry.hpp).
template <class B, LatentCacheWriteSpec S>
inline constexpr auto& latent_cache_write_entries = op_entries<LatentCacheWriteRegistry, B, S>;
inline constexpr auto latent_cache_write_select = select_entry<LatentCacheWriteRegistry>;
template <class B, LatentCacheWriteSpec S>
inline constexpr auto latent_cache_write_plan = plan_entry<LatentCacheWriteRegistry, B, S>;

}  // namespace tilewave
