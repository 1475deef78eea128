// SPDX-License-Identifier: MIT
// What a block of GemmTensorKernel computes, and how the sums of tiles that several blocks have become one.
#pragma once

#include "tilewave/ops/gemm/tensor/output.hpp"

namespace tilewave {

/// Tiles of a block, one after the other, and which stages of their K. With P.stream: the block's of each whole round,
/// then its share of the rest.
template <class L, GemmSpec S, GemmPolicy P>
class GemmTileQueue {
 public:
  using B = typename L::Backend;
  using Args = typename L::Args;
  using Steps = typename Args::Steps;

  TILEWAVE_DEVICE GemmTileQueue(const Args& a, int rank)
      : a_(a),
        tiles_(a.gemm, a.cluster.quotient(B::block_id()), a.clusters, P.cluster > 1 ? rank : 0),
        rank_(rank),
        share_(a.stream, B::block_id()) {}

  /// Whether there is one more, which `tile` and `steps` then are.
  TILEWAVE_DEVICE bool next(GemmTile& tile, Steps& steps) {
    if constexpr (P.stream) {
      if (rounds_ * a_.blocks == a_.stream.whole) return next_of_tail(tile, steps);
      ++rounds_;
    }
    if (!tiles_.next(tile)) return false;
    steps = a_.steps(rank_);
    return true;
  }

  /// In a wave's place of shared memory while it multiplies: of groups it would cost registers that sums need.
  struct Place {
    GemmTile tile;
    typename GemmTiles<B, S, P>::State tiles;
  };
  TILEWAVE_DEVICE void save(Place& place, const GemmTile& tile) const {
    B::wave_barrier();  // all have taken up the one before
    if (B::lane_id() == 0) place = {tile, tiles_.state()};
    B::wave_barrier();
  }
  TILEWAVE_DEVICE void restore(const Place& place, GemmTile& tile) {
    tile = place.tile;
    tiles_.go_on_from(place.tiles);
  }

 private:
  TILEWAVE_DEVICE bool next_of_tail(GemmTile& tile, Steps& steps) {
    if (!share_.next()) return false;
    tiles_.go_on_from(a_.stream.whole + share_.tile);
    steps = {share_.first, share_.end, share_.whole() ? -1 : share_.place};
    return tiles_.next(tile);
  }

  const Args& a_;
  GemmTiles<B, S, P> tiles_;
  int rank_;
  // With P.stream.
  std::int32_t rounds_ = 0;  // whole ones done
  GemmStream::Share share_;
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
  static_assert(blocks * pieces * block_threads == L::Output::pieces, "blocks share a tile of the tail evenly");

  TILEWAVE_DEVICE static void run(const Args& a, Shared&) {
    B::wait_for_previous();
    const std::int32_t of_tail = B::block_id() / blocks;
    const GemmStream::Parts parts = a.stream.parts_of(of_tail);
    GemmTiles<B, S, P> tiles(a.gemm, a.stream.whole + of_tail, 1, 0);
    GemmTile tile;
    if (parts.count == 1 || !tiles.next(tile)) return;  // who has all of a tile writes it
    typename L::Output output;
    TILEWAVE_UNROLL
    for (int p = 0; p < pieces; ++p) {
      const int piece = (B::block_id() % blocks * pieces + p) * block_threads + B::block_lane_id();
      output.gather(a, tile, parts, piece);
    }
  }
};

}  // namespace tilewave
