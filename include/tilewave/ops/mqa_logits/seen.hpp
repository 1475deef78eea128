// SPDX-License-Identifier: MIT
// Which of a block's columns its queries see.
#pragma once

#include "tilewave/ops/mqa_logits/args.hpp"

namespace tilewave {

/// `tiles` tiles of `keys` columns from `begin` on have what a query of the block sees, all of it before `end`.
template <class B, MqaLogitsSpec S, MqaLogitsPolicy P, int keys>
struct MqaLogitsSeen {
  MqaLogitsReach reach[P.queries];
  std::int32_t begin, end, tiles;

  TILEWAVE_DEVICE MqaLogitsSeen(const MqaLogitsArgs& a, const MqaLogitsPlace& at) {
    std::int32_t first = at.end_column;
    end = at.first_column;
    TILEWAVE_UNROLL
    for (int i = 0; i < P.queries; ++i) {
      reach[i] = MqaLogitsReach::of<B, S.keys>(a, at, i);
      if (reach[i].first >= reach[i].end) continue;
      first = min_of(first, max_of(reach[i].first, at.first_column));
      end = max_of(end, min_of(reach[i].end, at.end_column));
    }
    if (first < end) {
      begin = at.first_column + align_down(first - at.first_column, std::int32_t{keys});
    } else {
      begin = end = at.end_column;
    }
    tiles = ceil_div(end - begin, std::int32_t{keys});
  }
};

}  // namespace tilewave
