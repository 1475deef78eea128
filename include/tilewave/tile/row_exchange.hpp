// SPDX-License-Identifier: MIT
// Exchanges four words of every wave of a row with all its lanes, any number of times. Waves of one block use shared
// memory, and blocks of a cluster use mailboxes.
#pragma once

#include <type_traits>

#include "tilewave/arch/backend.hpp"
#include "tilewave/tile/row_policy.hpp"

namespace tilewave {

/// `more_boxes` adds mailboxes for the user, which are opened with those of the exchange.
template <class B, RowPolicy P, int more_boxes = 0>
class RowExchange {
  static_assert(P.rows == 1 && P.lanes % B::facts.wave_lanes == 0, "whole waves exchange the values of one row");

 public:
  static constexpr int block_waves = P.lanes / B::facts.wave_lanes, waves = P.blocks * block_waves;
  using Words = Vec<std::uint32_t, 4>;

  /// The entries of two rounds that alternate: a wave that publishes the next round has read this one.
  struct OfBlock {
    Vec<float, 4> published[2][waves];
  };
  struct OfCluster : OfBlock {
    Mailbox box[2 + more_boxes];
    Vec<float, 4> broadcast_block[2][block_waves];
  };
  struct Nothing {};
  using Shared = std::conditional_t<waves == 1, Nothing, std::conditional_t<P.blocks == 1, OfBlock, OfCluster>>;

  TILEWAVE_DEVICE explicit RowExchange([[maybe_unused]] Shared& shared) : shared_(shared) {
    if constexpr (P.blocks > 1) B::template open<2 + more_boxes>(shared.box);
  }
  /// Returns the i-th additional mailbox of a row in several blocks. It is open once a first round has been published.
  TILEWAVE_DEVICE Mailbox& box(int i) const { return shared_.box[2 + i]; }
  /// Returns the number of this lane's wave among those of the row. The whole wave calls it together.
  TILEWAVE_DEVICE static int wave() {
    if constexpr (waves == 1) {
      return 0;
    } else {
      return (P.blocks > 1 ? B::cluster_rank() * block_waves : 0) + B::wave_id();
    }
  }

  /// Publishes words that are the same in all lanes of a wave. It takes one barrier.
  TILEWAVE_DEVICE void publish(const Words& words) {
    if constexpr (waves == 1) {
      own_ = words;
    } else {
      const int parity = round_ & 1, lane = B::lane_id(), own = wave();
      const auto published = __builtin_bit_cast(Vec<float, 4>, words);
      if constexpr (P.blocks > 1) {
        if (round_ == 0) B::cluster_wait();  // see open()
        if (lane < P.blocks) B::post(shared_.box[parity], &shared_.published[parity][own], lane, published);
        B::collect(shared_.box[parity], 4 * waves, round_ >> 1);
      } else {
        if (lane == 0) shared_.published[parity][own] = published;
        B::barrier();
      }
      ++round_;
    }
  }
  /// Returns what wave w published last.
  TILEWAVE_DEVICE Words of(int w) const {
    if constexpr (waves == 1) {
      return own_;
    } else {
      return __builtin_bit_cast(Words, shared_.published[(round_ - 1) & 1][w]);
    }
  }
  /// Publishes words to the waves of this block alone, whatever the other blocks do.
  TILEWAVE_DEVICE void publish_block(const Words& words) {
    if constexpr (P.blocks == 1) {
      publish(words);
    } else {
      const int own = B::wave_id();  // all lanes call it
      if (B::lane_id() == 0) shared_.broadcast_block[block_round_ & 1][own] = __builtin_bit_cast(Vec<float, 4>, words);
      B::barrier();
      ++block_round_;
    }
  }
  TILEWAVE_DEVICE Words of_block(int w) const {
    if constexpr (P.blocks == 1) {
      return of(w);
    } else {
      return __builtin_bit_cast(Words, shared_.broadcast_block[(block_round_ - 1) & 1][w]);
    }
  }
  /// Calls f(words) for every wave that this lane looks at. A sum over the lanes of a wave is then a sum over all
  /// waves.
  template <class F>
  TILEWAVE_DEVICE void each(const F& f) const {
    for (int w = B::lane_id(); w < waves; w += B::facts.wave_lanes) f(of(w));
  }

 private:
  Shared& shared_;
  Words own_{};
  int round_ = 0, block_round_ = 0;
};

}  // namespace tilewave
