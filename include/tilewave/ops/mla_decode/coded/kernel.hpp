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
#include "tilewave/ops/mla_decode/swapped/output.hpp"
#include "tilewave/ops/mla_decode/tensor/half_query.hpp"
#include "tilewave/ops/mla_decode/tensor/inputs.hpp"

namespace tilewave {

template <class B, MlaDecodeSpec S, MlaDecodePolicy P>
struct MlaDecodeCoded {
  using Room = B;
  using L = MlaDecodeCodedLayout<B, S, P>;
  using Args = typename L::Args;
  using Shared = typename L::Shared;
  using Item = PagedAttentionWorkItem;
  static constexpr int block_threads = P.block_waves() * L::lanes, waves_per_simd = P.waves_per_simd;
  // A multiprocessor has 512 registers for each lane of a group.
  static constexpr int fetching_registers = 24, multiplying_registers = 240;

  static Status prepare(const MlaDecodeProblem& p, Args& args) { return MlaDecodeInputs<B, L>::prepare(p, args); }

  TILEWAVE_DEVICE static void run(const Args& args, Shared& shared) {
    const int wave = B::wave_id(), group = wave / L::group_waves, of_group = wave % L::group_waves;
    if (wave == 0) L::begin(shared);
    MlaDecodeInputs<B, L>::touch(args, wave - L::groups * L::group_waves);
    B::barrier();
    if (group == L::groups) {
      B::template give_registers<fetching_registers>();
      MlaDecodeWork<L> work(args.of.attention);
      MlaDecodeCodedFetch<B, S, L> fetch(args, shared, of_group);
      for (; work.more(); work.next()) fetch.run(work.item(), work.table());
    } else {
      B::template take_registers<multiplying_registers>();
      MlaDecodeWork<L> work(args.of.attention);
      WaveGroup of{args, shared, group, of_group, {shared, group, of_group}};
      for (; work.more(); work.next()) of.run(work.item());
    }
  }

 private:
  using Softmax = MlaDecodeSwappedSoftmax<B, L>;

  /// A wave group, its tiles, and the phases of the barriers that it waits for.
  struct WaveGroup {
    const Args& all;
    Shared& shared;
    int group, wave;  // of the group
    MlaDecodeCodedTiles<B, L> tiles;
    RingSlot<L::stages> place = {};  // of the item's first tile
    int q_parity = 0, merged_parity = 0;

    TILEWAVE_DEVICE void run(const Item& item) {
      Softmax softmax(all.of, item, wave);
      typename L::Sums out{};
      if (item.tiles > 0) {
        take_q(item, softmax);
        auto at = place;
        at.advance(group);
        TILEWAVE_ROLL
        for (std::int32_t tile = group; tile < item.tiles; tile += L::groups) {
          add_tile(item, tile, at, softmax, out);
          at.advance(L::groups);
        }
        place.skip(item.tiles);
      }
      // Maxima of the last tile were read by all waves of the group before they stored their probabilities.
      softmax.publish(shared.of_wave[group], shared.reference[group]);
      meet();
      MlaDecodeSwappedOutput<B, L>(all.of, item, shared, group, wave).write(softmax, out, [&]() TILEWAVE_INLINE_LAMBDA {
        meet();
      });
      B::shared_written();
      meet();  // the next item's sums come into the place of these
      if (item.tiles > 0) B::mbarrier_arrive(&shared.q_free);
    }

   private:
    /// Both groups put q into its place.
    TILEWAVE_DEVICE void take_q(const Item& item, Softmax& softmax) {
      B::mbarrier_wait(&shared.q_free, q_parity ^ 1);
      MlaDecodeHalfQuery<B, L>::put(all.of, item, shared, group * L::group_waves + wave);
      B::shared_written();
      B::mbarrier_arrive(&shared.q_full);
      B::mbarrier_wait(&shared.q_full, q_parity);
      q_parity ^= 1;
      softmax.multiply_scale(shared.aside.unit);
    }
    /// A barrier of both groups.
    TILEWAVE_DEVICE void meet() {
      B::mbarrier_arrive(&shared.merged);
      B::mbarrier_wait(&shared.merged, merged_parity);
      merged_parity ^= 1;
    }
    TILEWAVE_DEVICE void add_tile(const Item& item, std::int32_t tile, const RingSlot<L::stages>& at, Softmax& softmax,
                                  typename L::Sums& out) {
      const std::int32_t token = item.begin + tile * L::tokens;
      typename L::Scores scores;
      tiles.make_scores(at, item.end - token, scores);
      Vec<float, Softmax::lane_rows> factors;
      if (softmax.run(token, scores, shared.of_wave[group], shared.probabilities[group], factors))
        L::scale(out, factors);
      B::shared_written();
      B::group_barrier();
      tiles.add_values(at, group, out);
    }
  };
};

}  // namespace tilewave
