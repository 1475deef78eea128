// SPDX-License-Identifier: MIT
// Sampling over rows. Grid: one block, or one cluster of P.blocks, per row. Each wave has one segment of it, in
// registers or shared memory (P.held), or reads it again in every pass. The passes find the largest logit; with top_k
// its threshold (select.hpp); and sums of weights (weight.hpp). A random number then falls into one wave's part of the
// running sum, and all waves look through the segment of that wave. top_p takes no threshold: a token is rejected if
// the tokens above it already add up to p, and the next is drawn from those, as FlashInfer does. That takes 1 / p draws
// on average, or fewer. The largest logit alone is a draw of 0 among its equals. In two launches several blocks weigh a
// row, see SamplingLaunch. Shared memory: the row, or nothing; four times 16 bytes a wave; 4 KiB of counters, and 2 KiB
// more for each block of a cluster. Bound: memory, or instructions, about 14 a logit.
#pragma once

#include "tilewave/ops/sampling/policy.hpp"
#include "tilewave/ops/sampling/select.hpp"
#include "tilewave/ops/sampling/sums.hpp"

namespace tilewave {

inline constexpr int sampling_dies = 8;   // XCDs of a chip
inline constexpr int most_part_bits = 2;  // at most 2 to this power blocks share a row

/// The launches over a row. `whole` does everything in one. `weigh` runs several blocks for each row: all of them find
/// the largest logit and the threshold of top_k, and each weighs a part. `draw` then runs one block a row that draws.
enum class SamplingLaunch : int { whole, weigh, draw };

template <class B, SamplingSpec S, SamplingPolicy P, SamplingLaunch L = SamplingLaunch::whole>
struct Sampling {
  static constexpr bool weighs = L == SamplingLaunch::weigh, draws = L == SamplingLaunch::draw;
  static_assert(L == SamplingLaunch::whole || (!P.held && P.blocks == 1),
                "a row that two launches share is read again, by blocks without clusters");
  using Room = B;
  using Args = SamplingArgs;
  using Exchange = RowExchange<B, P, 2>;
  using Segment = RowSegment<B, S.x, P, Exchange>;
  using Integers = WaveIntegers<B>;
  using Order = LogitOrder<DType::f32>;
  static constexpr int block_threads = P.block_threads(), waves_per_simd = P.waves_per_simd;
  static constexpr int unit = Segment::unit, lanes = B::facts.wave_lanes;
  using Packed = typename Segment::Packed;
  using Words = typename Exchange::Words;
  using Sums = SamplingSums<B, S.x, unit>;
  using Chosen = typename Sums::Chosen;
  using Pair = typename Sums::Pair;
  struct Shared : Exchange::Shared, Segment::Shared {
    SelectCounters<P> counters;
  };

  TILEWAVE_DEVICE static void run(const Args& a, Shared& shared) {
    const RowPart at(a);
    const int row = at.row;
    if (weighs && row >= a.rows) return;
    Exchange exchange(shared);
    const auto* const logits = static_cast<const Storage<S.x>*>(a.x) + row * a.row_stride;
    Segment x(logits, a.columns, shared);
    const bool leader = B::block_lane_id() == 0 && (P.blocks == 1 || B::cluster_rank() == 0);
    const SamplingValues<B> values(a, row);
    x.arrive();

    float largest, from = minus_infinity;
    if constexpr (draws) {
      const auto found = B::load(reinterpret_cast<const Vec<float, 2>*>(a.found + row));
      largest = found[0];
      from = found[1];
    } else {
      const Range range = range_of(x, exchange, values.top_k);
      largest = range.largest;
      if (values.top_k > 0 && largest != minus_infinity) {
        from = Select<B, S.x, P>::kth(shared.counters, x, exchange, largest, range.reached, values.top_k);
      }
    }
    if constexpr (weighs) {
      if (leader && at.part == 0) B::store(reinterpret_cast<Vec<float, 2>*>(a.found + row), {{largest, from}});
    }
    if (largest == minus_infinity) {
      if (leader && !weighs) store(a, row, -1, minus_infinity);
      return;
    }
    Chosen chosen = Sums::drawn(values, largest, from);
    const Chosen counted = Sums::counted(a, values, largest);
    // Log probabilities are relative to the sum that tokens are drawn from, or to a sum of their own.
    const bool apart = Sums::counts_apart(a, chosen, counted);
    if constexpr (weighs) {
      Segment part(logits, a.columns, shared, waves_of_row(a), at.part * Exchange::waves + Exchange::wave());
      const Pair own = Sums::of(part, chosen);
      const std::uint64_t all = apart ? Sums::of(part, counted).all : own.all;
      if (B::lane_id() == 0) {
        auto* const to = reinterpret_cast<Vec<std::uint64_t, 2>*>(a.weighed + std::int64_t{row} * waves_of_row(a) +
                                                                  at.part * Exchange::waves + Exchange::wave());
        B::store(to, {{all, own.all}});
        B::store(to + 1, {{own.likely, 0}});
      }
      return;
    }

    std::uint64_t all = 0, enough = 0;
    const auto finish = [&](const Drawn& drawn) TILEWAVE_INLINE_LAMBDA {
      const float log_sum = B::log2(static_cast<float>(all) * 0x1p-31f);
      store(a, row, drawn.token, B::subtract(counted.weigher.exponent(drawn.logit), log_sum) * ln_2);
    };
    Drawn drawn{};
    // Attempt -1 only counts the sum for log probabilities, where attempt 0 does not. The weight above a drawn token
    // decides whether it is rejected, and the next token is drawn from it.
    int attempt = apart ? -1 : 0;
    if constexpr (draws) {
      // One wave of each SIMD does attempt 0: all would do the same work, and slow each other down.
      bool found = false;
      std::uint64_t at = 0;
      int owner = 0;
      if (B::wave_id() < drawing_waves) {
        Weighed weighed;
        const std::uint64_t random = drawn_bits(values.seed, values.offset, values.row, 0);
        const Pair sums = weighed.load(a, row, all);
        enough = needed(sums.all, values.top_p);
        const auto found = Integers::find(weighed.likely, values.greedy ? 0 : multiply_high(random, sums.likely));
        owner = B::uniform(found.index);
        at = found.rest;
      }
      const Segment parts(logits, a.columns, shared, waves_of_row(a), 0);
      found = draw_by_few(parts, exchange, chosen, owner, at, drawn);
      if (!values.filters_mass) {
        if (found) finish(drawn);
        return;
      }
      publish(exchange, found, drawn, &enough);
      if (drawn.logit == largest) {
        if (leader) finish(drawn);
        return;
      }
      chosen.from = next_above(drawn.logit);
      attempt = 1;
    }
    for (;; ++attempt) {
      const bool counting = attempt < 0;
      const std::uint64_t random = drawn_bits(values.seed, values.offset, values.row, attempt);
      const Chosen weighed{Weigher<B>::either(counting, counted.weigher, chosen.weigher),
                           counting ? minus_infinity : chosen.from, counting ? 0 : chosen.least};
      const Pair sums = totals(exchange, Sums::of(x, weighed));
      if (counting) {
        all = sums.all;
        continue;
      }
      if (attempt > 0 && sums.all < enough) break;
      if (attempt == 0) enough = needed(sums.all, values.top_p);
      if (attempt == 0 && !apart) all = sums.all;
      const std::uint64_t at = values.greedy ? 0 : multiply_high(random, sums.likely);
      const bool found = draw(x, exchange, chosen, at, drawn);
      if (!values.filters_mass) {
        if (found) finish(drawn);
        return;
      }
      publish(exchange, found, drawn);
      if (drawn.logit == largest) break;
      chosen.from = next_above(drawn.logit);
    }
    if (leader) finish(drawn);
  }

 private:
  static constexpr int drawing_waves = 4;

  TILEWAVE_DEVICE static int waves_of_row(const Args& a) { return Exchange::waves << a.part_bits; }
  /// The row and part of a block. Ids go round robin over the XCDs, each of which has its own L2, so the blocks of a
  /// row get ids of one XCD.
  struct RowPart {
    int row = B::block_id() / P.blocks, part = 0;
    TILEWAVE_DEVICE explicit RowPart([[maybe_unused]] const Args& a) {
      if constexpr (weighs) {
        const int of_die = B::block_id() / sampling_dies;
        part = of_die & ((1 << a.part_bits) - 1);
        row = (of_die >> a.part_bits) * sampling_dies + B::block_id() % sampling_dies;
      }
    }
  };

  TILEWAVE_DEVICE static void store(const Args& a, int row, std::int32_t token, float logprob) {
    B::store(a.tokens + row, token);
    if (a.logprobs != nullptr) B::store(a.logprobs + row, logprob);
  }

  struct Range {
    float largest;          // largest of the row; -inf where no number is above it
    std::uint32_t reached;  // see Select
  };
  TILEWAVE_DEVICE static Range range_of(Segment& x, Exchange& exchange, std::int32_t top_k) {
    using Keys = LogitOrder<S.x>;
    MaxOfPacked<B, S.x, unit> own;
    x.each([&](const Packed& packed, int) { own.add(packed); });
    using Selection = Select<B, S.x, P>;
    const std::uint32_t key = Keys::key(own.value());
    std::uint32_t highest, reached = 0;
    if constexpr (Exchange::waves > 1) {
      exchange.publish(Selection::of_wave(key, top_k));
      highest = 0;
      exchange.each([&](const Words& words) { highest = max_of(highest, words[0]); });
      highest = B::highest(highest);
      const auto each = [&](const auto& f) TILEWAVE_INLINE_LAMBDA { exchange.each(f); };
      if (top_k > 0) reached = Selection::reached(each, 4 * Exchange::waves, highest, top_k);
    } else {
      highest = B::highest(key);
      const auto each = [&](const auto& f) TILEWAVE_INLINE_LAMBDA { f(Vec<std::uint32_t, 1>{{key}}); };
      if (top_k > 0) reached = Selection::reached(each, lanes, highest, top_k);
    }
    return {Keys::logit(highest), reached};
  }

  /// Returns the sums of the row, from those of its waves. The exchange has the waves' sums afterwards.
  TILEWAVE_DEVICE static Pair totals(Exchange& exchange, const Pair& own) {
    const auto low = [](std::uint64_t n) { return static_cast<std::uint32_t>(n); };
    exchange.publish({{low(own.all), low(own.all >> 32), low(own.likely), low(own.likely >> 32)}});
    if constexpr (Exchange::waves == 1) {
      return own;
    } else {
      Pair sums;
      exchange.each([&](const Words& words) {
        sums.all += std::uint64_t{words[1]} << 32 | words[0];
        sums.likely += likely_of(words);
      });
      return {Integers::sum(sums.all), Integers::sum(sums.likely)};
    }
  }
  TILEWAVE_DEVICE static std::uint64_t likely_of(const Words& words) {
    return std::uint64_t{words[3]} << 32 | words[2];
  }

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

  struct Drawn {
    std::int32_t token;
    float logit;
  };
  /// Finds the token whose weight contains `at`, counted in the order of tokens. The lane that returns true knows it.
  TILEWAVE_DEVICE static bool draw(Segment& x, Exchange& exchange, const Chosen& chosen, std::uint64_t at,
                                   Drawn& drawn) {
    if constexpr (Exchange::waves == 1) {
      return draw_alone(x, chosen, at, drawn);
    } else {
      const auto found = Integers::find(sums_of_waves<Exchange::waves>([&](int w) { return exchange.of(w); }), at);
      const int owner = B::uniform(found.index);
      if constexpr (P.blocks > 1) {
        if (owner / Exchange::block_waves != B::cluster_rank()) return false;
        B::barrier();  // access() requires it: mailboxes order no other memory
      }
      return draw_together(
          exchange, chosen, x.accesses(), [&](int i) { return x.access(owner, i); }, found.rest, drawn);
    }
  }
  /// The sums that the blocks of the first launch left. Lane l has those of the waves from lane_waves l on.
  struct Weighed {
    static constexpr int lane_waves = ceil_div(Exchange::waves << most_part_bits, lanes);
    Vec<std::uint64_t, lane_waves> likely;

    TILEWAVE_DEVICE Pair load(const Args& a, int row, std::uint64_t& of_logprobs) {
      const int waves = waves_of_row(a);
      const auto* const from = reinterpret_cast<const Vec<std::uint64_t, 2>*>(a.weighed + std::int64_t{row} * waves);
      Pair sums;
      std::uint64_t counted = 0;
      TILEWAVE_UNROLL
      for (int i = 0; i < lane_waves; ++i) {
        const int wave = B::lane_id() * lane_waves + i;
        Vec<std::uint64_t, 2> first{}, second{};
        if (wave < waves) {
          first = B::load(from + 2 * wave);
          second = B::load(from + 2 * wave + 1);
        }
        counted += first[0];
        sums.all += first[1];
        sums.likely += likely[i] = second[0];
      }
      of_logprobs = Integers::sum(counted);
      return {Integers::sum(sums.all), Integers::sum(sums.likely)};
    }
  };
  /// Publishes the drawn token from the lane that found it to all of the row, and a number that its wave has.
  TILEWAVE_DEVICE static void publish(Exchange& exchange, bool found, Drawn& drawn, std::uint64_t* number = nullptr) {
    std::uint32_t token = B::highest(found ? static_cast<std::uint32_t>(drawn.token) + 1 : 0u);
    std::uint32_t key = B::highest(found ? Order::key(drawn.logit) : 0u);
    if constexpr (Exchange::waves > 1) {
      const std::uint64_t published = number != nullptr && token > 0 ? *number : 0;
      exchange.publish(
          {{token, key, static_cast<std::uint32_t>(published), static_cast<std::uint32_t>(published >> 32)}});
      Words most{};
      exchange.each([&](const Words& words) {
        TILEWAVE_UNROLL
        for (int i = 0; i < 4; ++i) most[i] = max_of(most[i], words[i]);
      });
      token = B::highest(most[0]);
      key = B::highest(most[1]);
      if (number != nullptr) *number = std::uint64_t{B::highest(most[3])} << 32 | B::highest(most[2]);
    }
    drawn = {static_cast<std::int32_t>(token) - 1, Order::logit(key)};
  }

  /// Searches `accesses` accesses, access_of(i), of which the waves of a block take one each.
  template <class AccessOf>
  TILEWAVE_DEVICE static bool draw_together(Exchange& exchange, const Chosen& chosen, int accesses,
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
        return taker == B::wave_id() && within(access.values, access.column, items, found.rest, drawn);
      }
      std::uint64_t all = 0;  // the sum of what was searched
      TILEWAVE_UNROLL
      for (int i = 0; i < decltype(sums)::size; ++i) all += sums[i];
      at -= Integers::sum(all);
    }
    return false;
  }
  /// Searches the accesses of the owner's segment with a few waves of the block, which know the owner. All others wait.
  TILEWAVE_DEVICE static bool draw_by_few(const Segment& x, Exchange& exchange, const Chosen& chosen, int owner,
                                          std::uint64_t at, Drawn& drawn) {
    const int wave = B::wave_id();
    bool found = false, passed = false;
    TILEWAVE_ROLL
    for (int first = 0; first < x.accesses(); first += drawing_waves) {
      typename Segment::Access access;
      Vec<std::uint32_t, unit> items;
      std::uint64_t own = 0;
      if (wave < drawing_waves) {
        access = x.access(owner, first + wave);  // accesses beyond the segment come only after `at` was passed
        items = chosen.weights(access.values);
        TILEWAVE_UNROLL
        for (int e = 0; e < unit; ++e) own += items[e];
        own = Integers::sum(own);
      }
      exchange.publish_block({{0, 0, static_cast<std::uint32_t>(own), static_cast<std::uint32_t>(own >> 32)}});
      if (wave >= drawing_waves || passed) continue;
      int taker = drawing_waves;
      TILEWAVE_UNROLL
      for (int w = 0; w < drawing_waves; ++w) {
        const std::uint64_t of_wave = likely_of(exchange.of_block(w));
        if (taker == drawing_waves && at < of_wave) taker = w;
        if (taker == drawing_waves) at -= of_wave;
      }
      passed = taker < drawing_waves;
      if (taker == wave) found = within(access.values, access.column, items, at, drawn);
    }
    return found;
  }
  TILEWAVE_DEVICE static bool draw_alone(Segment& x, const Chosen& chosen, std::uint64_t at, Drawn& drawn) {
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
    return within(v, first, chosen.weights(v), at, drawn);
  }
  /// Searches a wave's logits, which start at `column` in each lane; `items` are their weights. Returns true in the
  /// lane that has the token.
  TILEWAVE_DEVICE static bool within(const Vec<float, unit>& logits, std::int32_t column,
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
