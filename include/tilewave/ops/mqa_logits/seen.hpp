// SPDX-License-Identifier: MIT
// Which of a block's columns its queries see.
#pragma once

#include "tilewave/ops/mqa_logits/args.hpp"

namespace tilewave {

/// The tiles of a block with keys that some query sees: `tiles` of them, of `keys` columns each, from `begin` on. All
/// keys that are seen lie before `end`.
template <class B, MqaLogitsSpec S, MqaLogitsPolicy P, int keys>
struct MqaLogitsSeen {
  MqaLogitsReach reach[P.queries];
  std::int32_t begin, end, tiles;

  TILEWAVE_DEVICE MqaLogitsSeen(const MqaLogitsArgs& a, const MqaLogitsWorkItem& item) {
    std::int32_t first = item.end_column;
    end = item.first_column;
    TILEWAVE_UNROLL
    for (int i = 0; i < P.queries; ++i) {
      reach[i] = MqaLogitsReach::of<B, S.keys>(a, item, i);
      if (reach[i].first >= reach[i].end) continue;
      first = min_of(first, max_of(reach[i].first, item.first_column));
      end = max_of(end, min_of(reach[i].end, item.end_column));
    }
    if (first < end) {
      begin = item.first_column + align_down(first - item.first_column, std::int32_t{keys});
    } else {
      begin = end = item.end_column;
    }
    tiles = ceil_div(end - begin, std::int32_t{keys});
  }
};

}  // namespace tilewave
