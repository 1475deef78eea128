// SPDX-License-Identifier: MIT
// The wave group of MlaDecodeSpecialised that makes scores and probabilities. It keeps most of q in registers, so that
// its products read shared memory for the cache alone.
#pragma once

#include "tilewave/core/static_for.hpp"
#include "tilewave/ops/mla_decode/specialised/layout.hpp"
#include "tilewave/ops/mla_decode/tensor/softmax.hpp"

namespace tilewave {

template <class B, class L>
class MlaDecodeScoreGroup {
  using Item = PagedAttentionWorkItem;
  using Softmax = MlaDecodeSoftmax<B, L>;
  using Scores = typename L::Scores;

 public:
  /// `wave`: 0 to 3 of the group.
  TILEWAVE_DEVICE MlaDecodeScoreGroup(const typename L::Args& args, typename L::Shared& shared, int wave)
      : args_(args), shared_(shared), wave_(wave) {}

  TILEWAVE_DEVICE void run() {
    for (int n = 0;; n = n == L::items - 1 ? 0 : n + 1) {
      B::mbarrier_wait(&shared_.q_full, item_parity_);
      const Item& item = shared_.item[n];
      if (item.tiles < 0) break;
      run(item);
      item_parity_ ^= 1;
    }
    announce_item();
  }

 private:
  TILEWAVE_DEVICE void run(const Item& item) {
    take_q();
    Softmax softmax(args_.of, item, wave_);
    Scores scores;
    const std::int32_t tiles = item.tiles;
    // So many tiles have no edge. The item is in shared memory, so it is looked at once.
    const std::int32_t whole = item.is_edge(item.begin, 0) ? 0 : (item.full_end - item.begin) / L::tokens;
    TILEWAVE_ROLL
    for (std::int32_t tile = 0; tile < tiles; ++tile) {
      make_scores(scores);
      if (tile == 0) announce_item();
      const Vec<float, 2> factor = softmax.run(item.begin + tile * L::tokens, tile >= whole, scores, shared_.reference,
                                               []() TILEWAVE_INLINE_LAMBDA {});
      publish(softmax, scores, factor);
      place_.next_tile();
    }
    if (tiles == 0) {
      announce_item();
      B::mbarrier_arrive(&shared_.scored[place_.tail.slot]);
      B::mbarrier_arrive(&shared_.probabilities[place_.tail.slot]);
      place_.next_tile();
    }
    B::mbarrier_arrive(&shared_.q_free);
    softmax.publish(shared_.sum[0]);
    B::mbarrier_arrive(&shared_.summed);
  }
  /// Waits until the sums of the item before have been read, and tells the other groups of this one.
  TILEWAVE_DEVICE void announce_item() {
    B::mbarrier_wait(&shared_.written, item_parity_ ^ 1);
    B::mbarrier_arrive(&shared_.item_ready);
  }

  /// Takes the wave's sixteen rows of q to registers, but for the boxes that stay in shared memory, and passes its
  /// places in the ring on.
  TILEWAVE_DEVICE void take_q() {
    const int matrix = B::lane_id() / 8, row = 16 * wave_ + B::lane_id() % 8 + 8 * (matrix % 2);
    TILEWAVE_UNROLL
    for (int n = 0; n < L::q_pairs; ++n) {
      const auto at = place_.behind(n);
      B::mbarrier_wait(&shared_.full[at.slot], at.round);
    }
    TILEWAVE_UNROLL
    for (int n = 0; n < 4 * L::q_boxes; ++n) {
      const int slice = n % 8;  // of sixteen dimensions, of a pair
      q_[n] = B::load_matrices(shared_.kv[place_.behind(n / 8).slot] + slice / 4 * L::box_size +
                               L::chunk_of(row, 2 * (slice % 4) + matrix / 2));
    }
    TILEWAVE_UNROLL
    for (int n = 0; n < L::q_pairs; ++n) L::release(args_, shared_.free[place_.behind(n).slot]);
    place_.pair.advance(L::q_pairs);
  }

  /// Makes the scores of a tile. Groups that multiply values begin behind them: a product of scores would have to wait
  /// for two of values, each twice as long, and probabilities for it. Pairs are in the order in which their places are
  /// freed.
  TILEWAVE_DEVICE void make_scores(Scores& scores) {
    B::group_mma_fence(scores);
    multiply_pair<0, true>(scores);
    if constexpr (L::any_last) {
      B::mbarrier_wait(&shared_.tail_full[place_.tail.slot], place_.tail.round);
      B::group_mma_begin();  // again behind each loop that waits, or ptxas does so
      multiply_kept(shared_.tail[place_.tail.slot], L::last_box, L::last_slices, scores);
    }
    multiply_pair<1, false>(scores);
    multiply_pair<2, false>(scores);
    const auto kept = place_.behind(L::tile_pairs - 1);
    B::mbarrier_wait(&shared_.full[kept.slot], kept.round);
    B::group_mma_begin();
    for (int box = 0; box < 2; ++box)
      multiply_kept(shared_.kv[kept.slot] + box * L::box_size, L::q_boxes + box, 4, scores);
    B::group_mma_end();
    B::template group_mma_wait<0>();
    B::mbarrier_arrive(&shared_.scored[place_.tail.slot]);
    B::group_mma_fence(scores);
  }
  template <int pair, bool first>
  TILEWAVE_DEVICE void multiply_pair(Scores& scores) {
    const auto at = place_.behind(pair);
    B::mbarrier_wait(&shared_.full[at.slot], at.round);
    B::group_mma_begin();
    static_for<8>([&](auto i) TILEWAVE_INLINE_LAMBDA {
      B::template group_multiply<L::type, L::tokens, !(first && i == 0)>(
          q_[8 * pair + i], L::box_operand(shared_.kv[at.slot] + i / 4 * L::box_size, i % 4), scores);
    });
  }
  TILEWAVE_DEVICE void multiply_kept(const Chunk* keys, int box, int slices, Scores& scores) {
    TILEWAVE_UNROLL
    for (int i = 0; i < slices; ++i) {
      B::template group_multiply<L::type, L::tokens>(L::box_operand(shared_.q + (box - L::q_boxes) * L::box_size, i),
                                                     L::box_operand(keys, i), scores, true);
    }
  }

  /// Packs the probabilities of a tile into its tail, of which all waves of the group have made their scores.
  TILEWAVE_DEVICE void publish(const Softmax& softmax, const Scores& scores, const Vec<float, 2>& factor) {
    if (B::lane_id() % 4 == 0) {
      for (int h = 0; h < 2; ++h) shared_.factor[place_.tail.slot][softmax.block_row(h)] = factor[h];
    }
    typename L::Operands packed;
    Softmax::pack(scores, packed);
    B::group_barrier();
    softmax.store(packed, shared_.tail[place_.tail.slot]);
    B::shared_written();
    B::mbarrier_arrive(&shared_.probabilities[place_.tail.slot]);
  }

  const typename L::Args& args_;
  typename L::Shared& shared_;
  int wave_, item_parity_ = 0;
  typename L::Place place_;
  Chunk q_[4 * L::q_boxes];
};

}  // namespace tilewave
