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

  /// What a wave keeps in shared memory while it multiplies (see L::saves_tile).
  struct Saved {
    GemmTile tile;
    typename GemmTiles<B, S, P>::State tiles;
  };
  TILEWAVE_DEVICE void save(Saved& saved, const GemmTile& tile) const {
    B::wave_barrier();  // all lanes have restored the tile before
    if (B::lane_id() == 0) saved = {tile, tiles_.state()};
    B::wave_barrier();
  }
  TILEWAVE_DEVICE void restore(const Saved& saved, GemmTile& tile) {
    tile = saved.tile;
    tiles_.resume(saved.tiles);
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
