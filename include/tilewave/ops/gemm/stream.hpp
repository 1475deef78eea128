// SPDX-License-Identifier: MIT
// Stream-K: the tiles that do not fill a round of blocks are dealt to all blocks.
#pragma once

#include <numeric>

#include "tilewave/core/math.hpp"
#include "tilewave/ops/gemm/policy.hpp"

namespace tilewave {

/// Clusters of so many blocks, each of which fills an SM, that an H200 runs at a time. They lie within a part of the
/// chip of 16 or 18 SMs: fewer fit than there are SMs for (seen as second rounds).
constexpr int clusters_at_a_time(int blocks) {
  constexpr int most[] = {132, 66, 38, 30, 22, 17, 15, 15};
  return most[min_of(blocks, 8) - 1];
}

/// In whole rounds each block has a tile. The tiles that are left are the tail. Their stages, k_steps for each tile,
/// are dealt to all blocks in order. Every block gets equally many, give or take one, and at most as many as a tile
/// has. So a block ends one tile and may begin another.
///
/// A run is `run_tiles` neighbouring tiles of the tail, which read the same columns of B, and a set is as many blocks.
/// The blocks of a set have the same stages of a run, one tile each, and find in L2 what another of them has read. A
/// block's sums of some stages of a tile are a partial. Its number is (set + run) * run_tiles + the tile's in its run.
/// In the order of stages, the set or the run goes up from one partial to the next, so no number is used twice.
struct GemmStream {
  std::int32_t whole = 0, tail = 0;  // tiles in whole rounds, and tiles of the tail
  FastDiv run_tiles;                 // tiles of a run, and blocks of a set
  FastDiv sets, k_steps;
  std::int32_t stages_per_set = 0;  // of the stages of all runs
  std::int32_t extra_stages = 0;    // which are left when every set has stages_per_set

  /// Returns the first of the tail's stages that a set has.
  TILEWAVE_HOST_DEVICE constexpr std::int32_t first_of(std::int32_t set) const {
    return stages_per_set * set + sets.quotient(extra_stages * set);
  }
  /// Returns the set that has a stage: the last set whose first stage is not behind it.
  TILEWAVE_HOST_DEVICE constexpr std::int32_t set_of(std::int32_t stage) const {
    const std::int64_t stages = std::int64_t{tail / run_tiles.divisor} * k_steps.divisor;
    return static_cast<std::int32_t>(ceil_div((std::int64_t{stage} + 1) * sets.divisor, stages) - 1);
  }
  /// Returns how many blocks have a part of the tail.
  constexpr std::int32_t blocks() const { return tail > 0 ? sets.divisor * run_tiles.divisor : 0; }
  /// The partials of a tile of the tail: the first one, and how many there are. The next is `run_tiles` further on.
  struct Partials {
    std::int32_t first, count;
  };
  TILEWAVE_HOST_DEVICE constexpr Partials partials_of(std::int32_t tile) const {
    const std::int32_t run = run_tiles.quotient(tile), stage = run * k_steps.divisor;
    const std::int32_t first = set_of(stage), last = set_of(stage + k_steps.divisor - 1);
    return {(first + run) * run_tiles.divisor + tile - run * run_tiles.divisor, last - first + 1};
  }
  /// Returns how many partials the workspace has room for.
  constexpr std::int64_t partial_count() const {
    return tail > 0 ? std::int64_t{blocks()} + tail - run_tiles.divisor : 0;
  }

  /// A part of fewer stages is not worth it: its sums would take longer than its products.
  static constexpr int min_stages = 4;

  /// Returns how `tiles` are dealt to blocks, of which `at_a_time` run together. So many `neighbours` that follow each
  /// other read the same columns of B.
  static constexpr GemmStream of(std::int64_t tiles, std::int32_t at_a_time, std::int32_t k_steps,
                                 std::int32_t neighbours) {
    GemmStream s;
    const auto rest = static_cast<std::int32_t>(tiles % at_a_time);
    const std::int32_t neighbours_in_run = std::gcd(std::gcd(at_a_time, neighbours), rest),
                       runs = rest / neighbours_in_run;
    const std::int64_t stages = std::int64_t{runs} * k_steps;
    s.tail = stages > 0 && stages < std::int64_t{1} << 31 ? rest : 0;
    s.whole = static_cast<std::int32_t>(tiles - s.tail);
    if (s.tail == 0) return s;
    const auto sets =
        min_of<std::int64_t>(at_a_time / neighbours_in_run, max_of<std::int64_t>(runs, stages / min_stages));
    s.run_tiles = FastDiv::by(neighbours_in_run);
    s.sets = FastDiv::by(static_cast<std::int32_t>(sets));
    s.k_steps = FastDiv::by(k_steps);
    s.stages_per_set = static_cast<std::int32_t>(stages / sets);
    s.extra_stages = static_cast<std::int32_t>(stages % sets);
    return s;
  }

  /// The part of the tail that a block has, tile after tile. next() sets the fields to the next tile, if there is one.
  class TailWork {
   public:
    std::int32_t tile = 0;            // of the tail
    std::int32_t first = 0, end = 0;  // stages [first, end) of the tile
    std::int32_t partial = 0;         // number of the partial of these stages

    TILEWAVE_HOST_DEVICE constexpr TailWork(const GemmStream& s, std::int32_t block)
        : set_(s.run_tiles.quotient(block)), in_set_(block - set_ * s.run_tiles.divisor), stream_(s) {
      const bool has_part = s.tail > 0 && set_ < s.sets.divisor;
      const std::int32_t from = has_part ? s.first_of(set_) : 0;
      left_ = has_part ? s.first_of(set_ + 1) - from : 0;
      run_ = s.k_steps.quotient(from);
      next_ = from - run_ * s.k_steps.divisor;
    }
    TILEWAVE_HOST_DEVICE constexpr bool next() {
      if (left_ == 0) return false;
      tile = run_ * stream_.run_tiles.divisor + in_set_;
      partial = (set_ + run_) * stream_.run_tiles.divisor + in_set_;
      first = next_;
      end = min_of(first + left_, stream_.k_steps.divisor);
      left_ -= end - first;
      next_ = 0;
      ++run_;
      return true;
    }
    /// Says whether the block has all stages of the tile.
    TILEWAVE_HOST_DEVICE constexpr bool whole() const { return end - first == stream_.k_steps.divisor; }

   private:
    std::int32_t set_, in_set_, left_ = 0, run_ = 0, next_ = 0;
    const GemmStream& stream_;
  };
};

}  // namespace tilewave
