// SPDX-License-Identifier: MIT
// What both kinds of wave groups on codes have: their place in the ring of tiles, and scores of a tile.
#pragma once

#include "tilewave/ops/mla_decode/coded/tiles.hpp"
#include "tilewave/ops/mla_decode/swapped/group.hpp"

namespace tilewave {

/// `wide`: the group's last values are bf16.
template <class B, class L, bool wide>
struct MlaDecodeCodedGroup : MlaDecodeColumnGroup<B, L> {
  using MlaDecodeColumnGroup<B, L>::shared;
  MlaDecodeCodedTiles<B, L, wide> tiles;
  RingSlot<L::stages> place = {};  // of the next tile, or the item's first

 protected:
  /// Makes the scores of the tile in a place, of whose tokens `there` are the sequence's, in the units that a softmax
  /// wants.
  template <class Softmax, class Before>
  TILEWAVE_DEVICE void make_scores(const RingSlot<L::stages>& at, std::int32_t there, Softmax& softmax,
                                   typename L::Scores& scores, const Before& products_before) {
    tiles.make_scores(at, there, scores, products_before);
    if constexpr (L::grouped) {
      softmax.take_units(shared.scales[at.slot], shared.aside.unit, scores);
      tiles.add_wide_scores(at, scores);
    }
  }
};

}  // namespace tilewave
