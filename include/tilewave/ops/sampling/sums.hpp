// SPDX-License-Identifier: MIT
// Sums of weights over the logits of a wave.
#pragma once

#include "tilewave/ops/sampling/args.hpp"
#include "tilewave/ops/sampling/weight.hpp"
#include "tilewave/tile/max_of_packed.hpp"
#include "tilewave/tile/wave_integers.hpp"

namespace tilewave {

/// The logits have type X and come in accesses of `unit`.
template <class B, DType X, int unit>
struct SamplingSums {
  using Integers = WaveIntegers<B>;
  using Packed = tilewave::Packed<X, unit>;

  /// The tokens that may be drawn: logits from `from` on that weigh no less than `least`.
  struct Chosen {
    Weigher<B> weigher;
    float from;
    std::uint32_t least;

    /// Returns the weights of a lane's logits, and 0 for those that may not be drawn.
    TILEWAVE_DEVICE Vec<std::uint32_t, unit> weights(const Vec<float, unit>& x) const {
      Vec<std::uint32_t, unit> all = any_weights(weigher, x);
      TILEWAVE_UNROLL
      for (int e = 0; e < unit; ++e) all[e] = x[e] >= from && all[e] >= least ? all[e] : 0u;
      return all;
    }
  };

  /// `drawn` returns the tokens that may be drawn from a row with this largest logit, of which top_k leaves those from
  /// `from` on. `counted` returns all tokens, as log probabilities count them.
  TILEWAVE_DEVICE static Chosen drawn(const SamplingValues<B>& values, float largest, float from) {
    const Weigher<B> weigher(largest, values.scale());
    return {weigher, values.greedy ? largest : from, least_weight(weigher.weight(largest), values.min_p)};
  }
  TILEWAVE_DEVICE static Chosen counted(const SamplingArgs& a, const SamplingValues<B>& values, float largest) {
    return {Weigher<B>(largest, a.raw_logprobs || values.greedy ? log2_e : values.scale()), minus_infinity, 0};
  }
  /// True if log probabilities need a sum that draws do not.
  TILEWAVE_DEVICE static bool counts_apart(const SamplingArgs& a, const Chosen& drawn, const Chosen& counted) {
    return a.logprobs != nullptr && (drawn.from != minus_infinity || counted.weigher.factor != drawn.weigher.factor);
  }

  /// Sums of weights: of all logits from chosen.from on, and of those that min_p leaves.
  struct Pair {
    std::uint64_t all = 0, likely = 0;
  };
  /// Returns the sums over a row or part that x.each(f) goes through, summed over the wave.
  template <class Logits>
  TILEWAVE_DEVICE static Pair of(Logits& x, const Chosen& chosen) {
    Pair sums;
    const PairFloor floor(chosen.weigher.lowest);
    const auto add_chosen = [&](const Vec<float, unit>& v, const Vec<std::uint32_t, unit>& any) TILEWAVE_INLINE_LAMBDA {
      TILEWAVE_UNROLL
      for (int e = 0; e < unit; ++e) {
        const std::uint32_t weight = v[e] >= chosen.from ? any[e] : 0u;
        sums.all += weight;
        sums.likely += weight >= chosen.least ? weight : 0u;
      }
    };
    // Most accesses are passed over where filters leave few logits.
    const auto passed_over = [&](const Packed& packed) TILEWAVE_INLINE_LAMBDA {
      return !B::any(MaxOfPacked<B, X, unit>::of(packed) >= chosen.from);
    };
    if (!chosen.weigher.plain) {
      x.each([&](const Packed& packed, int) {
        if (passed_over(packed)) return;
        const Vec<float, unit> v = widen<B, X, unit>(packed);
        add_chosen(v, any_weights(chosen.weigher, v));
      });
    } else if (chosen.from == minus_infinity && chosen.least == 0) {
      x.each([&](const Packed& packed, int) {
        const Vec<std::uint32_t, unit> weight = raised_weights(chosen.weigher, floor.raised(packed));
        TILEWAVE_UNROLL
        for (int e = 0; e < unit; ++e) sums.all += weight[e];
      });
    } else {
      x.each([&](const Packed& packed, int) {
        if (passed_over(packed)) return;
        const Vec<float, unit> v = floor.raised(packed);  // a raised logit weighs nothing, whatever `from` is
        add_chosen(v, raised_weights(chosen.weigher, v));
      });
    }
    sums.all = Integers::sum(sums.all);
    return {sums.all, chosen.least == 0 ? sums.all : Integers::sum(sums.likely)};
  }

 private:
  template <class F>
  TILEWAVE_DEVICE static Vec<std::uint32_t, unit> in_pairs(const F& weights, const Vec<float, unit>& x) {
    Vec<std::uint32_t, unit> all;
    TILEWAVE_UNROLL
    for (int e = 0; e < unit; e += 2) {
      const int next = unit > 1 ? e + 1 : e;
      const Vec<std::uint32_t, 2> pair = weights(x[e], x[next]);
      all[next] = pair[1];
      all[e] = pair[0];
    }
    return all;
  }
  TILEWAVE_DEVICE static Vec<std::uint32_t, unit> any_weights(const Weigher<B>& weigher, const Vec<float, unit>& x) {
    return in_pairs([&](float a, float b) TILEWAVE_INLINE_LAMBDA { return weigher.weights(a, b); }, x);
  }
  TILEWAVE_DEVICE static Vec<std::uint32_t, unit> raised_weights(const Weigher<B>& weigher, const Vec<float, unit>& x) {
    return in_pairs([&](float a, float b) TILEWAVE_INLINE_LAMBDA { return weigher.weights_of({{a, b}}); }, x);
  }
  /// Raises logits to a floor, which may be a little lower than asked. bf16 is compared in pairs where a room can.
  struct PairFloor {
    static constexpr bool pairs = PairBackend<B> && X == DType::bf16 && unit > 1;
    float floor;
    std::uint32_t pair;

    TILEWAVE_DEVICE explicit PairFloor(float lowest) : floor(lowest) {
      const auto bits = __builtin_bit_cast(std::uint32_t, lowest);
      const std::uint32_t high = (bits + (bits >> 31 != 0 ? 0xffffu : 0u)) >> 16;
      pair = high << 16 | high;
    }
    TILEWAVE_DEVICE Vec<float, unit> raised(Packed packed) const {
      if constexpr (pairs) {
        TILEWAVE_UNROLL
        for (int w = 0; w < Packed::size; ++w) packed[w] = B::template larger_pair<X>(packed[w], pair);
      }
      Vec<float, unit> v = widen<B, X, unit>(packed);
      if constexpr (!pairs) {
        v = MaxOfPacked<B, X, unit>::canonical(v);
        TILEWAVE_UNROLL
        for (int e = 0; e < unit; ++e) v[e] = Max{}(v[e], floor);
      }
      return v;
    }
  };
};

}  // namespace tilewave
