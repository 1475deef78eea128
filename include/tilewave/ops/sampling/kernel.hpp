// SPDX-License-Identifier: MIT
// Sampling over rows. Grid: one block, or cluster of P.blocks, per row; each wave has one stretch of it, in registers
// or shared memory (P.held), else read again by every pass. Passes: the largest logit; with top_k its threshold
// (select.hpp); sums of weights (weight.hpp); then all waves look through the stretch of the one whose part of the
// running sum a random number falls into. top_p takes no threshold: a token is rejected if what is above it already
// adds up to p, and the next is drawn from that, as FlashInfer does; on average 1 / p draws, or fewer. The largest
// logit alone is a draw of 0 among its equals. Shared memory: the row, or nothing; 16 bytes a wave, four times; 4 KiB
// of counters, 2 more for each block of a cluster. Bound: memory, or instructions, about 14 a logit.
#pragma once

#include "tilewave/ops/sampling/policy.hpp"
#include "tilewave/ops/sampling/problem.hpp"
#include "tilewave/ops/sampling/select.hpp"

namespace tilewave {

struct SamplingArgs {
  const void* x;
  std::int32_t* tokens;
  float* logprobs;
  RowValue<float> temperature, top_p, min_p;
  RowValue<std::int32_t> top_k;
  RowValue<std::uint64_t> seed, offset;
  std::int64_t row_stride;
  std::int32_t rows, columns;
  bool raw_logprobs;
};

/// What a row is drawn by.
template <class B>
struct SamplingValues {
  float temperature, top_p, min_p;
  std::int32_t top_k;
  std::uint64_t seed, offset;
  std::uint32_t row;  // of the draw's counter
  bool greedy, filters_mass;

  TILEWAVE_DEVICE SamplingValues(const SamplingArgs& a, int of_row)
      : temperature(value_of(a.temperature, of_row)),
        top_p(value_of(a.top_p, of_row)),
        min_p(value_of(a.min_p, of_row)),
        top_k(value_of(a.top_k, of_row)),
        seed(value_of(a.seed, of_row)),
        offset(value_of(a.offset, of_row)),
        row(a.seed.of_each_row() ? 0u : of_row) {
    greedy = !(temperature >= 1e-5f);
    filters_mass = !greedy && top_p < 1.0f;
    if (greedy || top_k <= 0 || top_k >= a.columns) top_k = 0;
  }
  /// Powers of two of a logit. Positive, whatever the temperature.
  TILEWAVE_DEVICE float scale() const {
    const float scale = log2_e / temperature;
    return greedy ? log2_e : scale > 1e-30f ? scale : 1e-30f;
  }

 private:
  template <class T>
  TILEWAVE_DEVICE static T value_of(const RowValue<T>& v, int row) {
    return v.data == nullptr ? v.value : B::load(v.data + (v.shared ? 0 : row));
  }
};

template <class B, SamplingSpec S, SamplingPolicy P>
struct Sampling {
  using Room = B;
  using Args = SamplingArgs;
  using Exchange = RowExchange<B, P, 2>;
  using Stretch = RowStretch<B, S.x, P, Exchange>;
  using Numbers = WholeNumbers<B>;
  using Order = LogitOrder<DType::f32>;
  static constexpr int block_threads = P.block_threads(), waves_per_simd = P.waves_per_simd;
  static constexpr int unit = Stretch::unit;
  using Packed = typename Stretch::Packed;
  using Words = typename Exchange::Words;
  struct Shared : Exchange::Shared, Stretch::Shared {
    SelectCounters<P> counters;
  };

  TILEWAVE_DEVICE static void run(const Args& a, Shared& shared) {
    const int row = B::block_id() / P.blocks;
    Exchange exchange(shared);
    Stretch x(static_cast<const Storage<S.x>*>(a.x) + row * a.row_stride, a.columns, shared);
    const bool leader = B::block_lane_id() == 0 && (P.blocks == 1 || B::cluster_rank() == 0);
    const SamplingValues<B> values(a, row);
    const float scale = values.scale();
    x.arrive();

    const Range range = range_of(x, exchange, values.top_k);
    if (range.largest == minus_infinity) {
      if (leader) store(a, row, -1, minus_infinity);
      return;
    }
    const Weigher<B> weigher(range.largest, scale);
    Chosen chosen{weigher, minus_infinity, least_weight(weigher.weight(range.largest), values.min_p)};
    if (values.greedy) chosen.from = range.largest;
    if (values.top_k > 0) {
      chosen.from = Select<B, S.x, P>::kth(shared.counters, x, exchange, range.largest, range.reached, values.top_k);
    }
    // What log probabilities are relative to is the sum that tokens are drawn from, or one of its own.
    const Weigher<B> of_logprobs(range.largest, a.raw_logprobs || values.greedy ? log2_e : scale);
    const bool counts_all = chosen.from == minus_infinity && of_logprobs.factor == scale;
    std::uint64_t all = 0, enough = 0;
    const auto finish = [&](const Drawn& drawn) TILEWAVE_INLINE_LAMBDA {
      const float log_sum = B::log2(static_cast<float>(all) * 0x1p-31f);
      store(a, row, drawn.token, B::subtract(of_logprobs.exponent(drawn.logit), log_sum) * ln_2);
    };
    Drawn drawn{};
    // Turn -1 only counts what log probabilities are relative to, where turn 0 does not. What is above a token that was
    // drawn is both what it is judged by and what the next is drawn from.
    for (int turn = a.logprobs == nullptr || counts_all ? 0 : -1;; ++turn) {
      const bool counting = turn < 0;
      const std::uint64_t random = drawn_bits(values.seed, values.offset, values.row, turn);
      const Pair own = weights(x, counting ? Chosen{of_logprobs, minus_infinity, 0} : chosen);
      const Pair sums = totals(exchange, own);
      if (counting) {
        all = sums.all;
        continue;
      }
      if (turn > 0 && sums.all < enough) break;
      if (turn == 0) enough = needed(sums.all, values.top_p);
      if (turn == 0 && counts_all) all = sums.all;
      const std::uint64_t at = values.greedy ? 0 : multiply_high(random, sums.likely);
      if (draw(x, exchange, chosen, at, values.filters_mass, drawn) && !values.filters_mass) finish(drawn);
      if (!values.filters_mass) return;
      if (drawn.logit == range.largest) break;
      chosen.from = next_above(drawn.logit);
    }
    if (leader) finish(drawn);
  }

 private:
  static constexpr float minus_infinity = -__builtin_inff();

  TILEWAVE_DEVICE static void store(const Args& a, int row, std::int32_t token, float logprob) {
    B::store(a.tokens + row, token);
    if (a.logprobs != nullptr) B::store(a.logprobs + row, logprob);
  }

  struct Range {
    float largest;          // of the row; -inf where it has no number above
    std::uint32_t reached;  // see Select
  };
  TILEWAVE_DEVICE static Range range_of(Stretch& x, Exchange& exchange, std::int32_t top_k) {
    Largest<B, S.x, unit> own;
    x.each([&](const Packed& packed, int) { own.add(packed); });
    using Keys = LogitOrder<S.x>;
    const std::uint32_t key = Keys::key(own.value());
    std::uint32_t highest = B::highest(key), reached = 0;
    if (top_k > 0) reached = Select<B, S.x, P>::reached(key, top_k, Exchange::waves);
    if constexpr (Exchange::waves > 1) {
      exchange.tell({{highest, reached, 0, 0}});
      highest = 0;
      std::uint32_t missed = 0;
      exchange.each([&](const Words& words) {
        highest = max_of(highest, words[0]);
        missed = max_of(missed, ~words[1]);
      });
      highest = B::highest(highest);
      if (top_k > 0) reached = ~B::highest(missed);
    }
    return {Keys::logit(highest), reached};
  }

  /// What may be drawn: logits from `from` on that weigh no less than `least`.
  struct Chosen {
    Weigher<B> weigher;
    float from;
    std::uint32_t least;

    TILEWAVE_DEVICE std::uint32_t weight(float x) const {
      const std::uint32_t weight = weigher.weight(x);
      return x >= from && weight >= least ? weight : 0u;
    }
  };

  /// Sums of weights: of all logits from chosen.from on, and of those that min_p leaves.
  struct Pair {
    std::uint64_t all = 0, likely = 0;
  };
  TILEWAVE_DEVICE static Pair weights(Stretch& x, const Chosen& chosen) {
    Pair sums;
    if (chosen.from == minus_infinity && chosen.least == 0 && chosen.weigher.plain) {
      const PairFloor floor(chosen.weigher.lowest);
      x.each([&](const Packed& packed, int) {
        const Vec<float, unit> v = floor.raised(packed);
        TILEWAVE_UNROLL
        for (int e = 0; e < unit; ++e) sums.all += chosen.weigher.weight_of(v[e]);
      });
    } else {
      x.each([&](const Packed& packed, int) {
        if (!(Largest<B, S.x, unit>::of(packed) >= chosen.from)) return;  // true of most, where filters leave few
        const Vec<float, unit> v = widen<B, S.x, unit>(packed);
        Vec<std::uint32_t, unit> weight;
        TILEWAVE_UNROLL
        for (int e = 0; e < unit; ++e) {
          const std::uint32_t any = chosen.weigher.weight(v[e]);
          weight[e] = v[e] >= chosen.from ? any : 0u;
          sums.all += weight[e];
        }
        if (chosen.least == 0) return;
        TILEWAVE_UNROLL
        for (int e = 0; e < unit; ++e) sums.likely += weight[e] >= chosen.least ? weight[e] : 0u;
      });
    }
    sums.all = Numbers::sum(sums.all);
    return {sums.all, chosen.least == 0 ? sums.all : Numbers::sum(sums.likely)};
  }
  /// Raises logits to a floor, which may be a little lower: pairs of bf16 as they are, where a room does so.
  struct PairFloor {
    static constexpr bool pairs = PairBackend<B> && S.x == DType::bf16 && unit > 1;
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
        for (int w = 0; w < Packed::size; ++w) packed[w] = B::template larger_pair<S.x>(packed[w], pair);
      }
      Vec<float, unit> v = widen<B, S.x, unit>(packed);
      if constexpr (!pairs) {
        TILEWAVE_UNROLL
        for (int e = 0; e < unit; ++e) v[e] = Max{}(v[e], floor);
      }
      return v;
    }
  };

  /// Of the row, from those of its waves, which the exchange then has.
  TILEWAVE_DEVICE static Pair totals(Exchange& exchange, const Pair& own) {
    const auto low = [](std::uint64_t n) { return static_cast<std::uint32_t>(n); };
    exchange.tell({{low(own.all), low(own.all >> 32), low(own.likely), low(own.likely >> 32)}});
    if constexpr (Exchange::waves == 1) {
      return own;
    } else {
      Pair sums;
      exchange.each([&](const Words& words) {
        sums.all += std::uint64_t{words[1]} << 32 | words[0];
        sums.likely += likely_of(words);
      });
      return {Numbers::sum(sums.all), Numbers::sum(sums.likely)};
    }
  }
  TILEWAVE_DEVICE static std::uint64_t likely_of(const Words& words) {
    return std::uint64_t{words[3]} << 32 | words[2];
  }

  /// `likely` of each of `waves` waves, as WholeNumbers::find takes them: words(w) are those of wave w.
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
  /// The token in whose weight `at` falls, counted in the order of tokens. `drawn` is it in all lanes of the row if it
  /// is `told`, else in the one that returns true.
  TILEWAVE_DEVICE static bool draw(Stretch& x, Exchange& exchange, const Chosen& chosen, std::uint64_t at, bool told,
                                   Drawn& drawn) {
    if constexpr (Exchange::waves == 1) {
      const bool found = draw_alone(x, chosen, at, drawn);
      if (told) tell_lanes(found, drawn);
      return found;
    } else {
      const auto owner = Numbers::find(sums_of_waves<Exchange::waves>([&](int w) { return exchange.of(w); }), at);
      const bool found = draw_together(x, exchange, chosen, B::uniform(owner.index), owner.rest, drawn);
      if (told) {
        Vec<std::uint32_t, 2> best = known(found, drawn);
        exchange.tell({{best[0], best[1], 0, 0}});
        best = {{0, 0}};
        exchange.each([&](const Words& words) { best = {{max_of(best[0], words[0]), max_of(best[1], words[1])}}; });
        drawn = {static_cast<std::int32_t>(B::highest(best[0])) - 1, Order::logit(B::highest(best[1]))};
      }
      return found;
    }
  }
  /// The lane that found it tells its wave; 0 where none has.
  TILEWAVE_DEVICE static Vec<std::uint32_t, 2> known(bool found, const Drawn& drawn) {
    return {{B::highest(found ? static_cast<std::uint32_t>(drawn.token) + 1 : 0u),
             B::highest(found ? Order::key(drawn.logit) : 0u)}};
  }
  TILEWAVE_DEVICE static void tell_lanes(bool found, Drawn& drawn) {
    const Vec<std::uint32_t, 2> best = known(found, drawn);
    drawn = {static_cast<std::int32_t>(best[0]) - 1, Order::logit(best[1])};
  }

  /// The waves of the owner's block take a piece of its stretch each.
  TILEWAVE_DEVICE static bool draw_together(Stretch& x, Exchange& exchange, const Chosen& chosen, int owner,
                                            std::uint64_t at, Drawn& drawn) {
    constexpr int takers = Exchange::block_waves;
    if constexpr (P.blocks > 1) {
      if (owner / takers != B::cluster_rank()) return false;
      B::barrier();  // see piece_of; mailboxes order no other memory
    }
    for (int first = 0; first < x.pieces(); first += takers) {
      const typename Stretch::Piece piece = x.piece_of(owner, first + B::wave_id());
      Vec<std::uint32_t, unit> items;
      std::uint64_t own = 0;
      TILEWAVE_UNROLL
      for (int e = 0; e < unit; ++e) own += items[e] = chosen.weight(piece.values[e]);
      own = Numbers::sum(own);
      exchange.tell_block({{0, 0, static_cast<std::uint32_t>(own), static_cast<std::uint32_t>(own >> 32)}});
      const auto sums = sums_of_waves<takers>([&](int w) { return exchange.of_block(w); });
      const auto found = Numbers::find(sums, at);
      const int taker = B::uniform(found.index);
      if (taker >= 0) {
        return taker == B::wave_id() && within(piece.values, piece.column, items, found.rest, drawn);
      }
      std::uint64_t all = 0;  // in what comes next
      TILEWAVE_UNROLL
      for (int i = 0; i < decltype(sums)::size; ++i) all += sums[i];
      at -= Numbers::sum(all);
    }
    return false;
  }
  TILEWAVE_DEVICE static bool draw_alone(Stretch& x, const Chosen& chosen, std::uint64_t at, Drawn& drawn) {
    Packed logits{};  // of the chunk that `at` falls into
    int first = -1;
    x.each([&](const Packed& packed, int column) {
      if (first >= 0) return;
      std::uint64_t own = 0;
      if (Largest<B, S.x, unit>::of(packed) >= chosen.from) {
        const Vec<float, unit> v = widen<B, S.x, unit>(packed);
        TILEWAVE_UNROLL
        for (int e = 0; e < unit; ++e) own += chosen.weight(v[e]);
      }
      const std::uint64_t chunk = Numbers::sum(own);
      if (at < chunk) {
        logits = packed;
        first = column;
      } else {
        at -= chunk;
      }
    });
    const Vec<float, unit> v = widen<B, S.x, unit>(logits);
    Vec<std::uint32_t, unit> items;
    TILEWAVE_UNROLL
    for (int e = 0; e < unit; ++e) items[e] = chosen.weight(v[e]);
    return within(v, first, items, at, drawn);
  }
  /// Of a wave's logits, from `column` on in each lane; `items` are their weights. Whether this lane has it.
  TILEWAVE_DEVICE static bool within(const Vec<float, unit>& logits, std::int32_t column,
                                     const Vec<std::uint32_t, unit>& items, std::uint64_t at, Drawn& drawn) {
    const auto found = Numbers::find(items, at);
    const int e = found.index % unit;
    drawn = {column + e, logits[0]};
    TILEWAVE_UNROLL
    for (int i = 1; i < unit; ++i) drawn.logit = i == e ? logits[i] : drawn.logit;
    return found.index / unit == B::lane_id();
  }
};

}  // namespace tilewave
