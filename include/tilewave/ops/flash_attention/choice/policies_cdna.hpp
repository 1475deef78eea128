// SPDX-License-Identifier: MIT
// CDNA has these policies of path lds.
#pragma once

#include "tilewave/ops/flash_attention/policy_status.hpp"

namespace tilewave {

/// Adds the policy of a spec. A block has 256 query rows in eight waves of 32, two waves per SIMD, which take turns. If
/// the sums and queries of 32 rows leave no room in 256 registers, a block has 128 rows in four waves of 512 registers.
/// Copies straight into LDS have four stages, so that they have the time of two tiles to land. Copies through registers
/// have two. A tile has 64 keys, or 128 of small heads in fp8, so that all lanes copy.
constexpr void add_flash_policies_cdna(ArchId arch, const FlashAttentionSpec& s, FlashAttentionPolicies& all) {
  for (const int waves : {8, 4}) {
    if (waves == 8 && s.value_size > 128) continue;
    for (const int stages : {4, 2}) {
      for (const int keys : {64, 32, 128}) {
        if (keys == 128 && s.head_size > 64) continue;  // scores of 128 keys take 128 registers
        const FlashAttentionPolicy policy{.path = FlashAttentionPath::lds,
                                          .rows = 32 * waves,
                                          .keys = keys,
                                          .waves = waves,
                                          .stages = stages,
                                          .waves_per_simd = waves / 4,
                                          .turns = waves == 8};
        if (detail::flash_lds_status(arch, s, policy).ok()) return all.add(policy);
      }
    }
  }
}

}  // namespace tilewave
