// SPDX-License-Identifier: MIT
// The main loop of a wave of path lds walks the tiles of an item.
//
// Step n multiplies the scores of tile n + 1 and the values of tile n. Probabilities of tile n + 1 are made between the
// products of values, so that the vector unit works while the matrix unit is busy:
//
//   products     K(n+1) Q                             V(n) P(n)
//   read LDS     K(n+1), a few units ahead            V(n)
//   vector unit                                       P(n+1)
//   copies       tile n + stages - 1 into the slot of tile n - 1
//
// Exponents are relative to a reference of the row. If a score exceeds it by more than `slack`, or a row does not see
// all tokens, the probabilities are made once more behind the products, with a new reference and a mask. So most steps
// compare nothing between lanes.
#pragma once

#include <limits>
#include <type_traits>

#include "tilewave/ops/mla_decode/lds/held_fetch.hpp"
#include "tilewave/ops/mla_decode/lds/transposed.hpp"
#include "tilewave/ops/mla_decode/lds/turned.hpp"

namespace tilewave {

/// How values get their tokens side by side.
template <class B, MlaDecodeSpec S, MlaDecodePolicy P>
using MlaLdsLayout = std::conditional_t<B::facts.lds_transposed, MlaLdsTransposed<B, S, P>, MlaLdsTurned<B, S, P>>;
/// The copies of a wave with rows.
template <class L>
using MlaLdsFetch =
    std::conditional_t<L::held, MlaLdsNoFetch<L>,
                       std::conditional_t<L::B::facts.lds_transposed, MlaLdsTransposedFetch<L>, MlaLdsTurnedFetch<L>>>;
template <class L>
using MlaLdsProducts =
    std::conditional_t<L::B::facts.lds_transposed, MlaLdsTransposedProducts<L>, MlaLdsTurnedProducts<L>>;

/// What a wave has of its rows. A lane has one of them, or two.
template <class L>
struct MlaLdsState {
  static constexpr int score_rows = MlaLdsProducts<L>::score_rows;
  static constexpr float lowest = -std::numeric_limits<float>::max();
  typename L::Out out;
  float reference[score_rows], sum[score_rows];  // log2 units; sum of the probabilities of this lane's tokens
};

/// A wave without rows fetches its part of tiles, and meets the barriers of the others.
template <class L>
struct MlaLdsFetching {
  using B = typename L::B;
  using Fetch = MlaLdsFetch<L>;
  static constexpr int stages = L::stages, copies = Fetch::copies, under_way = Fetch::under_way;

  TILEWAVE_DEVICE static void run(const MlaDecodeArgs& args, const PagedAttentionWorkItem& item,
                                  typename L::Shared& shared) {
    Fetch fetch(args.attention, item);
    static_for<stages - 2>([&](auto n) TILEWAVE_INLINE_LAMBDA { copy_tile<n>(fetch, shared); });
    fetch.look_up(stages - 2);
    B::template copies_wait<(stages - 3) * under_way>();
    B::lds_barrier();  // tile 0
    fetch.find();
    std::int32_t free = (stages - 2) * L::tile_bytes;
    for (std::int32_t n = -1; n < item.tiles; ++n) {
      static_for<copies>([&](auto i) TILEWAVE_INLINE_LAMBDA { fetch.template copy<i>(shared, free); });
      fetch.look_up(n + stages);
      B::template copies_wait<(stages - 3) * under_way>();
      B::lds_barrier();  // tile n + 2
      fetch.find();
      free = L::template slot_behind<1>(free);
      B::keep_uniform(free);
    }
    B::template copies_wait<0>();
  }

  /// Starts all copies of tile n, into slot n.
  template <int n>
  TILEWAVE_DEVICE static void copy_tile(Fetch& fetch, typename L::Shared& shared) {
    fetch.look_up(n);
    fetch.find();
    static_for<copies>([&](auto i)
                           TILEWAVE_INLINE_LAMBDA { fetch.template copy<i>(shared, std::int32_t{n} * L::tile_bytes); });
  }
};

template <class L>
struct MlaLdsMainLoop {
  using B = typename L::B;
  using State = MlaLdsState<L>;
  using Fetching = MlaLdsFetching<L>;
  using Fetch = MlaLdsFetch<L>;
  using Products = MlaLdsProducts<L>;
  // Each constant is named here, because g++ 12 finds no inherited ones in lambdas.
  static constexpr DType type = L::type;
  static constexpr int stages = L::stages, copies = Fetch::copies, under_way = Fetch::under_way,
                       tile_tokens = L::policy.tokens;
  static constexpr int score_rows = Products::score_rows, elements = Products::elements;  // scores of a lane
  static constexpr int products = Products::products, score_products = Products::score_products;
  static constexpr int last_read = Products::last_read, copy_slots = Products::copy_slots;
  static constexpr int in_word = 4 / L::element, word_parts = Products::word_parts;
  /// Probabilities are at most 2^most. Those of fp8 begin with 2^6, so that they have four bits down to 2^-12; the
  /// flavour whose largest value is 240 has everything a power lower.
  static constexpr float most = is_fp8(type) && fp8_max(type) < 256.0f ? 7.0f : 8.0f,
                         first = is_fp8(type) ? most - 2.0f : 0.0f;

  const PagedAttentionArgs& a;
  typename L::Shared& shared;
  State& s;
  std::int32_t tiles, whole;  // of these, the first `whole` need no mask
  Fetch fetch;
  Products operands;
  std::int32_t end[score_rows];  // the first token that a row does not see, counted from the item's first one
  float scale;                   // scores times scale are log2 units
  typename Products::Probabilities probabilities, next;  // of tiles n and n + 1
  float sum[score_rows], largest;                        // of tile n + 1: sums, and the largest exponent
  float exponents[in_word], of[in_word];                 // of a word that is being made; of: its probabilities

  TILEWAVE_DEVICE MlaLdsMainLoop(const MlaDecodeArgs& args, const PagedAttentionWorkItem& item, typename L::Shared& lds,
                                 State& state)
      : a(args.attention),
        shared(lds),
        s(state),
        tiles(item.tiles),
        whole(min_of(max_of(item.full_end - item.begin, 0) / tile_tokens, tiles)),
        fetch(a, item),
        scale(a.scale_log2) {
    if constexpr (is_fp8(type)) scale *= uniform_float(args.q_scale);
    if constexpr (mla_one_scale(L::spec)) scale *= uniform_float(a.k_scale);
    load_queries(item);
  }
  TILEWAVE_DEVICE static float uniform_float(const float* at) {
    return __builtin_bit_cast(float, B::load_uniform(reinterpret_cast<const std::int32_t*>(at)));
  }

  /// Step -1 multiplies the scores of tile 0, and values with probabilities of 0.
  TILEWAVE_DEVICE void run() {
    TILEWAVE_UNROLL
    for (float& of_row : sum) of_row = 0.0f;
    Products::clear(next);
    std::int32_t values = 0, keys = 0;  // slots of tiles n and n + 1
    operands.begin(base());
    // Steps that end alike are a loop of their own: what the others do would move sums between registers at each end.
    for (std::int32_t n = -1; n < tiles;) {
      bool again;
      do {
        TILEWAVE_UNROLL
        for (int r = 0; r < score_rows; ++r) {
          s.sum[r] += sum[r];
          sum[r] = 0.0f;
        }
        largest = minus_infinity;
        step(n, values, keys);
        values = keys;
        keys = L::template slot_behind<1>(keys);
        B::keep_uniform(values), B::keep_uniform(keys);
        ++n;
        again = n >= whole || B::any(largest > most);
      } while (!again);
      make_probabilities(n);
      B::sched_fence();
    }
    B::template copies_wait<0>();
  }

 private:
  TILEWAVE_DEVICE const char* base() const { return reinterpret_cast<const char*>(&shared); }

  /// Starts the first copies, and loads q. LLVM does not see copies and would wait for all of them at the first use of
  /// q, so q is there before those of later tiles.
  TILEWAVE_DEVICE void load_queries(const PagedAttentionWorkItem& item) {
    Fetching::template copy_tile<0>(fetch, shared);
    TILEWAVE_UNROLL
    for (int r = 0; r < score_rows; ++r) {
      const std::int32_t row = item.first_row + B::wave_id() * mla_lds_wave_rows + Products::row(L::lane(), r);
      const QueryRow query = query_row(a, item, min_of(row, a.rows - 1));
      end[r] = item.end - a.query_tokens + query.token + 1 - item.begin;
      operands.load_query(r, static_cast<const char*>(a.q) +
                                 L::element * (query.out_row * a.q_row_stride + query.head * a.q_head_stride));
    }
    B::loads_wait();
    static_for<stages - 3>([&](auto n) TILEWAVE_INLINE_LAMBDA { Fetching::template copy_tile<n + 1>(fetch, shared); });
    fetch.look_up(stages - 2);
    B::lds_barrier();  // tile 0
    fetch.find();
  }

  /// Runs the products of step n. Behind the keys of tile n + 1 lies the slot of tile n + 2, and before tile n that of
  /// tile n + stages - 1.
  TILEWAVE_DEVICE void step(std::int32_t n, std::int32_t values, std::int32_t keys) {
    std::int32_t later = L::template slot_behind<1>(keys), free = L::template slot_behind<stages - 2>(keys);
    B::keep_uniform(later), B::keep_uniform(free);
    static_for<products>([&](auto i) TILEWAVE_INLINE_LAMBDA {
      operands.template take<i>(next, probabilities);
      operands.template multiply<i>(probabilities, s.out);
      operands.template read_behind<i>(base(), values, keys, later);
      B::sched_fence();  // a read that follows on vector instructions waits
      if constexpr (Products::copy_slot(i) < copy_slots) {
        interleave<copies, copy_slots, Products::copy_slot(i)>(
            [&](auto c) TILEWAVE_INLINE_LAMBDA { fetch.template copy<c>(shared, free); });
      }
      exponentials_behind<i>();
      if constexpr (i == Products::look_up_at) fetch.look_up(n + stages);
      if constexpr (i == last_read - 1) {
        B::template copies_wait<(stages - 3) * under_way>();
        B::lds_barrier();  // tile n + 2
      }
      if constexpr (i == products - 2) fetch.find();
      B::sched_fence();
    });
  }

  /// Exponentials stand behind products of values.
  template <int i>
  TILEWAVE_DEVICE void exponentials_behind() {
    constexpr int slots = Products::exponential_slots, slot = Products::exponential_slot(i);
    if constexpr (slot < slots) {
      interleave<word_parts * elements / in_word, slots, slot>(
          [&](auto part) TILEWAVE_INLINE_LAMBDA { make_part<part / word_parts, part % word_parts>(); });
    }
  }
  /// Makes a word of probabilities at once, or in one part for each half of its scores and one for the word.
  template <int word, int part>
  TILEWAVE_DEVICE void make_part() {
    constexpr int count = word_parts == 1 ? in_word : in_word / 2, begin = word_parts == 1 ? 0 : part * count;
    if constexpr (begin < in_word) {
      static_for<count>(
          [&](auto e) TILEWAVE_INLINE_LAMBDA { exponents[begin + e] = exponent_of<word * in_word + begin + e>(); });
      if constexpr (begin + count == in_word) {
        TILEWAVE_UNROLL
        for (int e = 0; e < in_word; e += 2) largest = Max{}(Max{}(exponents[e], exponents[e + 1]), largest);
        B::keep(largest);  // LLVM would move all of this behind the last product
      }
      // Beyond the largest value of fp8 there is none, and `most` is less.
      TILEWAVE_UNROLL
      for (int e = begin; e < begin + count; ++e) of[e] = is_fp8(type) ? min_of(exponents[e], most) : exponents[e];
      exponentiate<begin, count>();
    }
    if constexpr (word_parts == 1 || part == word_parts - 1) add_word<word>();
  }
  template <int e>
  TILEWAVE_DEVICE float score_of() const {
    return operands.template score<e>() * scale;
  }
  template <int e>
  TILEWAVE_DEVICE float exponent_of() const {
    return fused(operands.template score<e>(), scale, -s.reference[Products::row_of(e)]);
  }
  template <int from, int count>
  TILEWAVE_DEVICE void exponentiate() {
    TILEWAVE_UNROLL
    for (int i = from; i < from + count; ++i) {
      of[i] = B::exp2(of[i]);
      B::keep(of[i]);
    }
  }
  /// Makes a word of the next tile's probabilities.
  template <int word>
  TILEWAVE_DEVICE void add_word() {
    constexpr int e = word * in_word;
    float& of_row = sum[Products::row_of(e)];
    TILEWAVE_UNROLL
    for (int i = 0; i < in_word; ++i) of_row += of[i];
    B::keep(of_row);
    if constexpr (is_fp8(type)) {
      Products::template put<e>(B::pack_fp8_within(of[0], of[1], of[2], of[3]), next);
    } else {
      Products::template put<e>(B::pack_bf16(of[0], of[1]), next);
    }
  }

  /// Makes the probabilities of tile n, some of which a row may not see. If a score is too far above the reference of
  /// its row, the largest score so far makes a new one. Other rows keep theirs, so that a row's bits do not depend on
  /// them.
  TILEWAVE_DEVICE void make_probabilities(std::int32_t n) {
    // Tokens are compared twice, as scalar registers have no room for the answers of more than sixteen scores.
    std::int32_t token = n * tile_tokens + Products::first_token(L::lane());
    const auto seen = [&](int e)
                          TILEWAVE_INLINE_LAMBDA { return token + Products::token_of(e) < end[Products::row_of(e)]; };
    float score[score_rows];
    TILEWAVE_UNROLL
    for (float& of_row : score) of_row = minus_infinity;
    static_for<elements>([&](auto e) TILEWAVE_INLINE_LAMBDA {
      float of_seen = seen(e) ? score_of<e>() : minus_infinity;
      B::keep(of_seen);  // one at a time
      score[Products::row_of(e)] = Max{}(score[Products::row_of(e)], of_seen);
    });
    TILEWAVE_UNROLL
    for (float& of_row : score) of_row = Products::over_lanes(of_row, Max{});
    raise_references(score);
    TILEWAVE_UNROLL
    for (float& of_row : sum) of_row = 0.0f;
    if constexpr (elements > 16) token = B::opaque(token);
    static_for<elements / in_word>([&](auto word) TILEWAVE_INLINE_LAMBDA {
      static_for<in_word>([&](auto i) TILEWAVE_INLINE_LAMBDA {
        constexpr int e = word * in_word + i;
        of[i] = seen(e) ? min_of(exponent_of<e>(), most) : minus_infinity;
        B::keep(of[i]);
      });
      exponentiate<0, in_word>();
      add_word<word>();
    });
  }
  TILEWAVE_DEVICE void raise_references(const float (&score)[score_rows]) {
    float factor[score_rows];
    TILEWAVE_UNROLL
    for (int r = 0; r < score_rows; ++r) {
      const float raised = score[r] > s.reference[r] + most ? score[r] - first : s.reference[r];
      factor[r] = B::exp2(s.reference[r] - raised);
      s.reference[r] = raised;
      s.sum[r] *= factor[r];
    }
    static_for<std::extent_v<typename L::Out>>([&](auto n) TILEWAVE_INLINE_LAMBDA {
      TILEWAVE_UNROLL
      for (float& sum_of : s.out[n].data) sum_of *= factor[n % score_rows];
    });
  }

  /// Runs those of `count` actions, spread evenly over `slots` slots, that fall into slot `slot`.
  template <int count, int slots, int slot, class Action>
  TILEWAVE_DEVICE static void interleave(const Action& action) {
    constexpr int from = min_of(count * slot / slots, count), to = min_of(count * (slot + 1) / slots, count);
    static_for<to - from>([&](auto index) TILEWAVE_INLINE_LAMBDA { action(Index<from + index>{}); });
  }
};

}  // namespace tilewave
