// SPDX-License-Identifier: MIT
// Four words of every wave of a row, told to all its lanes, as often as wanted: between the waves of a block through
// shared memory, between the blocks of a cluster by its mailboxes.
#pragma once

#include <type_traits>

#include "tilewave/arch/backend.hpp"
#include "tilewave/tile/row_policy.hpp"

namespace tilewave {

/// `more_boxes`: mailboxes that its user posts to, open like those of the exchange.
template <class B, RowPolicy P, int more_boxes = 0>
class RowExchange {
  static_assert(P.rows == 1 && P.lanes % B::facts.wave_lanes == 0, "whole waves exchange the values of one row");

 public:
  static constexpr int block_waves = P.lanes / B::facts.wave_lanes, waves = P.blocks * block_waves;
  using Words = Vec<std::uint32_t, 4>;

  /// Two places that take turns: who has the words of one round has told so by those of the next.
  struct Alone {
    Vec<float, 4> published[2][waves];
  };
  struct Together : Alone {
    Mailbox box[2 + more_boxes];
    Vec<float, 4> broadcast_block[2][block_waves];
  };
  struct Nothing {};
  using Shared = std::conditional_t<waves == 1, Nothing, std::conditional_t<P.blocks == 1, Alone, Together>>;

  TILEWAVE_DEVICE explicit RowExchange([[maybe_unused]] Shared& shared) : shared_(shared) {
    if constexpr (P.blocks > 1) B::template open<2 + more_boxes>(shared.box);
  }
  /// The i-th that is more, of a row in several blocks; open once something has been told.
  TILEWAVE_DEVICE Mailbox& box(int i) const { return shared_.box[2 + i]; }
  /// This lane's wave among those of the row. By the whole wave.
  TILEWAVE_DEVICE static int wave() {
    if constexpr (waves == 1) {
      return 0;
    } else {
      return (P.blocks > 1 ? B::cluster_rank() * block_waves : 0) + B::wave_id();
    }
  }

  /// Words that are the same in all lanes of a wave. One barrier.
  TILEWAVE_DEVICE void publish(const Words& words) {
    if constexpr (waves == 1) {
      own_ = words;
    } else {
      const int place = round_ & 1, lane = B::lane_id(), own = wave();
      const auto published = __builtin_bit_cast(Vec<float, 4>, words);
      if constexpr (P.blocks > 1) {
        if (round_ == 0) B::cluster_wait();  // see open()
        if (lane < P.blocks) B::post(shared_.box[place], &shared_.published[place][own], lane, published);
        B::collect(shared_.box[place], 4 * waves, round_ >> 1);
      } else {
        if (lane == 0) shared_.published[place][own] = published;
        B::barrier();
      }
      ++round_;
    }
  }
  /// What wave w told last.
  TILEWAVE_DEVICE Words of(int w) const {
    if constexpr (waves == 1) {
      return own_;
    } else {
      return __builtin_bit_cast(Words, shared_.published[(round_ - 1) & 1][w]);
    }
  }
  /// The same between the waves of a block, whatever the others do.
  TILEWAVE_DEVICE void publish_block(const Words& words) {
    if constexpr (P.blocks == 1) {
      publish(words);
    } else {
      const int own = B::wave_id();  // by all lanes
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
  /// Calls f(words) of every wave that this lane looks at, for sums over a wave of lanes to be over all waves.
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
