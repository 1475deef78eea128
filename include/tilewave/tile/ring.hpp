// SPDX-License-Identifier: MIT
// A ring of stages in shared memory between waves that fetch and waves that use the data: the slot of a wave, and the
// barriers by which they wait for each other. The kernel decides what a stage holds.
#pragma once

#include "tilewave/arch/backend.hpp"

namespace tilewave {

/// The slot of a wave in a ring, and the parity of its round. The parity distinguishes the phase of the slot's barriers
/// in this round from that in the next.
template <int stages>
struct RingSlot {
  int slot = 0, round = 0;

  /// Moves on by `count` slots, at most one round.
  TILEWAVE_DEVICE void advance(int count = 1) {
    slot += count;
    if (slot < stages) return;
    slot -= stages;
    round ^= 1;
  }
  /// Moves on by any `count` of slots.
  TILEWAVE_DEVICE void skip(int count) {
    const int rounds = (slot + count) / stages;
    slot += count - rounds * stages;
    round ^= rounds & 1;
  }
};

/// The barriers of a ring, in shared memory. A slot is full once those who fetch have arrived and their bytes are
/// there. It is free once those who use it have arrived, and in the first round. Blocks of a `cluster` fetch for one
/// another, so a slot is free when it is free in all of them.
template <class B, int stages, int cluster = 1>
struct RingBarriers {
  using Place = RingSlot<stages>;
  typename B::Mbarrier full[stages], empty[stages];

  /// One wave initialises the barriers, in front of a barrier of the block or cluster. `fetching` arrivals make a slot
  /// full; `users` arrivals of each block make it free.
  TILEWAVE_DEVICE void begin(int fetching, int users) {
    // One lane begins all of them. Where each lane has barriers of its own, or is chosen by its number, the compiler
    // makes a loop over lanes with a fence in each turn, some 60 cycles a barrier
    // (docs/notebook/2026-11-28-gemm-cycles.md).
    if (B::elected()) {
      TILEWAVE_UNROLL
      for (int slot = 0; slot < stages; ++slot) {
        B::mbarrier_init(&full[slot], fetching);
        B::mbarrier_init(&empty[slot], users * cluster);
      }
    }
    B::mbarrier_ready();
  }
  TILEWAVE_DEVICE void wait_full(const Place& at) { B::mbarrier_wait(&full[at.slot], at.round); }
  TILEWAVE_DEVICE void wait_free(const Place& at) { B::mbarrier_wait(&empty[at.slot], at.round ^ 1); }
  /// This wave has finished with a stage, so those who fetch may overwrite it.
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
