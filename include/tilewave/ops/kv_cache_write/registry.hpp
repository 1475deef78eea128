// SPDX-License-Identifier: MIT
// One list of specs and policies for each architecture. It feeds dispatch, tests, benchmarks, the tuner and the ISA
// gate.
#pragma once

#include "tilewave/ops/kv_cache_write/launch.hpp"
#include "tilewave/ops/kv_cache_write/policy.hpp"
#include "tilewave/tile/registry.hpp"

namespace tilewave {

/// The spec of a latent head of DeepSeek-V4, whose dimensions have a scale for each group.
constexpr KvCacheWriteSpec kv_cache_write_latent_spec(ArchId arch, int group, bool e8m0) {
  const DType fp8 = facts_of(arch).fp8;
  return {.kv = fp8,
          .quant = Scaling::per_token,
          .fused = true,
          .norm = true,
          .q_out = fp8,
          .pairs = RopePairs::neighbours,
          .table = DType::bf16,
          .group = group,
          .e8m0 = e8m0};
}

/// The specs that every architecture serves. First come 16-bit caches of both types, then fp8 ones of bf16 with each
/// kind of scale, then fused specs, of which the last two are for latent heads. A caller compiles in other specs by
/// naming them.
constexpr auto kv_cache_write_specs(ArchId arch) {
  const DType bf16 = DType::bf16, f16 = DType::f16, fp8 = facts_of(arch).fp8;
  using enum Scaling;
  return std::to_array<KvCacheWriteSpec>({{},
                                          {.x = f16, .kv = f16},
                                          {.kv = fp8, .quant = per_tensor},
                                          {.kv = fp8, .quant = per_head},
                                          {.kv = fp8, .quant = per_token},
                                          {.fused = true},
                                          {.fused = true, .norm = true},
                                          {.kv = fp8, .quant = per_tensor, .fused = true},
                                          {.kv = fp8, .quant = per_token, .fused = true, .norm = true},
                                          {.kv = fp8, .quant = per_head, .fused = true, .q_out = fp8},
                                          {.fused = true, .norm = true, .pairs = RopePairs::neighbours, .table = bf16},
                                          {.x = f16, .kv = f16, .fused = true, .q_out = f16, .table = f16},
                                          kv_cache_write_latent_spec(arch, 128, false),
                                          kv_cache_write_latent_spec(arch, 64, true)});
}

struct KvCacheWriteRegistry : RowRegistry<KvCacheWriteSpec, KvCacheWriteProblem, kv_cache_write_aligned> {
  static constexpr auto check_spec = kv_cache_write_check_spec;
  static constexpr auto check = kv_cache_write_check;
  static constexpr auto policies = kv_cache_write_policies;
  template <class B, KvCacheWriteSpec S, RowPolicy P>
  static constexpr auto launch() {
    return &kv_cache_write_launch<B, S, P>;
  }
};

using KvCacheWriteEntry = OpEntry<KvCacheWriteRegistry>;
using KvCacheWritePlan = OpPlan<KvCacheWriteRegistry>;

/// All entries of one spec on one backend, the choice among entries, and the plan for one spec. See tile/registry.hpp.
template <class B, KvCacheWriteSpec S>
inline constexpr auto& kv_cache_write_entries = op_entries<KvCacheWriteRegistry, B, S>;
inline constexpr auto kv_cache_write_select = select_entry<KvCacheWriteRegistry>;
template <class B, KvCacheWriteSpec S>
inline constexpr auto kv_cache_write_plan = plan_entry<KvCacheWriteRegistry, B, S>;

}  // namespace tilewave
