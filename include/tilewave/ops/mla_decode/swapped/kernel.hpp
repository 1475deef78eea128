// SPDX-License-Identifier: MIT
// Decode of latent attention for few query rows, in rooms with products of wave groups.
//
// Grid: by the schedule of the policy (work.hpp), one block per multiprocessor at a time. A block has up to 32 query
// rows, and the cache is of fp8. Products have tokens, and then dimensions, as their 64 rows, and query rows as
// columns, so that none of them multiplies rows that do not exist. Each of two wave groups takes every other tile of
// 64 tokens, has a stage of its own and an online softmax, and sums all 512 dimensions. Both add up their sums at the
// end (output.hpp). Four waves fetch q and tiles, as for MlaDecodeTensor. Bound: reads of the cache.
#pragma once

#include "tilewave/core/static_for.hpp"
#include "tilewave/ops/mla_decode/swapped/fetch_widened.hpp"
#include "tilewave/ops/mla_decode/swapped/group.hpp"
#include "tilewave/ops/mla_decode/tensor/base.hpp"

namespace tilewave {

template <class B, MlaDecodeSpec S, MlaDecodePolicy P>
struct MlaDecodeSwapped : MlaDecodeTensorBase<B, MlaDecodeSwappedLayout<B, S, P>> {
  using Base = MlaDecodeTensorBase<B, MlaDecodeSwappedLayout<B, S, P>>;
  using typename Base::L, typename Base::Args, typename Base::Shared, typename Base::Item;
  static constexpr int fetching_registers = 120, multiplying_registers = 192;

  TILEWAVE_DEVICE static void run(const Args& args, Shared& shared) {
    const int wave = B::wave_id(), group = wave / L::group_waves;
    if (wave == 0) L::begin(shared);
    Base::Inputs::touch(args, wave - L::groups * L::group_waves);
    MlaDecodeWork<L> work(args.of.attention);  // it reads lengths while wave 0 initialises barriers
    B::barrier();
    if (group == L::groups) {
      B::template give_registers<fetching_registers>();
      MlaDecodeFetchWidened<B, S, L> fetch(args, shared, wave - L::groups * L::group_waves);
      for (; work.more(); work.next()) fetch.run(work.item(), work.table());
    } else {
      B::template take_registers<multiplying_registers>();
      WaveGroup of{{args, shared, group, wave % L::group_waves}};
      for (; work.more(); work.next()) of.run(work.item());
    }
  }

 private:
  using Softmax = MlaDecodeSwappedSoftmax<B, L>;
  using Scores = typename L::Scores;
  using Sums = typename L::Sums;

  using ColumnGroup = MlaDecodeColumnGroup<B, L>;
  struct WaveGroup : ColumnGroup {
    using ColumnGroup::shared, ColumnGroup::group, ColumnGroup::wave;
    int stage_parity = 0;

    TILEWAVE_DEVICE void run(const Item& item) {
      Softmax softmax(ColumnGroup::all.of, item, wave);
      Sums out{};
      if (item.tiles > 0) {
        ColumnGroup::take_q(item, softmax);
        out.fence();
        for (std::int32_t tile = group; tile < item.tiles; tile += L::groups) add_tile(item, tile, softmax, out);
      }
      ColumnGroup::finish(item, softmax, out);
    }

   private:
    TILEWAVE_DEVICE void add_tile(const Item& item, std::int32_t tile, Softmax& softmax, Sums& out) {
      Scores scores;
      static_for<L::score_boxes>([&](auto box) TILEWAVE_INLINE_LAMBDA {
        L::template await_box<box, L::score_boxes>(shared.full[group], stage_parity);
        B::group_mma_begin();  // again behind each loop that waits, or ptxas does so
        TILEWAVE_UNROLL
        for (int i = 4 * box; i < min_of(4 * box + 4, L::score_slices); ++i) {
          B::template group_multiply<L::type, L::rows>(L::key_operand(shared, group, i), L::q_operand(shared, i),
                                                       scores, i > 0);
        }
      });
      B::group_mma_end();
      B::template group_mma_wait<0>();
      B::group_mma_fence(scores);
      Vec<float, Softmax::lane_rows> factors;
      if (softmax.run(item.begin + tile * L::tokens, scores, shared.of_wave[group], factors)) L::scale(out, factors);
      softmax.store(scores, shared.probabilities[group]);
      B::shared_written();
      B::group_barrier();
      out.fence();
      TILEWAVE_UNROLL
      for (int part = 0; part < L::last_box / L::part_boxes; ++part) {
        B::group_mma_begin();
        TILEWAVE_UNROLL
        for (int box = part * L::part_boxes; box < (part + 1) * L::part_boxes; ++box) {
          TILEWAVE_UNROLL
          for (int k_slice = 0; k_slice < L::value_slices; ++k_slice) {
            B::template group_multiply<L::type, L::rows>(L::value_operand(shared, group, box, k_slice),
                                                         L::probability_operand(shared, group, k_slice), out.of[box],
                                                         true);
          }
        }
        B::group_mma_end();
      }
      static_for<L::last_box / L::part_boxes>([&](auto part) TILEWAVE_INLINE_LAMBDA {
        B::template group_mma_wait<L::last_box / L::part_boxes - 1 - part>();
        B::mbarrier_arrive(&shared.free[group][part / L::parts][part % L::parts]);
      });
      out.fence();
      stage_parity ^= 1;
    }
  };
};

}  // namespace tilewave
