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

#include "tilewave/ops/sampling/search.hpp"
#include "tilewave/ops/sampling/select.hpp"

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
  using Search = SamplingSearch<B, S, P>;
  using Exchange = typename Search::Exchange;
  using Segment = typename Search::Segment;
  using Drawn = typename Search::Drawn;
  using Integers = WaveIntegers<B>;
  using Order = LogitOrder<DType::f32>;
  static constexpr int block_threads = P.block_threads(), waves_per_simd = P.waves_per_simd;
  static constexpr int unit = Segment::unit, lanes = B::facts.wave_lanes;
  using Packed = typename Segment::Packed;
  using Words = typename Exchange::Words;
  using Sums = typename Search::Sums;
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
    find_bounds(a, row, x, exchange, shared, values.top_k, largest, from);
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
      store_sums(a, at, part, chosen, counted, apart);
      return;
    }

    RowSums sums;
    const auto finish = [&](const Drawn& drawn) TILEWAVE_INLINE_LAMBDA {
      const float log_sum = B::log2(static_cast<float>(sums.all) * 0x1p-31f);
      store(a, row, drawn.token, B::subtract(counted.weigher.exponent(drawn.logit), log_sum) * ln_2);
    };
    Drawn drawn{};
    // Attempt -1 only counts the sum for log probabilities, where attempt 0 does not. The weight above a drawn token
    // decides whether it is rejected, and the next token is drawn from it.
    int attempt = apart ? -1 : 0;
    if constexpr (draws) {
      const auto parts = [&] { return Segment(logits, a.columns, shared, waves_of_row(a), 0); };
      const bool found = draw_weighed(a, row, values, parts, exchange, chosen, sums, drawn);
      if (values.filters_mass) publish(exchange, found, drawn, &sums.enough);
      if (!values.filters_mass || drawn.logit == largest) {
        if (values.filters_mass ? leader : found) finish(drawn);
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
      const Pair left = totals(exchange, Sums::of(x, weighed));
      if (counting) {
        sums.all = left.all;
        continue;
      }
      if (attempt > 0 && left.all < sums.enough) break;
      if (attempt == 0) sums.enough = needed(left.all, values.top_p);
      if (attempt == 0 && !apart) sums.all = left.all;
      const std::uint64_t at = values.greedy ? 0 : multiply_high(random, left.likely);
      const bool found = Search::find(x, exchange, chosen, at, drawn);
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

  /// Finds the largest logit and the least that may be drawn, or loads what the first launch found. `from` is -inf
  /// before, and stays so without top_k.
  TILEWAVE_DEVICE static void find_bounds(const Args& a, int row, Segment& x, Exchange& exchange, Shared& shared,
                                          std::int32_t top_k, float& largest, float& from) {
    if constexpr (draws) {
      const auto found = B::load(reinterpret_cast<const Vec<float, 2>*>(a.found + row));
      largest = found[0];
      from = found[1];
    } else {
      const Range range = range_of(x, exchange, top_k);
      largest = range.largest;
      if (top_k > 0 && largest != minus_infinity)
        from = Select<B, S.x, P>::kth(shared.counters, x, exchange, largest, range.reached, top_k);
    }
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
        sums.likely += Search::likely_of(words);
      });
      return {Integers::sum(sums.all), Integers::sum(sums.likely)};
    }
  }
  /// Stores the sums of a wave's part of a row for the second launch. `apart`: log probabilities have their own sums.
  TILEWAVE_DEVICE static void store_sums(const Args& a, const RowPart& at, Segment& part, const Chosen& chosen,
                                         const Chosen& counted, bool apart) {
    const Pair own = Sums::of(part, chosen);
    const std::uint64_t all = apart ? Sums::of(part, counted).all : own.all;
    if (B::lane_id() == 0) {
      auto* const to = reinterpret_cast<Vec<std::uint64_t, 2>*>(a.weighed + std::int64_t{at.row} * waves_of_row(a) +
                                                                at.part * Exchange::waves + Exchange::wave());
      B::store(to, {{all, own.all}});
      B::store(to + 1, {{own.likely, 0}});
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
  /// The sums that later attempts need: the one that log probabilities are relative to, and what weight of the tokens
  /// above a drawn one rejects it.
  struct RowSums {
    std::uint64_t all = 0, enough = 0;
  };
  /// Draws by the sums that the first launch left. A few waves do so: all would do the same work, and slow each other
  /// down.
  template <class Parts>
  TILEWAVE_DEVICE static bool draw_weighed(const Args& a, int row, const SamplingValues<B>& values, const Parts& parts,
                                           Exchange& exchange, const Chosen& chosen, RowSums& sums, Drawn& drawn) {
    std::uint64_t at = 0;
    int owner = 0;
    if (B::wave_id() < Search::few_waves) {
      Weighed weighed;
      const std::uint64_t random = drawn_bits(values.seed, values.offset, values.row, 0);
      const Pair left = weighed.load(a, row, sums.all);
      sums.enough = needed(left.all, values.top_p);
      const auto found = Integers::find(weighed.likely, values.greedy ? 0 : multiply_high(random, left.likely));
      owner = B::uniform(found.index);
      at = found.rest;
    }
    return Search::find_by_few(parts(), exchange, chosen, owner, at, drawn);
  }
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
};

}  // namespace tilewave
