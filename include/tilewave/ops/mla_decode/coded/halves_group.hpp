// SPDX-License-Identifier: MIT
// A wave group of blocks of 64 query rows on codes: it makes the probabilities of every other tile, and multiplies half
// of the dimensions of all values, `wide` if the last of these are bf16.
#pragma once

#include "tilewave/ops/mla_decode/coded/group.hpp"
#include "tilewave/ops/mla_decode/coded/halves_softmax.hpp"

namespace tilewave {

template <class B, class L, bool wide>
struct MlaDecodeCodedHalvesGroup : MlaDecodeCodedGroup<B, L, wide> {
  using Group = MlaDecodeCodedGroup<B, L, wide>;
  using ColumnGroup = MlaDecodeColumnGroup<B, L>;
  using typename ColumnGroup::Item;
  using Softmax = MlaDecodeHalvesSoftmax<B, L>;
  using ColumnGroup::shared, ColumnGroup::group, ColumnGroup::wave;
  using Group::tiles, Group::place;  // of the next tile whose values are multiplied
  std::uint32_t n = 0;               // its number, of all tiles of the block
  int owes = 0;                      // 1 for even, 2 for odd: probabilities that its last products may still read

  TILEWAVE_DEVICE void run(const Item& item) {
    Softmax softmax(ColumnGroup::all.of, item, shared, group, wave);
    typename L::Sums out{};
    out.fence();
    if (item.tiles > 0) {
      ColumnGroup::take_q(item, softmax);
      const std::uint32_t first = n;
      const std::int32_t own = (static_cast<int>(n) ^ group) & 1;
      auto own_place = place;
      own_place.advance(own);
      TILEWAVE_ROLL
      for (std::int32_t tile = 0;;) {
        if (tile + own < item.tiles) make_probabilities(item, first, tile + own, own_place, softmax);
        own_place.advance(2);
        if (tile >= item.tiles) break;
        TILEWAVE_ROLL
        for (int i = 0; i < 2 && tile < item.tiles; ++i, ++tile)
          add_values(item.end - item.begin - tile * L::tokens, out);
      }
    }
    tiles.end_values(out);
    pass_on();
    ColumnGroup::finish(item, softmax, out);
  }

 private:
  TILEWAVE_DEVICE void make_probabilities(const Item& item, std::uint32_t first, std::int32_t tile,
                                          const RingSlot<L::stages>& at, Softmax& softmax) {
    const std::int32_t token = item.begin + tile * L::tokens;
    typename L::Scores scores;
    Group::make_scores(at, item.end - token, softmax, scores, [&]() TILEWAVE_INLINE_LAMBDA { pass_on(); });
    softmax.run(first + static_cast<std::uint32_t>(tile), tile == 0, token, scores);
  }
  /// Codes are widened before probabilities are ready, unless the other group may still have to clear some.
  TILEWAVE_DEVICE void add_values(std::int32_t there, typename L::Sums& out) {
    const int odd = static_cast<int>(n % 2), parity = static_cast<int>(n / 2 % 2);
    B::mbarrier_wait(&shared.full[place.slot], place.round);
    if (there < L::tokens) B::mbarrier_wait(&shared.ready[odd], parity);
    tiles.add_values(
        place, odd, out, [&]() TILEWAVE_INLINE_LAMBDA { pass_on(); },
        [&]() TILEWAVE_INLINE_LAMBDA {
          B::mbarrier_wait(&shared.ready[odd], parity);
          if (!B::any(shared.raised[odd] != 0)) return;
          tiles.end_values(out);
          L::scale(out, Softmax::factors(shared.factor[odd]), L::grouped ? shared.unit_factor[odd] : 1.0f, wide);
          out.fence();
        });
    owes = 1 + odd;
    place.advance();
    ++n;
  }
  /// Products with the tile before have ended: its probabilities' place is free.
  TILEWAVE_DEVICE void pass_on() {
    if (owes > 0) B::mbarrier_arrive(&shared.used[owes - 1]);
    owes = 0;
  }
};

}  // namespace tilewave
