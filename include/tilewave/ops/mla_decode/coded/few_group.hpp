// SPDX-License-Identifier: MIT
// A wave group of blocks of few query rows on codes: it has every other tile, and a softmax of its own.
#pragma once

#include "tilewave/ops/mla_decode/coded/tiles.hpp"
#include "tilewave/ops/mla_decode/swapped/group.hpp"

namespace tilewave {

template <class B, class L>
struct MlaDecodeCodedFewGroup : MlaDecodeColumnGroup<B, L> {
  using ColumnGroup = MlaDecodeColumnGroup<B, L>;
  using typename ColumnGroup::Item;
  using Softmax = MlaDecodeSwappedSoftmax<B, L>;
  using ColumnGroup::shared, ColumnGroup::group, ColumnGroup::wave;
  MlaDecodeCodedTiles<B, L> tiles;
  RingSlot<L::stages> place = {};  // of the item's first tile

  TILEWAVE_DEVICE void run(const Item& item) {
    Softmax softmax(ColumnGroup::all.of, item, wave);
    typename L::Sums out{};
    if (item.tiles > 0) {
      ColumnGroup::take_q(item, softmax);
      auto at = place;
      at.advance(group);
      TILEWAVE_ROLL
      for (std::int32_t tile = group; tile < item.tiles; tile += L::groups) {
        add_tile(item, tile, at, softmax, out);
        at.advance(L::groups);
      }
      place.skip(item.tiles);
    }
    ColumnGroup::finish(item, softmax, out);
  }

 private:
  TILEWAVE_DEVICE void add_tile(const Item& item, std::int32_t tile, const RingSlot<L::stages>& at, Softmax& softmax,
                                typename L::Sums& out) {
    const std::int32_t token = item.begin + tile * L::tokens;
    typename L::Scores scores;
    tiles.make_scores(at, item.end - token, scores, []() TILEWAVE_INLINE_LAMBDA {});
    if constexpr (L::grouped) {
      softmax.take_units(shared.scales[at.slot], shared.aside.unit, scores);
      tiles.add_wide_scores(at, scores);
    }
    Vec<float, Softmax::lane_rows> factors;
    if (softmax.run(token, scores, shared.of_wave[group], shared.probabilities[group], factors)) L::scale(out, factors);
    B::shared_written();
    B::group_barrier();
    out.fence();
    tiles.add_values(
        at, group, out, []() TILEWAVE_INLINE_LAMBDA {}, []() TILEWAVE_INLINE_LAMBDA {});
    tiles.end_values(out);
  }
};

}  // namespace tilewave
