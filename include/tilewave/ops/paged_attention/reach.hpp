// SPDX-License-Identifier: MIT
// Which tokens of a sequence decode attends.
#pragma once

#include "tilewave/ops/paged_attention/place.hpp"

namespace tilewave {

/// Tokens [first, end) that a sequence attends, and the stages they lie in: stage i starts at base + i * stage_tokens.
struct PagedAttentionReach {
  std::int32_t first, end, base, stages;
  bool beyond_table;

  /// `align`: what `base` is a multiple of.
  TILEWAVE_HOST_DEVICE static PagedAttentionReach of(const PagedAttentionArgs& a, std::int32_t length,
                                                     std::int32_t stage_tokens, std::int32_t align) {
    PagedAttentionReach r;
    r.beyond_table = length > a.capacity;
    r.end = r.beyond_table ? 0 : max_of(length, 0);
    r.first = max_of(r.end - a.mtp - min_of(a.window, r.end), 0);
    r.base = align_down(r.first, align);
    r.stages = ceil_div(r.end - r.base, stage_tokens);
    return r;
  }
  TILEWAVE_HOST_DEVICE static PagedAttentionReach of(const PagedAttentionArgs& a, std::int32_t length,
                                                     std::int32_t stage_tokens) {
    return of(a, length, stage_tokens, stage_tokens);
  }
  template <class B>
  TILEWAVE_DEVICE static std::int32_t stages_of(const PagedAttentionArgs& a, std::int32_t sequence,
                                                std::int32_t stage_tokens) {
    return of(a, B::load(a.context_lengths + sequence), stage_tokens).stages;
  }

  /// What a place knows of it.
  TILEWAVE_DEVICE void tell(const PagedAttentionArgs& a, PagedAttentionPlace& at) const {
    at.first = first;
    at.end = end;
    at.beyond_table = beyond_table;
    at.full_first = max_of(end - 1 - min_of(a.window, end), 0);
    at.full_end = end - a.mtp + 1;
  }
};

}  // namespace tilewave
