// SPDX-License-Identifier: MIT
// Stream-K: how tiles that do not fill a round of blocks are dealt to all of them.
#pragma once

#include <numeric>

#include "tilewave/core/math.hpp"
#include "tilewave/ops/gemm/policy.hpp"

namespace tilewave {

/// Whole rounds of tiles have a block each. What is left, `tail` tiles of k_steps stages each, is dealt to all blocks
/// in order, as many stages to each as to any other, give or take one, and no more than a tile has: a block's share
/// ends one tile and may begin another. Neighbours that read the same columns of B stay together: a set of blocks has
/// the same stages of a group of tiles, one each, and what one reads the others find in L2. Sums of a share of a tile
/// are put aside, in place set + group: of neighbours these differ in one at least.
struct GemmStream {
  std::int32_t whole = 0, tail = 0;  // tiles
  FastDiv group;                     // tiles of a group, blocks of a set
  FastDiv sets, k_steps;
  std::int32_t each = 0, more = 0;  // stages of a set, and of all sets together beside these

  /// Of the tail's stages, the first that is the set's.
  TILEWAVE_HOST_DEVICE constexpr std::int32_t first_of(std::int32_t set) const {
    return each * set + sets.quotient(more * set);
  }
  /// The set that has the stage: the last one whose first is not behind it.
  TILEWAVE_HOST_DEVICE constexpr std::int32_t set_of(std::int32_t stage) const {
    const std::int64_t stages = std::int64_t{tail / group.divisor} * k_steps.divisor;
    return static_cast<std::int32_t>(ceil_div((std::int64_t{stage} + 1) * sets.divisor, stages) - 1);
  }
  /// Blocks that have a share.
  constexpr std::int32_t blocks() const { return tail > 0 ? sets.divisor * group.divisor : 0; }
  /// Of a tile of the tail: its first partial sum, and how many there are, every `group`-th.
  struct Parts {
    std::int32_t first, count;
  };
  TILEWAVE_HOST_DEVICE constexpr Parts parts_of(std::int32_t tile) const {
    const std::int32_t of_group = group.quotient(tile), stage = of_group * k_steps.divisor;
    const std::int32_t first = set_of(stage), last = set_of(stage + k_steps.divisor - 1);
    return {(first + of_group) * group.divisor + tile - of_group * group.divisor, last - first + 1};
  }
  /// Partial sums that may be put aside.
  constexpr std::int64_t parts() const { return tail > 0 ? std::int64_t{blocks()} + tail - group.divisor : 0; }

  /// Fewer stages are no share: their sums would cost more than their products.
  static constexpr int least_share = 4;

  /// Of `tiles` for so many blocks at a time; `neighbours` of them that follow each other read the same columns of B.
  static constexpr GemmStream of(std::int64_t tiles, std::int32_t at_a_time, std::int32_t k_steps,
                                 std::int32_t neighbours) {
    GemmStream s;
    const auto rest = static_cast<std::int32_t>(tiles % at_a_time);
    const std::int32_t of_group = std::gcd(std::gcd(at_a_time, neighbours), rest), groups = rest / of_group;
    const std::int64_t stages = std::int64_t{groups} * k_steps;
    s.tail = stages > 0 && stages < std::int64_t{1} << 31 ? rest : 0;
    s.whole = static_cast<std::int32_t>(tiles - s.tail);
    if (s.tail == 0) return s;
    const auto sets = min_of<std::int64_t>(at_a_time / of_group, max_of<std::int64_t>(groups, stages / least_share));
    s.group = FastDiv::by(of_group);
    s.sets = FastDiv::by(static_cast<std::int32_t>(sets));
    s.k_steps = FastDiv::by(k_steps);
    s.each = static_cast<std::int32_t>(stages / sets);
    s.more = static_cast<std::int32_t>(stages % sets);
    return s;
  }

  /// What a block has of the tail, tile after tile.
  class Share {
   public:
    std::int32_t tile = 0, first = 0, end = 0;  // stages [first, end) of this one
    std::int32_t place = 0;                     // of their sums

    TILEWAVE_HOST_DEVICE constexpr Share(const GemmStream& s, std::int32_t block)
        : set_(s.group.quotient(block)), of_set_(block - set_ * s.group.divisor), stream_(s) {
      const bool any = s.tail > 0 && set_ < s.sets.divisor;
      const std::int32_t from = any ? s.first_of(set_) : 0;
      left_ = any ? s.first_of(set_ + 1) - from : 0;
      group_ = s.k_steps.quotient(from);
      next_ = from - group_ * s.k_steps.divisor;
    }
    TILEWAVE_HOST_DEVICE constexpr bool next() {
      if (left_ == 0) return false;
      tile = group_ * stream_.group.divisor + of_set_;
      place = (set_ + group_) * stream_.group.divisor + of_set_;
      first = next_;
      end = min_of(first + left_, stream_.k_steps.divisor);
      left_ -= end - first;
      next_ = 0;
      ++group_;
      return true;
    }
    TILEWAVE_HOST_DEVICE constexpr bool whole() const { return end - first == stream_.k_steps.divisor; }

   private:
    std::int32_t set_, of_set_, left_ = 0, group_ = 0, next_ = 0;
    const GemmStream& stream_;
  };
};

}  // namespace tilewave
