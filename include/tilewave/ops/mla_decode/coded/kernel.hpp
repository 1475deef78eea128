// SPDX-License-Identifier: MIT
// Decode of latent attention from fp8 for few query rows, in rooms with products of wave groups.
//
// Grid: by the schedule of the policy (work.hpp), one block per multiprocessor at a time. It is MlaDecodeSwapped, whose
// products have tokens, and then dimensions, as their 64 rows. But codes stay in shared memory as the copy engine brings
// them, five tiles or four at a time, and become operands in registers, twice: of scores, and turned, of values. So 180
// KB of a multiprocessor are under way. Bound: reads of the cache.
#pragma once

#include "tilewave/ops/mla_decode/coded/fetch.hpp"
#include "tilewave/ops/mla_decode/coded/tiles.hpp"
#include "tilewave/ops/mla_decode/swapped/group.hpp"
#include "tilewave/ops/mla_decode/tensor/base.hpp"

namespace tilewave {

template <class B, MlaDecodeSpec S, MlaDecodePolicy P>
struct MlaDecodeCoded : MlaDecodeTensorBase<B, MlaDecodeCodedLayout<B, S, P>> {
  using Base = MlaDecodeTensorBase<B, MlaDecodeCodedLayout<B, S, P>>;
  using typename Base::L, typename Base::Args, typename Base::Shared, typename Base::Item;
  // A multiprocessor has 512 registers for each lane of a group.
  static constexpr int fetching_registers = 24, multiplying_registers = 240;

  TILEWAVE_DEVICE static void run(const Args& args, Shared& shared) {
    const int wave = B::wave_id(), group = wave / L::group_waves, of_group = wave % L::group_waves;
    if (wave == 0) L::begin(shared);
    Base::Inputs::touch(args, wave - L::groups * L::group_waves);
    B::barrier();
    if (group == L::groups) {
      B::template give_registers<fetching_registers>();
      MlaDecodeWork<L> work(args.of.attention);
      MlaDecodeCodedFetch<B, S, L> fetch(args, shared, of_group);
      for (; work.more(); work.next()) fetch.run(work.item(), work.table());
    } else {
      B::template take_registers<multiplying_registers>();
      MlaDecodeWork<L> work(args.of.attention);
      WaveGroup of{{args, shared, group, of_group}, {shared, group, of_group}};
      for (; work.more(); work.next()) of.run(work.item());
    }
  }

 private:
  using Softmax = MlaDecodeSwappedSoftmax<B, L>;

  using ColumnGroup = MlaDecodeColumnGroup<B, L>;
  struct WaveGroup : ColumnGroup {
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
      if (softmax.run(token, scores, shared.of_wave[group], shared.probabilities[group], factors))
        L::scale(out, factors);
      B::shared_written();
      B::group_barrier();
      out.fence();
      tiles.add_values(
          at, group, out, []() TILEWAVE_INLINE_LAMBDA {}, []() TILEWAVE_INLINE_LAMBDA {});
      tiles.end_values(out);
    }
  };
};

}  // namespace tilewave
