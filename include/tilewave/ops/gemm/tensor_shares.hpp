// SPDX-License-Identifier: MIT
// What a block of GemmTensorKernel computes, and how the sums of tiles that several blocks have become one.
#pragma once

#include "tilewave/ops/gemm/tensor_epilogue.hpp"

namespace tilewave {

/// Tiles of a block, one after the other, and which stages of their K. With P.stream: the block's of each whole round,
/// then its share of the rest.
template <class L, GemmSpec S, GemmPolicy P>
class GemmTensorShares {
 public:
  using B = typename L::Backend;
  using Args = typename L::Args;
  using Steps = typename Args::Steps;

  TILEWAVE_DEVICE GemmTensorShares(const Args& a, int rank)
      : a_(a),
        tiles_(a.gemm, a.cluster.quotient(B::block_id()), a.clusters, P.cluster > 1 ? rank : 0),
        rank_(rank),
        number_(B::block_id()) {}

  /// Whether there is one more, which `tile` and `steps` then are.
  TILEWAVE_DEVICE bool next(GemmTile& tile, Steps& steps) {
    if constexpr (P.stream) {
      if (number_ >= a_.stream.whole) return next_of_tail(tile, steps);
      number_ += a_.blocks;
    }
    if (!tiles_.next(tile)) return false;
    steps = a_.steps(rank_);
    return true;
  }

 private:
  TILEWAVE_DEVICE bool next_of_tail(GemmTile& tile, Steps& steps) {
    const GemmStream& s = a_.stream;
    const std::int32_t block = B::block_id();
    if (left_ < 0) {
      if (block >= s.blocks) return false;
      const std::int64_t first = s.first_of(block);
      left_ = static_cast<std::int32_t>(s.first_of(block + 1) - first);
      of_tail_ = static_cast<std::int32_t>(first / s.k_steps);
      step_ = static_cast<std::int32_t>(first - std::int64_t{of_tail_} * s.k_steps);
      tiles_.go_on_from(s.whole + of_tail_);
    }
    if (left_ == 0 || !tiles_.next(tile)) return false;
    const std::int32_t end = min_of(step_ + left_, s.k_steps);
    steps = {step_, end, end - step_ < s.k_steps ? block + of_tail_ : -1};
    left_ -= end - step_;
    step_ = 0;
    ++of_tail_;
    return true;
  }

  const Args& a_;
  GemmTiles<B, S, P> tiles_;
  int rank_;
  std::int32_t number_;                              // with P.stream: of the block's tile in this round
  std::int32_t left_ = -1, of_tail_ = 0, step_ = 0;  // stages of the tail; where the next one is
};

/// Behind blocks that have shares of tiles: adds up, in the order of K, and writes. Grid: `blocks` for each tile of the
/// tail.
template <class B, GemmSpec S, GemmPolicy P, class UserEpilogue>
struct GemmTensorCombineKernel {
  using Room = B;
  using L = GemmTensorLayout<B, S, P, UserEpilogue>;
  using Args = typename L::Args;
  struct Shared {};
  static constexpr int block_threads = 256, waves_per_simd = 8, pieces = 2;  // of a lane
  static constexpr int blocks = L::Output::pieces / (pieces * block_threads);
  static_assert(blocks * pieces * block_threads == L::Output::pieces);

  TILEWAVE_DEVICE static void run(const Args& a, Shared&) {
    B::wait_for_previous();
    const std::int32_t of_tail = B::block_id() / blocks;
    const std::int64_t stage = std::int64_t{of_tail} * a.stream.k_steps;
    const std::int32_t first = a.stream.block_of(stage), last = a.stream.block_of(stage + a.stream.k_steps - 1);
    GemmTiles<B, S, P> tiles(a.gemm, a.stream.whole + of_tail, 1, 0);
    GemmTile tile;
    if (first == last || !tiles.next(tile)) return;  // who has all of a tile writes it
    typename L::Output output;
    TILEWAVE_UNROLL
    for (int p = 0; p < pieces; ++p) {
      const int piece = (B::block_id() % blocks * pieces + p) * block_threads + B::block_lane_id();
      output.gather(a, tile, first + of_tail, last - first + 1, piece);
    }
  }
};

}  // namespace tilewave
