// SPDX-License-Identifier: MIT
// Keeps a block from taking more than its share of the memory's bandwidth.
#pragma once

#include "tilewave/ops/paged_attention/work.hpp"

namespace tilewave {

/// A launch lasts as long as its slowest block, and the memory does not serve all alike: of 128 equal blocks that asked
/// for all they could hold, half of an H200's SMs were done after 110 us, the others after 147. So once a block has
/// filled its ring, it fetches stage i of its n no earlier than i / n of the time that the memory takes for the whole
/// batch: all end together, whatever their lengths, and blocks that are behind notice nothing. L: a
/// PagedAttentionStagedLayout.
template <class L>
class PagedAttentionPace {
  using B = typename L::Room;

 public:
  /// Before each stage that the block fetches: the clock is slow, so it is read ahead.
  TILEWAVE_DEVICE void look(const PagedAttentionArgs& a) {
    if (a.stage_ns != 0.0f) seen = B::nanoseconds();
  }
  /// After it.
  TILEWAVE_DEVICE void wait(const PagedAttentionArgs& a, const PagedAttentionWork<L>& work) {
    constexpr int stages = L::policy.prefetch.stages;
    if (a.stage_ns == 0.0f) return;
    if (fetched == 0) begun = seen;
    ++fetched;
    if (fetched < stages) return;
    if (fetched == stages) interval = a.stage_ns * work.share();
    const std::uint64_t due = begun + static_cast<std::uint64_t>(interval * static_cast<float>(fetched));
    if (seen < due) B::pause_until(due);
  }

 private:
  std::uint64_t begun = 0, seen = 0;
  float interval = 0.0f;  // ns
  std::int32_t fetched = 0;
};

}  // namespace tilewave
