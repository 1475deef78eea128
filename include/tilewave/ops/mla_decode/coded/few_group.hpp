// SPDX-License-Identifier: MIT
// A wave group of blocks of few query rows on codes: it has every other tile, and a softmax of its own.
#pragma once

#include "tilewave/ops/mla_decode/coded/group.hpp"

namespace tilewave {

template <class B, class L>
struct MlaDecodeCodedFewGroup : MlaDecodeCodedGroup<B, L, L::wide_values> {
  using Group = MlaDecodeCodedGroup<B, L, L::wide_values>;
  using ColumnGroup = MlaDecodeColumnGroup<B, L>;
  using typename ColumnGroup::Item;
  using Softmax = MlaDecodeSwappedSoftmax<B, L>;
  using ColumnGroup::shared, ColumnGroup::group, ColumnGroup::wave;
  using Group::tiles, Group::place;

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
    Group::make_scores(at, item.end - token, softmax, scores, []() TILEWAVE_INLINE_LAMBDA {});
    Vec<float, Softmax::lane_rows> factors;
    const bool raised = softmax.run(token, scores, shared.of_wave[group], factors);
    if constexpr (L::grouped) {
      const float of_units = softmax.raise_unit();
      if (raised || of_units != 1.0f) L::scale(out, factors, of_units, true);
      if constexpr (L::wide_values) softmax.template store<DType::bf16>(scores, shared.wide.of[group]);
      softmax.multiply_units(scores);
    } else {
      if (raised) L::scale(out, factors, 1.0f, false);
    }
    softmax.store(scores, shared.probabilities[group]);
    B::shared_written();
    B::group_barrier();
    out.fence();
    tiles.add_values(
        at, group, out, []() TILEWAVE_INLINE_LAMBDA {}, []() TILEWAVE_INLINE_LAMBDA {});
    tiles.end_values(out);
  }
};

}  // namespace tilewave
