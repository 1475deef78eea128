// SPDX-License-Identifier: MIT
// Flash attention of rooms with a tensor copy engine and products of wave groups.
//
// Grid: P.waves_per_simd blocks per multiprocessor, or one per item if there are fewer. Blocks stay and take item after
// item (work.hpp): one wave finds them and tells the others (items.hpp). One wave, or two, fetch q, K and V into rings
// (fetch.hpp). One to three wave groups have 64 rows each and walk the keys from the last tile to the first.
// Probabilities never leave registers. Outputs leave as boxes (output.hpp). Shared memory: the rings of q, K and V, a
// place of the output, barriers (layout.hpp). Bound: matrix rate, and beside it the rate of exponentials.
//
// V in fp8 is transposed on its way from its ring to another, of which the groups take it, by the other three waves of
// the fetching group (transpose.hpp).
//
// In a step, a group begins its products of scores, then those of values of the tile before. Its softmax runs behind
// the latter, beside the products of the other groups, which begin theirs when it passes the turn.
//
//   group 0   turn: S(j) | O += P(j+1) V(j+1)    softmax of S(j)               turn: S(j-1) | O += P(j) V(j)
//   group 1   softmax of S(j+1)                  turn: S(j) | O += P(j+1) ..   softmax of S(j)
//   unit      [S(j) of 0][PV of 0]               [S(j) of 1][PV of 1]          [S(j-1) of 0][PV of 0]
#pragma once

#include "tilewave/ops/flash_attention/tensor/fetch.hpp"
#include "tilewave/ops/flash_attention/tensor/transpose.hpp"
#include "tilewave/ops/flash_attention/tensor/wave_group.hpp"

namespace tilewave {

template <class B, FlashAttentionSpec S, FlashAttentionPolicy P, bool split = false>
struct FlashAttentionTensor {
  using Room = B;
  using L = FlashAttentionTensorLayout<B, S, P, split>;
  using Args = typename L::Args;
  using Shared = typename L::Shared;
  static constexpr bool launches_next = true;  // when its blocks end
  static constexpr int block_threads = (L::groups + 1) * L::group_lanes;
  static constexpr int waves_per_simd = (L::groups + 1) * P.waves_per_simd;
  static constexpr bool shift_registers = P.waves_per_simd == 1 && L::groups > 1;
  // The multiplying groups have what registers the fetching one leaves.
  static constexpr int fetching_registers = L::groups == 2 ? 40 : 32;
  static constexpr int multiplying_registers = L::groups == 2 ? 232 : 160;

  TILEWAVE_DEVICE static void run(const Args& args, Shared& shared) {
    const int group = B::wave_id() / L::group_waves;
    if (B::wave_id() == 0) L::begin(shared);
    if (L::paged && group == L::groups) prefetch_table(args);
    if (group == L::groups && B::lane_id() == 0) {
      B::prefetch_map(args.q);
      B::prefetch_map(args.k);
      B::prefetch_map(args.v);
      if (args.out_boxes) B::prefetch_map(args.out);
    }
    meet();
    if (group == L::groups) {
      if constexpr (shift_registers) B::template give_registers<fetching_registers>();
      const int wave = B::wave_id() - L::groups * L::group_waves;
      if (wave < L::fetching_waves) {
        FlashAttentionFetch<B, S, L, P> fetch(args, shared, wave);
        each_item<L::finding_wave == 0>(args, shared,
                                        [&](const Item& item) TILEWAVE_INLINE_LAMBDA { fetch.run(item); });
      } else if (L::transposes) {
        if constexpr (L::transposes) {
          FlashAttentionTranspose<B, S, L, P> transpose(shared, wave - 1);
          each_item<false>(args, shared, [&](const Item& item) TILEWAVE_INLINE_LAMBDA { transpose.run(item); });
        }
      } else if (wave == L::finding_wave) {
        each_item<true>(args, shared, [](const Item&) TILEWAVE_INLINE_LAMBDA {});
      }
      if (wave == L::group_waves - 1) write_without_keys(args);
    } else {
      if constexpr (shift_registers) B::template take_registers<multiplying_registers>();
      FlashAttentionWaveGroup<B, S, P, split> of{args, shared, group};
      of.run();
    }
    if (P.cluster > 1) meet();  // others may still copy for this block, or tell it that a stage is free
  }

 private:
  using Items = FlashAttentionItems<B, Shared>;
  using Work = FlashAttentionWork<B, P, split>;
  using Item = typename L::Item;

  /// Fetches lengths and the block table into the cache, beside the look-up of the first item. Lanes of the fetching
  /// groups have a line of the table each.
  TILEWAVE_DEVICE static void prefetch_table(const Args& args) {
    constexpr std::int32_t line = 32;  // words
    const FlashAttentionArgs& a = args.attention;
    const std::int32_t lane = B::block_lane_id() % L::group_lanes;
    if (line * lane < a.batch) B::prefetch(a.kv_lengths + line * lane);
    const std::int32_t columns = max_of(a.block_size.quotient(a.kv_capacity), 1);
    const std::int64_t first = line * (std::int64_t{B::block_id()} * L::group_lanes + lane), row = first / columns;
    if (row < a.batch) B::prefetch(a.block_table + row * a.table_row_stride + (first - row * columns));
  }

  /// Lanes of a block, or of a cluster, meet.
  TILEWAVE_DEVICE static void meet() {
    if constexpr (P.cluster > 1) {
      B::cluster_arrive();
      B::cluster_wait();
    } else {
      B::barrier();
    }
  }

  /// Calls f for the block's items. A wave that finds them finds an item before it calls f for the one before. (What
  /// waves that only take items would need to find them would cost them registers.)
  template <bool finds, class F>
  TILEWAVE_DEVICE static void each_item(const Args& args, Shared& shared, const F& f) {
    Items items(shared);
    Item item;
    if constexpr (finds) {
      Work work(args.attention, args.sections, args.blocks);
      work.begin(true);
      Item next;
      for (bool there = items.find(work, item); there; item = next) {
        there = items.find(work, next);
        f(item);
      }
    } else {
      while (items.take(item)) f(item);
    }
  }

  /// A wave writes the output of the items whose rows see no keys.
  TILEWAVE_DEVICE static void write_without_keys(const Args& args) {
    Work work(args.attention, args.sections, args.blocks);
    work.begin(false);
    Item item;
    while (work.next(item)) {
      if (!item.any_keys()) FlashAttentionOutput<B, S, L>::write_without_keys(args, item);
    }
  }
};

}  // namespace tilewave
