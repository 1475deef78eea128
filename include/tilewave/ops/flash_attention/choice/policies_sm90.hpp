// SPDX-License-Identifier: MIT
// Policies of sm90 through shared memory.
#pragma once

#include "tilewave/ops/flash_attention/policy_status.hpp"

namespace tilewave {

/// Of those listed the ones that the laws allow.
constexpr void add_flash_policies_sm90(ArchId arch, const FlashAttentionSpec& s, FlashAttentionPolicies& all) {
  const auto add = [&](int wave_groups, int keys, int stages) {
    const FlashAttentionPolicy p{.path = FlashAttentionPath::tensor,
                                 .rows = 64 * wave_groups,
                                 .keys = keys,
                                 .waves = wave_groups,
                                 .stages = stages,
                                 .waves_per_simd = 1};
    if (flash_attention_policy_status(arch, s, p).ok()) all.add(p);
  };
  if (s.head_size == 64) add(3, 128, 2);
  if (s.head_size == 128 || s.head_size == 192) add(2, 128, 2);
  if (s.head_size == 256) add(2, 64, 2);
}

}  // namespace tilewave
