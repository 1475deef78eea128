// SPDX-License-Identifier: MIT
// A ring of stages in shared memory, between waves that fetch and waves that use what came: where a wave stands in it,
// and the barriers by which they wait for each other. What a stage holds is the kernel's own.
#pragma once

#include "tilewave/arch/backend.hpp"

namespace tilewave {

/// Where a wave stands in a ring: the slot, and the parity of its round, which tells a round's phase of the slot's
/// barriers from the next one's.
template <int stages>
struct RingSlot {
  int slot = 0, round = 0;

  /// By at most a round.
  TILEWAVE_DEVICE void advance(int count = 1) {
    slot += count;
    if (slot < stages) return;
    slot -= stages;
    round ^= 1;
  }
};

/// The barriers of a ring, in shared memory. A slot is full once those who fetch have arrived and their bytes are
/// there, and free once those who use it have arrived; in the first round it is. `cluster`: blocks that fetch for one
/// another, so that a slot is free when it is so in all of them.
template <class B, int stages, int cluster = 1>
struct RingBarriers {
  using Place = RingSlot<stages>;
  typename B::Mbarrier full[stages], empty[stages];

  /// By one wave, in front of a barrier of the block (or cluster). Of each slot: arrivals that make it full, and of
  /// each block those that make it free.
  TILEWAVE_DEVICE void begin(int fetching, int users) {
    static_assert(stages <= B::facts.wave_lanes, "each lane of one wave begins one stage's barriers");
    const int slot = B::lane_id();
    if (slot < stages) {
      B::mbarrier_init(&full[slot], fetching);
      B::mbarrier_init(&empty[slot], users * cluster);
    }
    B::mbarrier_ready();
  }
  TILEWAVE_DEVICE void wait_full(const Place& at) { B::mbarrier_wait(&full[at.slot], at.round); }
  TILEWAVE_DEVICE void wait_free(const Place& at) { B::mbarrier_wait(&empty[at.slot], at.round ^ 1); }
  /// This wave is done with a stage: those who fetch may write it.
  TILEWAVE_DEVICE void release(int slot) {
    if constexpr (cluster == 1) {
      B::mbarrier_arrive(&empty[slot]);
    } else {
      TILEWAVE_UNROLL
      for (int rank = 0; rank < cluster; ++rank) B::mbarrier_arrive(&empty[slot], rank);
    }
  }
};

}  // namespace tilewave
