// SPDX-License-Identifier: MIT
// The k-th largest logit of a row, exactly: keys (weight.hpp) are counted by eight bits at a time, in shared memory,
// until one value is left or all of what is left belongs to the k.
#pragma once

#include "tilewave/ops/sampling/weight.hpp"
#include "tilewave/tile/row_stretch.hpp"
#include "tilewave/tile/whole_numbers.hpp"

namespace tilewave {

/// Of a block; behind the last level is what a cluster has counted of one.
template <RowPolicy P>
struct SelectCounters {
  static constexpr int bins = 256, levels = 4;  // keys have 31 bits
  std::uint32_t of[levels + (P.blocks > 1)][bins];
};

template <class B, RowPolicy P>
struct Select {
  using Counters = SelectCounters<P>;

  /// The key up to which k tokens are, with their equals; last_key where no more than k are above -inf. Every lane of
  /// the row has a logit of at least `shared_by_lanes`: where k is no more than the lanes, less need not be counted.
  template <class Stretch>
  TILEWAVE_DEVICE static std::uint32_t kth(Counters& counters, Stretch& x, float largest, float shared_by_lanes,
                                           std::int32_t k) {
    for (int i = B::block_lane_id(); i < Counters::levels * Counters::bins; i += P.lanes) {
      (&counters.of[0][0])[i] = 0;
    }
    B::barrier();
    std::uint32_t first = 0, last = last_key;  // the k-th key is among these; `before` keys are below the first
    if (k <= P.lanes * P.blocks) last = min_of(last, key_of<B>(shared_by_lanes, largest));
    std::uint32_t before = 0;
    for (int level = 0;; ++level) {
      const int shift = (last - first) >> 15 >= 256  ? 23
                        : (last - first) >> 7 >= 256 ? 15
                        : last - first >= 256        ? 7
                                                     : 0;
      x.each([&](const auto& v, int) {
        if (key_of<B>(fold(v, Max{}), largest) > last) return;
        TILEWAVE_UNROLL
        for (int e = 0; e < Stretch::unit; ++e) {
          const std::uint32_t behind = key_of<B>(v[e], largest) - first;
          if (behind <= last - first) B::add_shared(&counters.of[level][behind >> shift], 1);
        }
      });
      const std::uint32_t* const counted = counted_by_row(counters, level);
      // By every wave of every block alike: it costs less than to tell the others.
      constexpr int count = Counters::bins / B::facts.wave_lanes;
      Vec<std::uint32_t, count> found;
      TILEWAVE_UNROLL
      for (int i = 0; i < count; ++i) found[i] = counted[B::lane_id() * count + i];
      const auto bin = WholeNumbers<B>::find(found, static_cast<std::uint32_t>(k) - 1 - before);
      const int index = B::uniform(bin.index);
      if (index < 0) return last_key;
      before = k - 1 - bin.rest;
      first += static_cast<std::uint32_t>(index) << shift;
      last = min_of(last, first + (1u << shift) - 1);
      if (shift == 0 || bin.rest + 1 == bin.item) return last;
    }
  }

 private:
  /// The counters of a level, of all blocks of the row: each block reads those of the others once.
  TILEWAVE_DEVICE static const std::uint32_t* counted_by_row(Counters& counters, int level) {
    if constexpr (P.blocks > 1) {
      B::cluster_arrive();
      B::cluster_wait();
      for (int i = B::block_lane_id(); i < Counters::bins; i += P.lanes) {
        std::uint32_t all = 0;
        TILEWAVE_UNROLL
        for (int b = 0; b < P.blocks; ++b) all += *B::remote(&counters.of[level][i], b);
        counters.of[Counters::levels][i] = all;  // nobody looks there any more since the cluster was here together
      }
      B::barrier();
      return counters.of[Counters::levels];
    } else {
      B::barrier();
      return counters.of[level];
    }
  }
};

}  // namespace tilewave
