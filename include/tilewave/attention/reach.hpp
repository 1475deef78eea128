// SPDX-License-Identifier: MIT
// Which tokens of a sequence a block of query rows attends.
#pragma once

#include <cstdint>

#include "tilewave/core/config.hpp"
#include "tilewave/core/math.hpp"

namespace tilewave {

/// What bounds a sequence's reach. The arguments of a kernel that have these three serve as well.
struct AttentionLimits {
  std::int32_t mtp;       // query tokens, the last of the sequence
  std::int32_t capacity;  // tokens that the block table has room for
  std::int32_t window;    // tokens before its own that a query sees
};

/// Tokens [first, end) that a sequence attends, and the stages they lie in: stage i starts at base + i * stage_tokens.
struct AttentionReach {
  std::int32_t first, end, base, stages;
  bool beyond_table;

  /// `align`: what `base` is a multiple of.
  template <class Limits>
  TILEWAVE_HOST_DEVICE static AttentionReach of(const Limits& a, std::int32_t length, std::int32_t stage_tokens,
                                                std::int32_t align) {
    AttentionReach r;
    r.beyond_table = length > a.capacity;
    r.end = r.beyond_table ? 0 : max_of(length, 0);
    r.first = max_of(r.end - a.mtp - min_of(a.window, r.end), 0);
    r.base = align_down(r.first, align);
    r.stages = ceil_div(r.end - r.base, stage_tokens);
    return r;
  }
  template <class Limits>
  TILEWAVE_HOST_DEVICE static AttentionReach of(const Limits& a, std::int32_t length, std::int32_t stage_tokens) {
    return of(a, length, stage_tokens, stage_tokens);
  }
  template <class B, class Limits>
  TILEWAVE_DEVICE static std::int32_t stages_of(const Limits& a, std::int32_t sequence, std::int32_t stage_tokens) {
    return of(a, B::load(a.context_lengths + sequence), stage_tokens).stages;
  }

  /// What a block's work knows of it: the tokens attended, and those that every row sees.
  template <class Limits, class Work>
  TILEWAVE_DEVICE void publish(const Limits& a, Work& at) const {
    at.first = first;
    at.end = end;
    at.beyond_table = beyond_table;
    at.full_first = max_of(end - 1 - min_of(a.window, end), 0);
    at.full_end = end - a.mtp + 1;
  }
};

}  // namespace tilewave
