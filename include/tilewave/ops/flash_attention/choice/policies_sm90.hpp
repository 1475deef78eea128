// SPDX-License-Identifier: MIT
// sm90 has these policies of path tensor.
#pragma once

#include "tilewave/ops/flash_attention/policy_status.hpp"

namespace tilewave {

/// Adds those of the listed policies that the laws allow for the spec.
constexpr void add_flash_policies_sm90(ArchId arch, const FlashAttentionSpec& s, FlashAttentionPolicies& all) {
  const auto add = [&](int wave_groups, int keys, bool turns = true, int cluster = 1) {
    const FlashAttentionPolicy p{.path = FlashAttentionPath::tensor,
                                 .rows = 64 * wave_groups,
                                 .keys = keys,
                                 .waves = wave_groups,
                                 .stages = 2,
                                 .waves_per_simd = 1,
                                 .turns = turns,
                                 .cluster = cluster};
    if (flash_attention_policy_status(arch, s, p).ok()) all.add(p);
  };
  if (is_fp8(s.kv)) {
    if (s.head_size <= 128) {
      add(3, s.head_size == 64 ? 128 : 96);
      add(2, 128, false);
    }
    if (s.head_size == 192) {
      if (s.value_size == 128) add(3, 96);
      add(2, s.value_size == 128 ? 128 : 96);
    }
    if (s.head_size == 256) add(2, 64);
    return;
  }
  if (s.head_size == 64) {
    add(3, 128);
    add(2, 128);
  }
  if (s.head_size == 128) {
    add(3, 80);
    add(2, 128);
    add(2, 128, true, 2);
  }
  if (s.head_size == 192) add(2, s.value_size == 128 ? 128 : 80);
  if (s.head_size == 256) add(2, 64);
}

}  // namespace tilewave
