// SPDX-License-Identifier: MIT
// The tiles of a block of GemmTensorKernel, and the kernel that combines the partials of stream-K.
#pragma once

#include "tilewave/ops/gemm/tensor/output.hpp"

namespace tilewave {

/// The tiles of a block, one after the other, and the steps of each that the block takes. With P.stream these are one
/// tile of each whole round, and then the block's part of the tail.
template <class L, GemmSpec S, GemmPolicy P>
class GemmTileQueue {
 public:
  using B = typename L::Backend;
  using Args = typename L::Args;
  using Steps = typename Args::Steps;

  TILEWAVE_DEVICE GemmTileQueue(const Args& a, int rank)
      : a_(a),
        tiles_(a.gemm, a.cluster.quotient(B::block_id()), a.clusters, L::sharers > 1 ? rank : 0),
        rank_(rank),
        tail_(a.stream, B::block_id()) {}

  /// Sets `tile` and `steps` to the next ones; false where there are none left.
  TILEWAVE_DEVICE bool next(GemmTile& tile, Steps& steps) {
    if constexpr (P.stream) {
      if (rounds_ * a_.blocks == a_.stream.whole) return next_of_tail(tile, steps);
      ++rounds_;
    }
    if (!tiles_.next(tile)) return false;
    steps = a_.steps(rank_);
    return true;
  }

 private:
  TILEWAVE_DEVICE bool next_of_tail(GemmTile& tile, Steps& steps) {
    if (!tail_.next()) return false;
    tiles_.resume(a_.stream.whole + tail_.tile);
    steps = {tail_.first, tail_.end, tail_.whole() ? -1 : tail_.partial};
    return tiles_.next(tile);
  }

  const Args& a_;
  GemmTiles<B, S, P> tiles_;
  int rank_;
  // Only P.stream uses these.
  std::int32_t rounds_ = 0;  // whole rounds that are done
  GemmStream::TailWork tail_;
};

/// The tiles of a queue, of which the next one may be found ahead of time.
template <class Queue>
class GemmTilesAhead {
 public:
  using Steps = typename Queue::Steps;

  template <class Args>
  TILEWAVE_DEVICE GemmTilesAhead(const Args& a, int rank) : queue_(a, rank) {}
  TILEWAVE_DEVICE bool next(GemmTile& tile, Steps& steps) {
    if (!ahead_) found_ = queue_.next(tile_, steps_);
    ahead_ = false;
    tile = tile_, steps = steps_;
    return found_;
  }
  TILEWAVE_DEVICE void look_ahead() {
    found_ = queue_.next(tile_, steps_);
    ahead_ = true;
  }

 private:
  Queue queue_;
  GemmTile tile_{};
  Steps steps_{};
  bool found_ = false, ahead_ = false;
};

/// The tiles of a block where one wave finds them and all others read them (L::posts_tiles).
template <class B>
struct GemmTileBoard {
  static constexpr int places = 2;
  RingBarriers<B, places> barriers;
  GemmTile tile[places];
};

/// The wave that finds the tiles. It posts each for the others as soon as there is a free place.
template <class L, class Queue>
class GemmPostingQueue {
 public:
  using B = typename L::Backend;
  using Board = GemmTileBoard<B>;

  TILEWAVE_DEVICE GemmPostingQueue(Queue& queue, Board& board) : queue_(queue), board_(board) {}
  TILEWAVE_DEVICE bool next(GemmTile& tile, typename L::Args::Steps& steps) {
    const bool found = queue_.next(tile, steps);
    board_.barriers.wait_free(place_);
    if (B::lane_id() == 0) board_.tile[place_.slot] = found ? tile : GemmTile{-1, 0, 0, 0, 0};
    B::mbarrier_arrive(&board_.barriers.full[place_.slot]);
    place_.advance();
    return found;
  }

 private:
  Queue& queue_;
  Board& board_;
  RingSlot<Board::places> place_;
};

/// The tiles as another wave reads them. All lanes get them from one, so that the compiler knows them to be a wave's:
/// else it keeps slots of the ring and operands of products in registers of lanes, and moves them to those of the wave
/// in front of each product.
template <class L>
class GemmPostedTiles {
 public:
  using B = typename L::Backend;
  using Board = GemmTileBoard<B>;

  TILEWAVE_DEVICE GemmPostedTiles(const typename L::Args& a, Board& board) : a_(a), board_(board) {}
  TILEWAVE_DEVICE bool next(GemmTile& tile, typename L::Args::Steps& steps) {
    board_.barriers.wait_full(place_);
    const GemmTile& posted = board_.tile[place_.slot];
    const auto of_wave = [](std::int32_t value) TILEWAVE_INLINE_LAMBDA { return std::int32_t{B::uniform(value)}; };
    tile = {of_wave(posted.layer), of_wave(posted.a_layer), of_wave(posted.first_row), of_wave(posted.row_end),
            of_wave(posted.first_column)};
    board_.barriers.release(place_.slot);
    place_.advance();
    steps = a_.steps(0);
    return tile.layer >= 0;
  }

 private:
  const typename L::Args& a_;
  Board& board_;
  RingSlot<Board::places> place_;
};

/// Adds the partials of stream-K in the order of K, runs the epilogue and stores. It is launched behind
/// GemmTensorKernel. Grid: `blocks` blocks for each tile of the tail.
template <class B, GemmSpec S, GemmPolicy P, class UserEpilogue>
struct GemmTensorCombineKernel {
  using Room = B;
  using L = GemmTensorLayout<B, S, P, UserEpilogue>;
  using Args = typename L::Args;
  struct Shared {};
  static constexpr int block_threads = 256, waves_per_simd = 8, vectors = 2;  // of a lane
  static constexpr int blocks = L::Output::vectors / (vectors * block_threads);
  static_assert(blocks * vectors * block_threads == L::Output::vectors, "blocks share a tile of the tail evenly");

  TILEWAVE_DEVICE static void run(const Args& a, Shared&) {
    const std::int32_t tail_tile = B::block_id() / blocks;
    const GemmStream::Partials partials = a.stream.partials_of(tail_tile);
    GemmTiles<B, S, P> tiles(a.gemm, a.stream.whole + tail_tile, 1, 0);
    GemmTile tile;
    if (partials.count == 1 || !tiles.next(tile)) return;  // a block that has all of a tile writes it itself
    typename L::Output output;
    TILEWAVE_UNROLL
    for (int v = 0; v < vectors; ++v) {
      const int vector = (B::block_id() % blocks * vectors + v) * block_threads + B::block_lane_id();
      output.combine(a, tile, partials, vector);
    }
  }
};

}  // namespace tilewave
