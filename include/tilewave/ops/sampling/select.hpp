// SPDX-License-Identifier: MIT
// Finds the k-th largest logit of a row exactly. Keys (LogitOrder) are counted by eight bits at a time in shared
// memory, until one value is left, or until all remaining ones belong to the k.
#pragma once

#include "tilewave/ops/sampling/weight.hpp"
#include "tilewave/tile/max_of_packed.hpp"
#include "tilewave/tile/row_segment.hpp"
#include "tilewave/tile/wave_integers.hpp"

namespace tilewave {

/// The counters of a block, and the counts that blocks of the cluster have published for two levels, which alternate.
template <RowPolicy P>
struct SelectCounters {
  static constexpr int bins = 256, levels = 4;
  std::uint32_t of[levels][bins];
};
template <RowPolicy P>
requires(P.blocks > 1) struct SelectCounters<P> {
  static constexpr int bins = 256, levels = 4;
  Vec<std::uint32_t, 4> of[levels][bins / 4];
  Vec<float, 4> published[2][P.blocks][bins / 4];
};

template <class B, DType X, RowPolicy P>
struct Select {
  using Counters = SelectCounters<P>;
  using Order = LogitOrder<X>;
  using Four = Vec<float, 4>;
  static constexpr int lanes = B::facts.wave_lanes;

  /// Returns the four largest keys of the lanes of a wave, as different ones. The second to the fourth are valid only
  /// if k matters. `own` is the key of this lane's largest logit.
  TILEWAVE_DEVICE static Vec<std::uint32_t, 4> of_wave(std::uint32_t own, std::int32_t k) {
    Vec<std::uint32_t, 4> keys{{B::highest(own), 0, 0, 0}};
    if (k == 0) return keys;
    TILEWAVE_UNROLL
    for (int i = 1; i < 4; ++i) {
      own = own == keys[i - 1] ? 0u : own;
      keys[i] = B::highest(own);
    }
    return keys;
  }
  /// Returns a key that at least k logits of the row reach, near the k-th of these `count` keys, or 0 if there are
  /// fewer. each(f) calls f(keys) with those of the waves that this lane looks at.
  template <class Each>
  TILEWAVE_DEVICE static std::uint32_t reached(const Each& each, std::int32_t count, std::uint32_t highest,
                                               std::int32_t k) {
    if (k > count) return 0;
    std::uint32_t missed = 0;
    each([&](const auto& keys) {
      TILEWAVE_UNROLL
      for (int i = 0; i < keys.size; ++i) missed = max_of(missed, ~keys[i]);
    });
    std::uint32_t low = ~B::highest(missed), high = highest;
    constexpr int most_bits = 16;  // all bits of a 16-bit type; half of those of a 32-bit type are near enough
    TILEWAVE_ROLL
    for (int bit = 0; bit < most_bits && low < high; ++bit) {
      const std::uint32_t middle = high - (high - low) / 2;
      std::uint32_t above = 0;
      each([&](const auto& keys) {
        TILEWAVE_UNROLL
        for (int i = 0; i < keys.size; ++i) above += keys[i] >= middle;
      });
      const bool enough = B::total(above) >= static_cast<std::uint32_t>(k);
      low = enough ? middle : low;
      high = enough ? high : middle - 1;
    }
    return low;
  }

  /// Returns the least logit of the k largest and their equals, or -inf where no more than k logits are above that. k
  /// logits of the row have at least the key `reached`, as far as there are numbers.
  template <class Segment, class Exchange>
  TILEWAVE_DEVICE static float kth(Counters& counters, Segment& x, const Exchange& exchange, float largest,
                                   std::uint32_t reached, std::int32_t k) {
    auto* const all = reinterpret_cast<std::uint32_t*>(counters.of);
    for (int i = B::block_lane_id(); i < Counters::levels * Counters::bins; i += P.lanes) all[i] = 0;
    B::barrier();
    // Distances of keys from the largest: the k-th is among first to last, and `before` keys are nearer than the first.
    const std::uint32_t top = Order::key(largest), least = Order::key(minus_infinity) + 1;
    std::uint32_t first = 0, last = top - max_of(reached, least), before = 0;
    for (int level = 0;; ++level) {
      const int shift = max_of(bits_of(last - first) - 8, 0);
      const float from = Order::logit(top - last);
      x.each([&](const typename Segment::Packed& packed, int) {
        if (!(MaxOfPacked<B, X, Segment::unit>::of(packed) >= from)) return;  // most accesses return here
        const auto v = widen<B, X, Segment::unit>(packed);
        TILEWAVE_UNROLL
        for (int e = 0; e < Segment::unit; ++e) {
          const std::uint32_t behind = top - Order::key(v[e]) - first;
          if (behind <= last - first) B::add_shared(all + level * Counters::bins + (behind >> shift), 1);
        }
      });
      B::barrier();
      // Every wave of every block does this alike: it costs less than publishing the result.
      const auto counted = counted_by_row(counters, exchange, level);
      const auto bin = WaveIntegers<B>::find(counted, static_cast<std::uint32_t>(k) - 1 - before);
      const int index = B::uniform(bin.index);
      if (index < 0) return minus_infinity;
      before = k - 1 - bin.rest;
      first += static_cast<std::uint32_t>(index) << shift;
      last = min_of(last, first + (1u << shift) - 1);
      if (shift == 0 || bin.rest + 1 == bin.item) return Order::logit(top - last);
    }
  }

 private:
  static constexpr int count = 256 / lanes;  // bins of a lane

  /// Returns the bits without leading zeros, as the exponent of a float. The conversion rounds nothing up.
  TILEWAVE_DEVICE static int bits_of(std::uint32_t n) {
    return n == 0 ? 0 : (__builtin_bit_cast(std::int32_t, static_cast<float>(n & ~(n >> 1))) >> 23) - 126;
  }
  /// Returns this lane's counters of a level, summed over the blocks of the row.
  template <class Exchange>
  TILEWAVE_DEVICE static Vec<std::uint32_t, count> counted_by_row(Counters& counters,
                                                                  [[maybe_unused]] const Exchange& exchange,
                                                                  int level) {
    Vec<std::uint32_t, count> sums;
    if constexpr (P.blocks > 1) {
      constexpr int fours = Counters::bins / 4;
      auto& published = counters.published[level & 1];
      Mailbox& box = exchange.box(level & 1);
      for (int i = B::block_lane_id(); i < fours * P.blocks; i += P.lanes) {
        B::post(box, &published[B::cluster_rank()][i % fours], i / fours,
                __builtin_bit_cast(Four, counters.of[level][i % fours]));
      }
      B::collect(box, Counters::bins * P.blocks, level >> 1);
      TILEWAVE_UNROLL
      for (int i = 0; i < count; ++i) sums[i] = 0;
      TILEWAVE_UNROLL
      for (int b = 0; b < P.blocks; ++b) {
        TILEWAVE_UNROLL
        for (int i = 0; i < count; i += 4) {
          const auto four = __builtin_bit_cast(Chunk, published[b][(B::lane_id() * count + i) / 4]);
          TILEWAVE_UNROLL
          for (int j = 0; j < 4; ++j) sums[i + j] += four[j];
        }
      }
    } else {
      TILEWAVE_UNROLL
      for (int i = 0; i < count; ++i) sums[i] = counters.of[level][B::lane_id() * count + i];
    }
    return sums;
  }
};

}  // namespace tilewave
