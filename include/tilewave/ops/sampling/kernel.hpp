// SPDX-License-Identifier: MIT
// Sampling over rows. Grid: one block, or cluster of P.blocks, per row; each wave has one stretch of it, in registers
// or shared memory (P.held), else read again by every pass. Passes: the largest logit; with top_k its threshold
// (select.hpp); sums of weights (weight.hpp); then all waves look through the stretch of the one whose part of the
// running sum a random number falls into. top_p takes no threshold: a token is rejected if what is above it already
// adds up to p, and the next is drawn from that, as FlashInfer does; on average 1 / p draws, or fewer. The largest
// logit alone is a draw of 0 among its equals. Shared memory: the row, or nothing; 16 bytes a wave, twice; 4 KiB of
// counters. Bound: memory, or instructions, about 20 a logit.
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

template <class B, SamplingSpec S, SamplingPolicy P>
struct Sampling {
  using Room = B;
  using Args = SamplingArgs;
  using Stretch = RowStretch<B, S.x, P>;
  using Exchange = typename Stretch::Exchange;
  using Numbers = WholeNumbers<B>;
  static constexpr int block_threads = P.block_threads(), waves_per_simd = P.waves_per_simd;
  static constexpr int unit = Stretch::unit;
  struct Shared : Exchange::Shared, Stretch::Shared {
    SelectCounters<P> counters;
  };

  TILEWAVE_DEVICE static void run(const Args& a, Shared& shared) {
    const int row = B::block_id() / P.blocks;
    Exchange exchange(shared);
    Stretch x(static_cast<const Storage<S.x>*>(a.x) + row * a.row_stride, a.columns, shared);
    const bool leader = B::block_lane_id() == 0 && (P.blocks == 1 || B::cluster_rank() == 0);

    const Range range = range_of(x, exchange);
    if (range.largest == minus_infinity) {
      if (leader) store(a, row, -1, minus_infinity);
      return;
    }
    const float temperature = value_of(a.temperature, row);
    const bool greedy = !(temperature >= 1e-5f);
    const float scale = greedy ? log2_e : scale_of(temperature);
    const float top_p = value_of(a.top_p, row), min_p = value_of(a.min_p, row);
    const std::int32_t top_k = value_of(a.top_k, row);
    const std::uint32_t least = min_p > 0.0f ? static_cast<std::uint32_t>(min_of(min_p, 1.0f) * 0x1p31f) : 0u;

    std::uint32_t last = greedy ? 0u : last_key;  // of the keys that may be drawn
    if (!greedy && top_k > 0 && top_k < a.columns) {
      last = Select<B, P>::kth(shared.counters, x, range.largest, range.shared_by_lanes, top_k);
    }
    const bool filters_mass = !greedy && top_p < 1.0f;
    const float logprob_scale = a.raw_logprobs || greedy ? log2_e : scale;
    std::uint64_t all = 0, enough = 0;
    Drawn drawn{};
    // Turn -1 only counts what log probabilities are relative to, where turn 0 does not. What is above a token that was
    // drawn is both what it is judged by and what the next is drawn from.
    const bool counts_all = last == last_key && logprob_scale == scale;
    for (int turn = a.logprobs == nullptr || counts_all ? 0 : -1;; ++turn) {
      const bool counting = turn < 0;
      const Pair own = weights(x, range.largest, counting ? logprob_scale : scale, counting ? last_key : last,
                               counting ? 0u : least);
      const Pair sums = totals(exchange, own);
      if (counting) {
        all = sums.all;
        continue;
      }
      if (turn > 0 && sums.all < enough) break;
      if (turn == 0) enough = needed(sums.all, top_p);
      if (turn == 0 && counts_all) all = sums.all;
      const std::uint64_t at = greedy ? 0
                                      : drawn_below(sums.likely, value_of(a.seed, row), value_of(a.offset, row),
                                                    a.seed.of_each_row() ? 0u : row, turn);
      drawn = draw(x, exchange, Chosen{range.largest, scale, last, least}, at);
      if (!filters_mass || drawn.key == 0) break;
      last = drawn.key - 1;
    }
    if (leader) {
      const float below = difference_of(drawn.key) * (logprob_scale * ln_2);
      const float log_sum = B::log2(static_cast<float>(all) * 0x1p-31f) * ln_2;
      store(a, row, drawn.token, B::subtract(-below, log_sum));
    }
  }

 private:
  static constexpr float minus_infinity = -__builtin_inff();

  template <class T>
  TILEWAVE_DEVICE static T value_of(const RowValue<T>& v, int row) {
    return v.data == nullptr ? v.value : B::load(v.data + (v.shared ? 0 : row));
  }
  TILEWAVE_DEVICE static void store(const Args& a, int row, std::int32_t token, float logprob) {
    B::store(a.tokens + row, token);
    if (a.logprobs != nullptr) B::store(a.logprobs + row, logprob);
  }
  /// Positive, whatever the temperature: a difference of infinity stays one.
  TILEWAVE_DEVICE static float scale_of(float temperature) {
    const float scale = log2_e / temperature;
    return scale > 1e-30f ? scale : 1e-30f;
  }

  struct Range {
    float largest;          // of the row; -inf where it has no number above
    float shared_by_lanes;  // every lane has a logit of at least this
  };
  TILEWAVE_DEVICE static Range range_of(Stretch& x, Exchange& exchange) {
    float largest = minus_infinity;
    x.each([&](const Vec<float, unit>& v, int) { largest = Max{}(largest, fold(v, Max{})); });
    constexpr int lanes = B::facts.wave_lanes;
    const auto over_wave = [](float high, float low) {
      return Range{B::template reduce<lanes>(high, Max{}), -B::template reduce<lanes>(-low, Max{})};
    };
    Range range = over_wave(largest, largest);
    exchange.tell({{bits_of(range.largest), bits_of(range.shared_by_lanes), 0, 0}});
    exchange.each([&](const typename Exchange::Words& words) {
      range.largest = Max{}(range.largest, __builtin_bit_cast(float, words[0]));
      range.shared_by_lanes = -Max{}(-range.shared_by_lanes, -__builtin_bit_cast(float, words[1]));
    });
    return over_wave(range.largest, range.shared_by_lanes);
  }
  TILEWAVE_DEVICE static std::uint32_t bits_of(float x) { return __builtin_bit_cast(std::uint32_t, x); }

  /// Sums of weights: of all keys up to the last that may be drawn, and of those that min_p leaves.
  struct Pair {
    std::uint64_t all = 0, likely = 0;
  };
  TILEWAVE_DEVICE static Pair weights(Stretch& x, float largest, float scale, std::uint32_t last, std::uint32_t least) {
    Pair sums;
    x.each([&](const Vec<float, unit>& v, int) {
      if (key_of<B>(fold(v, Max{}), largest) > last) return;  // true of most, where filters leave few
      Vec<std::uint32_t, unit> weight;
      TILEWAVE_UNROLL
      for (int e = 0; e < unit; ++e) {
        const std::uint32_t key = key_of<B>(v[e], largest);
        weight[e] = key <= last ? weight_of<B>(key, scale) : 0u;
        sums.all += weight[e];
      }
      if (least == 0) return;
      TILEWAVE_UNROLL
      for (int e = 0; e < unit; ++e) sums.likely += weight[e] >= least ? weight[e] : 0u;
    });
    sums.all = Numbers::sum(sums.all);
    return {sums.all, least == 0 ? sums.all : Numbers::sum(sums.likely)};
  }
  /// Of the row, from those of its waves, which the exchange then has.
  TILEWAVE_DEVICE static Pair totals(Exchange& exchange, const Pair& own) {
    const auto low = [](std::uint64_t n) { return static_cast<std::uint32_t>(n); };
    exchange.tell({{low(own.all), low(own.all >> 32), low(own.likely), low(own.likely >> 32)}});
    if constexpr (Exchange::waves == 1) {
      return own;
    } else {
      Pair sums;
      exchange.each([&](const typename Exchange::Words& words) {
        sums.all += std::uint64_t{words[1]} << 32 | words[0];
        sums.likely += likely_of(words);
      });
      return {Numbers::sum(sums.all), Numbers::sum(sums.likely)};
    }
  }
  TILEWAVE_DEVICE static std::uint64_t likely_of(const typename Exchange::Words& words) {
    return std::uint64_t{words[3]} << 32 | words[2];
  }

  /// The same of each wave, as WholeNumbers::find takes them, and of all.
  static constexpr int lane_waves = ceil_div(Exchange::waves, B::facts.wave_lanes);
  TILEWAVE_DEVICE static Vec<std::uint64_t, lane_waves> sums_of_waves(const Exchange& exchange) {
    Vec<std::uint64_t, lane_waves> sums;
    TILEWAVE_UNROLL
    for (int i = 0; i < lane_waves; ++i) {
      const int w = B::lane_id() * lane_waves + i;
      sums[i] = w < Exchange::waves ? likely_of(exchange.of(w)) : 0;
    }
    return sums;
  }
  TILEWAVE_DEVICE static std::uint64_t all_of_waves(const Exchange& exchange) {
    std::uint64_t all = 0;
    exchange.each([&](const typename Exchange::Words& words) { all += likely_of(words); });
    return Numbers::sum(all);
  }

  struct Chosen {
    float largest, scale;
    std::uint32_t last, least;

    TILEWAVE_DEVICE std::uint32_t weight(float x) const {
      const std::uint32_t key = key_of<B>(x, largest);
      const std::uint32_t weight = key <= last ? weight_of<B>(key, scale) : 0u;
      return weight >= least ? weight : 0u;
    }
  };
  struct Drawn {
    std::int32_t token;
    std::uint32_t key;
  };
  /// The token in whose weight `at` falls, counted in the order of tokens.
  TILEWAVE_DEVICE static Drawn draw(Stretch& x, Exchange& exchange, const Chosen& chosen, std::uint64_t at) {
    if constexpr (Exchange::waves == 1) {
      return draw_alone(x, chosen, at);
    } else {
      const auto owner = Numbers::find(sums_of_waves(exchange), at);
      return draw_together(x, exchange, chosen, B::uniform(owner.index), owner.rest);
    }
  }

  /// The waves of the owner's block take a piece of its stretch each.
  TILEWAVE_DEVICE static Drawn draw_together(Stretch& x, Exchange& exchange, const Chosen& chosen, int owner,
                                             std::uint64_t at) {
    constexpr int takers = Exchange::block_waves;
    const bool takes = P.blocks == 1 || owner / takers == B::cluster_rank();
    Drawn drawn{-1, 0};
    for (int first = 0; first < x.pieces(); first += takers) {
      const typename Stretch::Piece piece = x.piece_of(owner, first + B::wave_id());
      Vec<std::uint32_t, unit> items;
      std::uint64_t own = 0;
      TILEWAVE_UNROLL
      for (int e = 0; e < unit; ++e) {
        items[e] = takes ? chosen.weight(piece.values[e]) : 0u;
        own += items[e];
      }
      own = Numbers::sum(own);
      exchange.tell({{0, 0, static_cast<std::uint32_t>(own), static_cast<std::uint32_t>(own >> 32)}});
      const auto found = Numbers::find(sums_of_waves(exchange), at);
      const int taker = B::uniform(found.index);
      if (taker < 0) {  // in what comes next
        at -= all_of_waves(exchange);
        continue;
      }
      if (taker == Exchange::wave()) drawn = within(piece.values, piece.column, chosen, items, found.rest);
      exchange.tell({{static_cast<std::uint32_t>(drawn.token), drawn.key, 0, 0}});
      const typename Exchange::Words words = exchange.of(taker);
      return {static_cast<std::int32_t>(words[0]), words[1]};
    }
    return drawn;
  }
  TILEWAVE_DEVICE static Drawn draw_alone(Stretch& x, const Chosen& chosen, std::uint64_t at) {
    Vec<float, unit> logits{};  // of the chunk that `at` falls into
    int first = -1;
    x.each([&](const Vec<float, unit>& v, int column) {
      if (first >= 0) return;
      std::uint64_t own = 0;
      if (key_of<B>(fold(v, Max{}), chosen.largest) <= chosen.last) {
        TILEWAVE_UNROLL
        for (int e = 0; e < unit; ++e) own += chosen.weight(v[e]);
      }
      const std::uint64_t chunk = Numbers::sum(own);
      if (at < chunk) {
        logits = v;
        first = column;
      } else {
        at -= chunk;
      }
    });
    Vec<std::uint32_t, unit> items;
    TILEWAVE_UNROLL
    for (int e = 0; e < unit; ++e) items[e] = chosen.weight(logits[e]);
    return within(logits, first, chosen, items, at);
  }
  /// Of a wave's logits, from `column` on in each lane; `items` are their weights.
  TILEWAVE_DEVICE static Drawn within(const Vec<float, unit>& logits, std::int32_t column, const Chosen& chosen,
                                      const Vec<std::uint32_t, unit>& items, std::uint64_t at) {
    const auto found = Numbers::find(items, at);
    const int e = found.index % unit, lane = found.index / unit;
    float logit = logits[0];
    TILEWAVE_UNROLL
    for (int i = 1; i < unit; ++i) logit = i == e ? logits[i] : logit;
    return {B::shuffle(column, lane) + e, B::shuffle(key_of<B>(logit, chosen.largest), lane)};
  }
};

}  // namespace tilewave
