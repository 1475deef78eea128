// SPDX-License-Identifier: MIT
// Keeps a block from taking more than its share of the memory's bandwidth.
#pragma once

#include <cstdint>

#include "tilewave/core/config.hpp"

namespace tilewave {

/// A launch lasts as long as its slowest block, and the memory does not serve all alike: of 128 equal blocks that asked
/// for all they could hold, half of an H200's SMs were done after 110 us, the others after 147. So once a block has
/// filled its ring of `ahead` stages, it fetches stage i of its n no earlier than i / n of the time that the memory
/// takes for all blocks that run at once, a round: they end together, whatever their lengths, and blocks that are
/// behind notice nothing. What the memory need not deliver, a prefix that sequences share, is paced as if it must.
/// B: a StagedBackend.
template <class B, int ahead>
class PagedAttentionPace {
 public:
  /// `stage_ns`: in which the memory delivers a stage, 0 for no pace.
  TILEWAVE_HOST_DEVICE explicit PagedAttentionPace(float stage_ns) : stage_ns(stage_ns) {}

  /// Before a stage is fetched: the clock is slow, so it is read ahead.
  TILEWAVE_DEVICE void look() {
    if (stage_ns != 0.0f) seen = B::nanoseconds();
  }
  /// After it, unless it is the block's last. `share()`: how many stages the round has for each of the block's, 0 for
  /// no pace.
  template <class Share>
  TILEWAVE_DEVICE void wait(Share share) {
    if (stage_ns == 0.0f) return;
    if (fetched == 0) begun = seen;
    ++fetched;
    if (fetched < ahead) return;
    if (fetched == ahead) interval = stage_ns * share();
    const std::uint64_t due = begun + static_cast<std::uint64_t>(interval * static_cast<float>(fetched));
    if (B::any(seen < due)) B::pause_until(due);
  }

 private:
  float stage_ns, interval = 0.0f;
  std::int32_t fetched = 0;
  std::uint64_t begun = 0, seen = 0;
};

}  // namespace tilewave
