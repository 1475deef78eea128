// SPDX-License-Identifier: MIT
// Finds the token into whose weight a random number falls. Weights are counted in the order of tokens, so waves are
// found first, by the sums that each published; then an access of that wave's segment, a lane, and an element.
#pragma once

#include "tilewave/ops/sampling/policy.hpp"
#include "tilewave/ops/sampling/sums.hpp"
#include "tilewave/tile/row_exchange.hpp"
#include "tilewave/tile/row_segment.hpp"

namespace tilewave {

template <class B, SamplingSpec S, SamplingPolicy P>
struct SamplingSearch {
  using Exchange = RowExchange<B, P, 2>;
  using Segment = RowSegment<B, S.x, P, Exchange>;
  using Integers = WaveIntegers<B>;
  static constexpr int unit = Segment::unit;
  /// The waves of a block that find_by_few takes: one of each SIMD.
  static constexpr int few_waves = 4;
  using Packed = typename Segment::Packed;
  using Words = typename Exchange::Words;
  using Sums = SamplingSums<B, S.x, unit>;
  using Chosen = typename Sums::Chosen;

  struct Drawn {
    std::int32_t token;
    float logit;
  };
  /// Finds the token whose weight contains `at`, counted in the order of tokens. The lane that returns true knows it.
  TILEWAVE_DEVICE static bool find(Segment& x, Exchange& exchange, const Chosen& chosen, std::uint64_t at,
                                   Drawn& drawn) {
    if constexpr (Exchange::waves == 1) {
      return find_alone(x, chosen, at, drawn);
    } else {
      const auto found = Integers::find(sums_of_waves<Exchange::waves>([&](int w) { return exchange.of(w); }), at);
      const int owner = B::uniform(found.index);
      if constexpr (P.blocks > 1) {
        if (owner / Exchange::block_waves != B::cluster_rank()) return false;
        B::barrier();  // access() requires it: mailboxes order no other memory
      }
      return find_together(
          exchange, chosen, x.accesses(), [&](int i) { return x.access(owner, i); }, found.rest, drawn);
    }
  }
  /// Searches the accesses of the owner's segment with a few waves of the block, which know the owner. All others wait.
  TILEWAVE_DEVICE static bool find_by_few(const Segment& x, Exchange& exchange, const Chosen& chosen, int owner,
                                          std::uint64_t at, Drawn& drawn) {
    const int wave = B::wave_id();
    bool found = false, passed = false;
    TILEWAVE_ROLL
    for (int first = 0; first < x.accesses(); first += few_waves) {
      typename Segment::Access access;
      Vec<std::uint32_t, unit> items;
      std::uint64_t own = 0;
      if (wave < few_waves) {
        access = x.access(owner, first + wave);  // accesses beyond the segment come only after `at` was passed
        items = chosen.weights(access.values);
        TILEWAVE_UNROLL
        for (int e = 0; e < unit; ++e) own += items[e];
        own = Integers::sum(own);
      }
      exchange.publish_block({{0, 0, static_cast<std::uint32_t>(own), static_cast<std::uint32_t>(own >> 32)}});
      if (wave >= few_waves || passed) continue;
      int taker = few_waves;
      TILEWAVE_UNROLL
      for (int w = 0; w < few_waves; ++w) {
        const std::uint64_t of_wave = likely_of(exchange.of_block(w));
        if (taker == few_waves && at < of_wave) taker = w;
        if (taker == few_waves) at -= of_wave;
      }
      passed = taker < few_waves;
      if (taker == wave) found = find_within(access.values, access.column, items, at, drawn);
    }
    return found;
  }
  TILEWAVE_DEVICE static std::uint64_t likely_of(const Words& words) {
    return std::uint64_t{words[3]} << 32 | words[2];
  }

 private:
  /// Returns `likely` of each of `waves` waves, as WaveIntegers::find takes them; words(w) are the words of wave w.
  template <int waves, class F>
  TILEWAVE_DEVICE static auto sums_of_waves(const F& words) {
    constexpr int lane_waves = ceil_div(waves, B::facts.wave_lanes);
    Vec<std::uint64_t, lane_waves> sums;
    TILEWAVE_UNROLL
    for (int i = 0; i < lane_waves; ++i) {
      const int w = B::lane_id() * lane_waves + i;
      sums[i] = w < waves ? likely_of(words(w)) : 0;
    }
    return sums;
  }

  /// Searches `accesses` accesses, access_of(i), of which the waves of a block take one each.
  template <class AccessOf>
  TILEWAVE_DEVICE static bool find_together(Exchange& exchange, const Chosen& chosen, int accesses,
                                            const AccessOf& access_of, std::uint64_t at, Drawn& drawn) {
    constexpr int takers = Exchange::block_waves;
    for (int first = 0; first < accesses; first += takers) {
      const int own_access = first + B::wave_id();
      const typename Segment::Access access = access_of(min_of(own_access, accesses - 1));
      Vec<std::uint32_t, unit> items = chosen.weights(access.values);
      std::uint64_t own = 0;
      TILEWAVE_UNROLL
      for (int e = 0; e < unit; ++e) own += items[e] = own_access < accesses ? items[e] : 0u;
      own = Integers::sum(own);
      exchange.publish_block({{0, 0, static_cast<std::uint32_t>(own), static_cast<std::uint32_t>(own >> 32)}});
      const auto sums = sums_of_waves<takers>([&](int w) { return exchange.of_block(w); });
      const auto found = Integers::find(sums, at);
      const int taker = B::uniform(found.index);
      if (taker >= 0) {
        return taker == B::wave_id() && find_within(access.values, access.column, items, found.rest, drawn);
      }
      std::uint64_t all = 0;  // the sum of what was searched
      TILEWAVE_UNROLL
      for (int i = 0; i < decltype(sums)::size; ++i) all += sums[i];
      at -= Integers::sum(all);
    }
    return false;
  }
  TILEWAVE_DEVICE static bool find_alone(Segment& x, const Chosen& chosen, std::uint64_t at, Drawn& drawn) {
    Packed logits{};  // the chunk that `at` falls into
    int first = -1;
    x.each([&](const Packed& packed, int column) {
      if (first >= 0) return;
      std::uint64_t own = 0;
      if (MaxOfPacked<B, S.x, unit>::of(packed) >= chosen.from) {
        const Vec<std::uint32_t, unit> items = chosen.weights(widen<B, S.x, unit>(packed));
        TILEWAVE_UNROLL
        for (int e = 0; e < unit; ++e) own += items[e];
      }
      const std::uint64_t chunk = Integers::sum(own);
      if (at < chunk) {
        logits = packed;
        first = column;
      } else {
        at -= chunk;
      }
    });
    const Vec<float, unit> v = widen<B, S.x, unit>(logits);
    return find_within(v, first, chosen.weights(v), at, drawn);
  }
  /// Searches a wave's logits, which start at `column` in each lane; `items` are their weights. Returns true in the
  /// lane that has the token.
  TILEWAVE_DEVICE static bool find_within(const Vec<float, unit>& logits, std::int32_t column,
                                          const Vec<std::uint32_t, unit>& items, std::uint64_t at, Drawn& drawn) {
    const auto found = Integers::find(items, at);
    const int e = found.index % unit;
    drawn = {column + e, logits[0]};
    TILEWAVE_UNROLL
    for (int i = 1; i < unit; ++i) drawn.logit = i == e ? logits[i] : drawn.logit;
    return found.index / unit == B::lane_id();
  }
};

}  // namespace tilewave
