// SPDX-License-Identifier: MIT
// Stream-K: how tiles that do not fill a round of blocks are dealt to all of them.
#pragma once

#include "tilewave/core/math.hpp"
#include "tilewave/ops/gemm/policy.hpp"

namespace tilewave {

/// Whole rounds of tiles have a block each. What is left, `tail` tiles of k_steps stages each, is dealt to `blocks` in
/// order, as many stages to each as to any other, give or take one, and no more than a tile has: a block's share ends
/// one tile and may begin another. Sums of a share of a tile are put aside, as number block + tile of the tail:
/// neighbours differ in one of them at least.
struct GemmStream {
  std::int32_t whole = 0, tail = 0;  // tiles
  std::int32_t blocks = 0, k_steps = 0;

  /// Of the tail's stages, the first that is the block's.
  TILEWAVE_HOST_DEVICE constexpr std::int64_t first_of(std::int32_t block) const {
    return std::int64_t{tail} * k_steps * block / blocks;
  }
  /// The block that has the stage: the last one whose first is not behind it.
  TILEWAVE_HOST_DEVICE constexpr std::int32_t block_of(std::int64_t stage) const {
    return static_cast<std::int32_t>(ceil_div((stage + 1) * blocks, std::int64_t{tail} * k_steps) - 1);
  }
  /// Partial sums that may be put aside.
  constexpr std::int64_t parts() const { return tail > 0 ? std::int64_t{blocks} + tail - 1 : 0; }

  /// Fewer stages are no share: their sums would cost more than their products.
  static constexpr int least_share = 4;

  /// Of `tiles` for so many blocks at a time.
  static constexpr GemmStream of(std::int64_t tiles, std::int64_t at_a_time, std::int32_t k_steps) {
    const std::int64_t tail = k_steps > 0 ? tiles % at_a_time : 0;
    const std::int64_t blocks = min_of(at_a_time, max_of(tail, tail * k_steps / least_share));
    return {static_cast<std::int32_t>(tiles - tail), static_cast<std::int32_t>(tail), static_cast<std::int32_t>(blocks),
            k_steps};
  }
};

}  // namespace tilewave
