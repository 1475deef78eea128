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
  FastDiv blocks, k_steps;
  std::int32_t each = 0, more = 0;  // stages of a block, and of all blocks together beside these

  /// Of the tail's stages, the first that is the block's.
  TILEWAVE_HOST_DEVICE constexpr std::int32_t first_of(std::int32_t block) const {
    return each * block + blocks.quotient(more * block);
  }
  /// The block that has the stage: the last one whose first is not behind it.
  TILEWAVE_HOST_DEVICE constexpr std::int32_t block_of(std::int32_t stage) const {
    const std::int64_t stages = std::int64_t{tail} * k_steps.divisor;
    return static_cast<std::int32_t>(ceil_div((std::int64_t{stage} + 1) * blocks.divisor, stages) - 1);
  }
  /// Of a tile of the tail: its first partial sum, and how many follow each other.
  struct Parts {
    std::int32_t first, count;
  };
  TILEWAVE_HOST_DEVICE constexpr Parts parts_of(std::int32_t tile) const {
    const std::int32_t stage = tile * k_steps.divisor, first = block_of(stage);
    return {first + tile, block_of(stage + k_steps.divisor - 1) - first + 1};
  }
  /// Partial sums that may be put aside.
  constexpr std::int64_t parts() const { return tail > 0 ? std::int64_t{blocks.divisor} + tail - 1 : 0; }

  /// Fewer stages are no share: their sums would cost more than their products.
  static constexpr int least_share = 4;

  /// Of `tiles` for so many blocks at a time.
  static constexpr GemmStream of(std::int64_t tiles, std::int64_t at_a_time, std::int32_t k_steps) {
    const std::int64_t rest = tiles % at_a_time, stages = rest * k_steps;
    GemmStream s;
    s.tail = static_cast<std::int32_t>(stages > 0 && stages < (std::int64_t{1} << 31) ? rest : 0);
    s.whole = static_cast<std::int32_t>(tiles - s.tail);
    if (s.tail == 0) return s;
    s.k_steps = FastDiv::by(k_steps);
    s.blocks = FastDiv::by(static_cast<std::int32_t>(min_of(at_a_time, max_of(rest, stages / least_share))));
    s.each = static_cast<std::int32_t>(stages / s.blocks.divisor);
    s.more = static_cast<std::int32_t>(stages % s.blocks.divisor);
    return s;
  }

  /// What a block has of the tail, tile after tile.
  class Share {
   public:
    std::int32_t tile, first = 0, end = 0;  // stages [first, end) of this one

    TILEWAVE_HOST_DEVICE constexpr Share(const GemmStream& s, std::int32_t block) : steps_(s.k_steps.divisor) {
      const bool any = block < s.blocks.divisor && s.tail > 0;
      const std::int32_t from = any ? s.first_of(block) : 0;
      left_ = any ? s.first_of(block + 1) - from : 0;
      tile = s.k_steps.quotient(from) - 1;
      next_ = from - (tile + 1) * steps_;
    }
    TILEWAVE_HOST_DEVICE constexpr bool next() {
      if (left_ == 0) return false;
      ++tile;
      first = next_;
      end = min_of(first + left_, steps_);
      left_ -= end - first;
      next_ = 0;
      return true;
    }
    TILEWAVE_HOST_DEVICE constexpr bool whole() const { return end - first == steps_; }

   private:
    std::int32_t steps_, left_, next_;
  };
};

}  // namespace tilewave
