// SPDX-License-Identifier: MIT
// The two wave groups of MlaDecodeSpecialised that multiply values: each has half of the output's columns.
#pragma once

#include "tilewave/core/static_for.hpp"
#include "tilewave/ops/mla_decode/specialised/layout.hpp"
#include "tilewave/ops/mla_decode/tensor/output.hpp"

namespace tilewave {

/// What the output needs of an item's softmax: the lane's two rows, h = 0 and 1, as MlaDecodeSoftmax deals them.
template <class B, class L>
struct MlaDecodeRows {
  int row;
  float reference[2];

  TILEWAVE_DEVICE MlaDecodeRows(const float (&references)[L::rows], int wave)
      : row(16 * wave + B::lane_id() / 4), reference{references[row], references[row + 8]} {}
  TILEWAVE_DEVICE int block_row(int h) const { return row + 8 * h; }
  TILEWAVE_DEVICE float lse(int h, float total) const { return MlaDecodeSoftmax<B, L>::lse_of(reference[h], total); }
};

template <class B, class L>
class MlaDecodeValueGroup {
  using Item = PagedAttentionWorkItem;
  using Sums = typename L::Sums;

 public:
  /// `group`: 0 or 1 of those that multiply values; `wave`: 0 to 3 of the group.
  TILEWAVE_DEVICE MlaDecodeValueGroup(const typename L::Args& args, typename L::Shared& shared, int group, int wave)
      : args_(args), shared_(shared), group_(group), wave_(wave) {}

  TILEWAVE_DEVICE void run() {
    for (int n = 0;; n = n == L::items - 1 ? 0 : n + 1) {
      B::mbarrier_wait(&shared_.item_ready, item_parity_);
      const Item& item = shared_.item[n];
      if (item.tiles < 0) return;
      place_.pair.advance(L::q_pairs);
      run(item);
      item_parity_ ^= 1;
    }
  }

 private:
  /// Places of the last tile are passed on when the output has left through them.
  TILEWAVE_DEVICE void run(const Item& item) {
    Sums out{};
    const std::int32_t tiles = item.tiles;
    if (tiles == 0) await_values();
    TILEWAVE_ROLL
    for (std::int32_t tile = 0; tile < tiles; ++tile) {
      const bool more = tile + 1 < tiles;
      add_tile(item, tile, more, out);
      if (!more) break;
      release(1);
      L::release(args_, shared_.tail_free[place_.tail.slot]);
      place_.next_tile();
    }
    B::mbarrier_wait(&shared_.summed, item_parity_);
    const MlaDecodeRows<B, L> rows(shared_.reference, wave_);
    float total[2];
    for (int h = 0; h < 2; ++h) total[h] = item.beyond_table ? __builtin_nanf("") : shared_.sum[0][rows.block_row(h)];
    B::mbarrier_arrive(&shared_.written);
    B::group_barrier();  // all waves have multiplied what the output overwrites
    Chunk* const staged[] = {pair(0), pair(1)};
    MlaDecodeOutput<B, L, MlaDecodeRows<B, L>>::write(args_.of, item, rows, total, out, group_, staged,
                                                      [&]() TILEWAVE_INLINE_LAMBDA {
                                                        release(0);
                                                        release(1);
                                                        L::release(args_, shared_.tail_free[place_.tail.slot]);
                                                      });
    place_.next_tile();
  }

  /// Returns the n-th of the group's pairs of a tile.
  TILEWAVE_DEVICE Chunk* pair(int n) const { return shared_.kv[place_.behind(L::group_pairs * group_ + n).slot]; }
  TILEWAVE_DEVICE void release(int n) {
    L::release(args_, shared_.free[place_.behind(L::group_pairs * group_ + n).slot]);
  }

  TILEWAVE_DEVICE void await_values() {
    TILEWAVE_UNROLL
    for (int n = 0; n < L::group_pairs; ++n) {
      const auto at = place_.behind(L::group_pairs * group_ + n);
      B::mbarrier_wait(&shared_.full[at.slot], at.round);
    }
  }

  /// Adds a tile's values times its probabilities, while the next tile's scores become probabilities.
  TILEWAVE_DEVICE void add_tile(const Item& item, std::int32_t tile, bool more, Sums& out) {
    const int tail = place_.tail.slot;
    await_values();
    B::mbarrier_wait(&shared_.probabilities[tail], place_.tail.round);
    const int row = 16 * wave_ + B::lane_id() / 4;
    const Vec<float, 2> factor{{shared_.factor[tail][row], shared_.factor[tail][row + 8]}};
    if (B::any(factor[0] != 1.0f || factor[1] != 1.0f)) out.scale(factor);
    const std::int32_t there = item.end - item.begin - tile * L::tokens;  // tokens of the tile
    if (there < L::tokens) clear_behind(there);
    if (more) let_scores_begin();
    out.fence();
    static_for<L::group_pairs>([&](auto n) TILEWAVE_INLINE_LAMBDA {
      const Chunk* const values = pair(n);
      B::group_mma_begin();
      TILEWAVE_UNROLL
      for (int k_slice = 0; k_slice < L::value_slices; ++k_slice) {
        B::template group_multiply<L::type, L::part_columns>(L::probability_operand(shared_, tail, k_slice),
                                                             L::value_operand(values, k_slice), out.of[n], true);
      }
      B::group_mma_end();
    });
    if (more) {  // else the output needs the places
      B::template group_mma_wait<1>();
      release(0);
    }
    B::template group_mma_wait<0>();
    out.fence();
  }
  /// Waits until the next tile's scores are made, if its first pair is there: products of both would share the unit,
  /// and probabilities would wait. Else memory bounds the kernel, and places should be free soon.
  TILEWAVE_DEVICE void let_scores_begin() {
    const auto first = place_.behind(L::tile_pairs);
    if (!B::any(B::mbarrier_test(&shared_.full[first.slot], first.round))) return;
    RingSlot<L::tails> next = place_.tail;
    next.advance();
    B::mbarrier_wait(&shared_.scored[next.slot], next.round);
  }
  /// Clears the group's values of tokens from `first` of the tile on, behind the sequence's last: they may be NaN.
  TILEWAVE_DEVICE void clear_behind(std::int32_t first) {
    const int lane = B::block_lane_id() % L::group_lanes;
    TILEWAVE_ROLL
    for (int i = first * L::box_chunks + lane; i < L::box_size; i += L::group_lanes) {
      TILEWAVE_UNROLL
      for (int n = 0; n < L::group_pairs; ++n) pair(n)[i] = pair(n)[L::box_size + i] = Chunk{};
    }
    B::shared_written();
    B::group_barrier();
  }

  const typename L::Args& args_;
  typename L::Shared& shared_;
  int group_, wave_, item_parity_ = 0;
  typename L::Place place_;
};

}  // namespace tilewave
