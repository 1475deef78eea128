// SPDX-License-Identifier: MIT
// The main loop of path lds in which the two waves of a SIMD take turns: while one multiplies, the other turns scores
// into probabilities.
//
//   first half of the waves    M(0) | S(0) | M(1) | S(1) | ...   a line is a barrier of the block
//   second half                     | M(0) | S(0) | M(1) | ...
//
//   M(n)  scores of tile n + 1, K Q, then values of tile n, V P; copies of tiles to come between them
//   S(n)  softmax of tile n + 1
//
// So the matrix unit goes from one wave's products to the other's. The barrier of M(n) stands a few products before its
// end, which hide what it takes. Two waves share the port that issues vector instructions and products. A product that
// became ready while an exponential holds the port would be late, and every one after it as well. So instructions of
// S(n) come in groups that last as long as a product less its own issue (`group`).
//
// K(n + 2) and V(n + 1) are in LDS before M(n + 1): copies straight into LDS are waited for at the end of S(n), except
// those of the last M(n).
#pragma once

#include "tilewave/ops/flash_attention/lds/wave.hpp"

namespace tilewave {

template <class L>
struct FlashLdsTurns : FlashLdsWave<L> {
  using Wave = FlashLdsWave<L>;
  using B = typename L::Room;
  using Wave::item, Wave::token;
  // Each constant is named here, because g++ 12 finds no inherited ones in lambdas.
  static constexpr int stages = L::stages, ahead = L::ahead, products = L::products;
  static constexpr int score_products = L::score_products, elements = L::elements, parts = Wave::parts;
  static constexpr bool direct = Wave::direct;
  static constexpr bool planned = Wave::planned;
  /// The barrier of M(n) stands before its last products. Where K comes through registers, it is in LDS only then, and
  /// more products hide the first reads of the other wave.
  static constexpr int early = (direct ? 2 : 3) / L::chunks;

  typename Wave::Scores scores;
  typename Wave::Probabilities probabilities;

  using Wave::Wave;

  TILEWAVE_DEVICE void run() {
    const std::int32_t all = item.tiles - 1,
                       steady = align_down(all - max_of(item.masked - 1, 0), std::int32_t{stages}),
                       masked = all - steady;
    int slot = (stages - masked % stages) % stages;  // of tile 0: the steady loop begins with slot 0
    this->prepare(slot, scores);
    softmax<false>(-1, slot + stages - 1);
    const bool second = B::wave_id() >= L::tile.waves / 2;
    if (second) B::lds_barrier();
    std::int32_t n = 0;
    for (; n < masked; ++n) {
      multiply_tiles<false>(n, slot);
      softmax<false>(n, slot);
      slot = (slot + 1) % stages;
    }
    for (; n + stages <= all; n += stages) {
      static_for<stages>([&](auto i) TILEWAVE_INLINE_LAMBDA {
        multiply_tiles<true>(n + i, i);
        softmax<true>(n + i, i);
      });
    }
    // What is left are the values of the last tile, in slot 0.
    static_for<ahead>([&](auto i) TILEWAVE_INLINE_LAMBDA { this->template read<score_products + i, i>(0); });
    static_for<products - score_products>([&](auto i) TILEWAVE_INLINE_LAMBDA {
      static_assert(score_products % ahead == 0, "operand i lies in place i % ahead");
      this->template multiply<score_products + i>(scores, probabilities);
      if constexpr (score_products + i + ahead < products)
        this->template read<score_products + i + ahead, i % ahead>(0);
    });
    if constexpr (direct) B::template copies_wait<0>();
    if (!second) B::lds_barrier();
  }

 private:
  /// M(n). V of tile n is in `slot`.
  template <bool whole>
  TILEWAVE_DEVICE void multiply_tiles(std::int32_t n, int slot) {
    B::template priority<1>();
    if constexpr (!direct) read_first(slot);
    static_for<products>([&](auto i) TILEWAVE_INLINE_LAMBDA {
      this->template multiply<i>(scores, probabilities);
      if constexpr (i + ahead < products) this->template read<i + ahead, i % ahead>(slot);
      B::sched_fence();
      this->template interleave<parts, products - ahead, i>(
          [&](auto c) TILEWAVE_INLINE_LAMBDA { this->template fetch<c, whole, planned>(n, slot); });
      if constexpr (i == products - 1 - early) B::lds_barrier();
      B::sched_fence();
    });
    B::template priority<0>();
  }
  TILEWAVE_DEVICE void read_first(int slot) {
    static_for<ahead>([&](auto i) TILEWAVE_INLINE_LAMBDA { this->template read<i, i>(slot); });
  }

  /// S(n).
  template <bool whole>
  TILEWAVE_DEVICE void softmax(std::int32_t n, int slot) {
    if constexpr (direct) read_first(slot + 1);
    B::sched_fence();
    if constexpr (!whole) this->mask_scores(token(n + 1), scores);
    this->raise_reference(this->largest_of(scores));
    B::sched_fence();
    constexpr int groups = elements / exponentials;
    static_for<groups>([&](auto g) TILEWAVE_INLINE_LAMBDA {
      group<g>();
      if constexpr (planned) this->template plan<g, groups, whole>(n + 1);
      B::sched_fence();
    });
    static_for<elements>([&](auto e) TILEWAVE_INLINE_LAMBDA {
      if constexpr (!added(e)) this->s.sum += scores[e / 16][e % 16];
      if constexpr (!added(e) || exponentials > 1) this->template pack<e>(scores, probabilities);
    });
    if constexpr (!direct) this->transpose_values();
    B::sched_fence();
    if constexpr (direct) B::template copies_wait<(stages - 3) * parts>();
    B::lds_barrier();
    B::sched_fence();
  }

  /// A group has as many exponentials as there is time for in 28 clk, what a product of 32 clk leaves of the port.
  static constexpr int exponentials = 16 / B::facts.exp_clk;
  /// Returns whether a group adds element e to the sum: one does in each, behind its exponential.
  TILEWAVE_HOST_DEVICE static constexpr bool added(int e) { return e + 1 < elements / exponentials; }
  template <int g>
  TILEWAVE_DEVICE void group() {
    static_for<exponentials>([&](auto j)
                                 TILEWAVE_INLINE_LAMBDA { this->template exponentiate<exponentials * g + j>(scores); });
    if constexpr (g > 0) this->template add<g - 1>(scores);
    if constexpr (exponentials == 1) {
      if constexpr (g > 0 && g % 2 == 0) {
        this->template pack<g - 1>(scores, probabilities);
      } else {
        B::template priority<0>();  // takes the place of an instruction
      }
    }
  }
};

}  // namespace tilewave
