// SPDX-License-Identifier: MIT
// The main loop of a wave of path lds walks the keys. It is for waves that have a SIMD to themselves, or share one
// without turns, on chips that copy straight into LDS.
//
// Step n multiplies the scores of tile n + 1 and the values of tile n. The exponentials of tile n stand between the
// products of both, so that the vector unit works while the matrix unit is busy. What stands below a product is issued
// behind it. The drawing is for head size 128, tiles of 64 keys and operands four products ahead:
//
//   products     K(n+1) Q: 0 .. 15                    V(n) P(n): 16 .. 27            | barrier | 28 .. 31
//   read LDS     K(n+1) 4 .. 15, V(n) 16 .. 19        V(n) 20 .. 31                  |         | K(n+2) 0 .. 3
//   vector unit  exponentials of tile n, as many behind each product from 2 on       |         | maxima of n + 1
//   copies       K(n + stages), V(n + stages - 1) into the slots of K(n) and V(n - 1)
//
// Behind the barrier all waves have read K(n+1) and V(n), and K(n+2) and V(n+1) are in LDS. The copies of stages - 2
// steps stay under way across the barrier.
#pragma once

#include "tilewave/ops/flash_attention/lds/wave.hpp"

namespace tilewave {

template <class L>
struct FlashLdsMainLoop : FlashLdsWave<L> {
  using Wave = FlashLdsWave<L>;
  using B = typename L::Room;
  using Scores = typename Wave::Scores;
  using Wave::item, Wave::token;
  // Each constant is named here, because g++ 12 finds no inherited ones in lambdas.
  static constexpr int stages = L::stages, ahead = L::ahead, first_exponential = L::first_exponential;
  static constexpr int key_tiles = L::key_tiles, key_slices = L::key_slices, value_tiles = L::value_tiles;
  static constexpr int score_products = L::score_products, products = L::products, last_read = products - ahead;
  static constexpr int elements = L::elements, pairs = L::pairs, parts = Wave::parts, unit = Wave::unit;
  static_assert(Wave::direct, "waves that copy through registers take turns");

  Scores scores[2];  // of tiles n and n + 1, in turn
  typename Wave::Probabilities probabilities;
  float largest;  // the lane's largest score of the next step's tile, not scaled

  using Wave::Wave;

  TILEWAVE_DEVICE void run() {
    const std::int32_t steady = align_down(item.tiles - item.masked, std::int32_t{stages}),
                       masked = item.tiles - steady;
    int slot = (stages - masked % stages) % stages;  // of tile 0: the steady loop begins with slot 0
    this->prepare(slot, scores[0]);
    static_for<ahead>([&](auto i) TILEWAVE_INLINE_LAMBDA { this->template read<i, i>(slot); });
    this->mask_scores(token(0), scores[0]);
    largest = this->largest_of(scores[0]);
    std::int32_t n = 0;
    for (; masked % 2 > n; ++n) {  // two masked steps at a time move no scores
      step<false, 0>(n, slot);
      TILEWAVE_UNROLL
      for (int t = 0; t < key_tiles; ++t) scores[0][t] = scores[1][t];
      slot = (slot + 1) % stages;
    }
    for (; n < masked; n += 2) {
      step<false, 0>(n, slot);
      step<false, 1>(n + 1, slot + 1);
      slot = (slot + 2) % stages;
    }
    for (; n + stages <= item.tiles; n += stages) {
      static_for<stages>([&](auto i) TILEWAVE_INLINE_LAMBDA { step<true, i % 2>(n + i, i); });
    }
    B::template copies_wait<0>();
  }

 private:
  /// Runs step n, whose tile has its V in `slot`.
  template <bool whole, int parity>
  TILEWAVE_DEVICE void step(std::int32_t n, int slot) {
    Scores &now = scores[parity], &next = scores[1 - parity];
    static_for<products>([&](auto i) TILEWAVE_INLINE_LAMBDA {
      if constexpr (products_first) B::template priority<max_of(rank(i), 1)>();
      this->template multiply<i>(next, probabilities);
      if constexpr (products_first) B::template priority<0>();
      if constexpr (i < last_read) {
        this->template read<i + ahead, i % ahead>(slot);
      } else {
        this->template read<i - last_read, i % ahead>(slot + 1);
      }
      B::sched_fence();  // a read that follows on vector instructions waits
      this->template interleave<parts, last_read, i>(
          [&](auto c) TILEWAVE_INLINE_LAMBDA { this->template fetch<c, whole>(n, slot); });
      if constexpr (i == first_exponential - 1) this->raise_reference(largest);
      exponentials<i>(now);
      if constexpr (whole) maxima<i>(next);
      if constexpr (i == last_read - 1) {
        B::template copies_wait<(stages - 2) * parts>();
        B::lds_barrier();
      }
      if constexpr (!products_first && rank(i + 1) != rank(i)) B::template priority<rank(i + 1)>();
      B::sched_fence();
    });
    if constexpr (!whole) {
      this->mask_scores(token(n + 1), next);
      largest = this->largest_of(next);
    }
  }

  /// Returns the priority of a wave before product i. The older of two waves of a SIMD would always go first, and wait
  /// for the other at the barrier. Priorities fall towards the barrier, so that the wave that is behind goes first.
  TILEWAVE_HOST_DEVICE static constexpr int rank(int i) {
    const int late = i - score_products, until_barrier = products - ahead - score_products;
    if (late < 0 || late >= until_barrier) return 3;
    return late < until_barrier / 2 ? 2 : late < until_barrier * 5 / 6 ? 1 : 0;
  }
  /// If products are long, there is time to put each before the vector instructions of the other wave, which would keep
  /// the matrix unit waiting.
  static constexpr bool products_first = L::chunks > 1;

  /// Exponentials stand behind so many products, until the products of the last k slice or the barrier.
  static constexpr int exponential_slots = products - max_of(ahead, value_tiles) - first_exponential;
  static constexpr bool probabilities_in_time() {
    for (int k_slice = 0; k_slice < key_slices; ++k_slice) {
      int slot = 0;  // the product, from first_exponential on, behind which the slice's last probability is packed
      while ((elements + 1) * (slot + 1) / exponential_slots <= L::chunks * unit * (k_slice + 1)) ++slot;
      if (first_exponential + slot >= score_products + k_slice * value_tiles) return false;
    }
    return true;
  }

  /// Issues the exponentials that stand behind product i. What uses one comes one exponential late, since each takes
  /// some cycles.
  template <int i>
  TILEWAVE_DEVICE void exponentials(Scores& now) {
    static_assert(probabilities_in_time(), "probabilities of a k slice are there before the first product with them");
    constexpr int slots = exponential_slots;
    if constexpr (i >= first_exponential && i < first_exponential + slots) {
      this->template interleave<elements + 1, slots, i - first_exponential>([&](auto e) TILEWAVE_INLINE_LAMBDA {
        if constexpr (e < elements) this->template exponentiate<e>(now);
        if constexpr (e > 0) {
          this->template add<e - 1>(now);
          this->template pack<e - 1>(now, probabilities);
        }
      });
    }
  }
  /// Finds the largest of the next tile's scores, behind the last products.
  template <int i>
  TILEWAVE_DEVICE void maxima(const Scores& next) {
    if constexpr (i >= last_read) {
      if constexpr (i == last_read) largest = next[0][0];
      this->template interleave<pairs, ahead, i - last_read>(
          [&](auto p) TILEWAVE_INLINE_LAMBDA { largest = this->template join<p>(next, largest); });
      B::keep(largest);
    }
  }
};

}  // namespace tilewave
