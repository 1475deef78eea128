// SPDX-License-Identifier: MIT
// Row tiles of paths tensor and lds have queries of one head, or of all heads that share a kv head.
#pragma once

#include "tilewave/ops/flash_attention/policy.hpp"
#include "tilewave/ops/flash_attention/problem.hpp"

namespace tilewave::detail {

/// Returns the heads whose queries share row tiles: those of a kv head, or one. Short sequences fill
/// fewer tiles so. Packed sequences may be short, whatever the longest is.
constexpr std::int32_t flash_row_heads(const FlashAttentionPolicy& policy, const FlashAttentionProblem& p) {
  const std::int32_t ratio = p.q_heads / p.kv_heads;
  if (ratio == 1 || ratio > policy.rows) return 1;
  const std::int64_t apart = std::int64_t{ratio} * ceil_div(p.q_length, policy.rows),
                     together = ceil_div(p.q_length, policy.rows / ratio);
  return together < apart || (p.q_starts != nullptr && 8 * together <= 9 * apart) ? ratio : 1;
}

}  // namespace tilewave::detail
