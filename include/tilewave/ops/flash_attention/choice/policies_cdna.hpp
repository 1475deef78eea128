// SPDX-License-Identifier: MIT
// Policies of CDNA through LDS.
#pragma once

#include "tilewave/ops/flash_attention/policy_status.hpp"

namespace tilewave {

/// 256 query rows, of which eight waves have 32 each, two of them on a SIMD: one multiplies what the other waits for.
/// Where the sums and the queries of 32 rows leave no room in 256 registers, four waves of 512 have 128 rows. Four
/// stages where copies go past registers, so that they have the time of two tiles to land; else two.
constexpr void add_flash_policies_cdna(ArchId arch, const FlashAttentionSpec& s, FlashAttentionPolicies& all) {
  for (const int waves : {8, 4}) {
    if (waves == 8 && s.value_size > 128) continue;
    for (const int stages : {4, 2}) {
      for (const int keys : {64, 32}) {
        const FlashAttentionPolicy policy{.path = FlashAttentionPath::lds,
                                          .rows = 32 * waves,
                                          .keys = keys,
                                          .waves = waves,
                                          .stages = stages,
                                          .waves_per_simd = waves / 4};
        if (detail::flash_lds_status(arch, s, policy).ok()) return all.add(policy);
      }
    }
  }
}

}  // namespace tilewave
