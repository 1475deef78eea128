// SPDX-License-Identifier: MIT
// Which tokens of a sequence its query tokens attend. Causal masks, sliding windows and block tables that are too short
// meet here, so that kernels, checks and schedules count the same tokens.
#pragma once

#include <cstdint>

#include "tilewave/core/config.hpp"
#include "tilewave/core/math.hpp"

namespace tilewave {

/// What bounds the tokens that a sequence attends. The arguments of a kernel that have these three fields serve as
/// well.
struct AttentionLimits {
  std::int32_t query_tokens;  // that attend together; the last one is the last token of the sequence
  std::int32_t capacity;      // tokens that the block table has room for
  std::int32_t window;        // tokens before its own that a query token sees; int32 max for all of them
};

/// Tokens [first, end) that a sequence attends, and the stages that hold them: stage i starts at base + i *
/// stage_tokens. A block with only some of the query tokens asks for a shorter sequence, which ends with the last token
/// of its own.
struct AttentionReach {
  std::int32_t first, end, base, stages;
  bool beyond_table;

  /// The reach of a sequence of `length` tokens. `base` is rounded down to a multiple of `align`. A length below 0, or
  /// beyond the table, attends nothing.
  template <class Limits>
  TILEWAVE_HOST_DEVICE static AttentionReach of(const Limits& a, std::int32_t length, std::int32_t stage_tokens,
                                                std::int32_t align) {
    AttentionReach r;
    r.beyond_table = length > a.capacity;
    r.end = r.beyond_table ? 0 : max_of(length, 0);
    r.first = max_of(r.end - a.query_tokens - min_of(a.window, r.end), 0);
    r.base = align_down(r.first, align);
    r.stages = ceil_div(r.end - r.base, stage_tokens);
    return r;
  }
  /// The same with stages that start at multiples of their size.
  template <class Limits>
  TILEWAVE_HOST_DEVICE static AttentionReach of(const Limits& a, std::int32_t length, std::int32_t stage_tokens) {
    return of(a, length, stage_tokens, stage_tokens);
  }
  /// The stages of a sequence whose length is in device memory. `a` has context_lengths as well.
  template <class B, class Args>
  TILEWAVE_DEVICE static std::int32_t stages_of(const Args& a, std::int32_t sequence, std::int32_t stage_tokens) {
    return of(a, B::load(a.context_lengths + sequence), stage_tokens).stages;
  }

  /// Fills in what a work item of a kernel knows of its tokens. At least one query row attends each of [first, end).
  /// Every row attends all of [full_first, full_end), so a tile inside needs no mask. The last query token sees the
  /// fewest tokens behind it, and the first one the fewest ahead.
  template <class Limits, class WorkItem>
  TILEWAVE_DEVICE void publish(const Limits& a, WorkItem& item) const {
    item.first = first;
    item.end = end;
    item.beyond_table = beyond_table;
    item.full_first = max_of(end - 1 - min_of(a.window, end), 0);
    item.full_end = end - a.query_tokens + 1;
  }
};

}  // namespace tilewave
