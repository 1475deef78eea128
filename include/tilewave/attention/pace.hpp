// SPDX-License-Identifier: MIT
// Keeps a block from taking more than an even part of the memory's bandwidth.
//
// A launch lasts as long as its slowest block, and the memory does not serve all blocks alike. An H200 was given 128
// equal blocks, each of which asked for as many bytes as it could hold. Half of the SMs were done after 110 us, the
// others after 147.
#pragma once

#include <cstdint>

#include "tilewave/core/config.hpp"

namespace tilewave {

/// Delays the fetches of one block. A round is all blocks that run at the same time. The first `ahead` stages, which
/// fill the ring, are fetched at once. From then on the block fetches its stage i of n no earlier than i / n of the
/// time in which the memory delivers the whole round. Blocks of a round then end together, whatever their lengths, and
/// blocks that are behind never wait. A prefix that sequences share is paced as if each of them fetched it. B is a room
/// with a clock: nanoseconds() and pause_until().
template <class B, int ahead>
class AttentionPace {
 public:
  /// `stage_ns`: time in which the memory delivers one stage at full bandwidth; 0 turns pacing off.
  TILEWAVE_HOST_DEVICE explicit AttentionPace(float stage_ns) : stage_ns(stage_ns) {}

  /// Called before a stage is fetched. The clock takes long to read, so it is read here and used in wait().
  TILEWAVE_DEVICE void read_clock() {
    if (stage_ns != 0.0f) now = B::nanoseconds();
  }
  /// Called after a stage was fetched, unless it is the block's last. `round_stages_per_stage()` says how many stages
  /// the round fetches for each one of this block; 0 turns pacing off. It is called once, when the ring is full.
  template <class Ratio>
  TILEWAVE_DEVICE void wait(Ratio round_stages_per_stage) {
    if (stage_ns == 0.0f) return;
    if (fetched == 0) started = now;
    ++fetched;
    if (fetched < ahead) return;
    if (fetched == ahead) interval = stage_ns * round_stages_per_stage();
    const std::uint64_t due = started + static_cast<std::uint64_t>(interval * static_cast<float>(fetched));
    if (B::any(now < due)) B::pause_until(due);
  }

 private:
  float stage_ns, interval = 0.0f;
  std::int32_t fetched = 0;
  std::uint64_t started = 0, now = 0;
};

}  // namespace tilewave
