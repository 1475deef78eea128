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

#include "tilewave/ops/mla_decode/lds/tile.hpp"
#include "tilewave/ops/paged_attention/work_item.hpp"

namespace tilewave {

/// What a wave has of its rows.
template <class L>
struct MlaLdsState {
  using B = typename L::B;
  using Map = typename L::Map;
  static constexpr float lowest = -std::numeric_limits<float>::max();
  typename L::Sums out[L::value_tiles];
  float reference, sum;  // log2 units; sum of the probabilities of this lane's tokens
};

/// A wave without rows fetches its part of tiles, and meets the barriers of the others.
template <class L>
struct MlaLdsFetching {
  using B = typename L::B;
  using Fetch = MlaLdsFetch<L>;
  static constexpr int stages = L::stages, copies = Fetch::copies;

  TILEWAVE_DEVICE static void run(const PagedAttentionArgs& a, const PagedAttentionWorkItem& item,
                                  typename L::Shared& shared) {
    Fetch fetch(a, item);
    static_for<stages - 2>([&](auto n) TILEWAVE_INLINE_LAMBDA { fetch.template copy_tile<n>(shared); });
    fetch.look_up(stages - 2);
    B::template copies_wait<(stages - 3) * copies>();
    B::lds_barrier();  // tile 0
    fetch.find();
    std::int32_t free = (stages - 2) * L::tile_bytes;
    for (std::int32_t n = -1; n < item.tiles; ++n) {
      static_for<copies>([&](auto i) TILEWAVE_INLINE_LAMBDA { fetch.template copy<i>(shared, free); });
      fetch.look_up(n + stages);
      B::template copies_wait<(stages - 3) * copies>();
      B::lds_barrier();  // tile n + 2
      fetch.find();
      free = L::template slot_behind<1>(free);
      B::keep_uniform(free);
    }
    B::template copies_wait<0>();
  }
};

template <class L>
struct MlaLdsMainLoop {
  using B = typename L::B;
  using Map = typename L::Map;
  using State = MlaLdsState<L>;
  using Fetch = MlaLdsFetch<L>;
  using Sums = typename L::Sums;
  // Each constant is named here, because g++ 12 finds no inherited ones in lambdas.
  static constexpr DType type = L::type;
  static constexpr int side = L::side, key_tiles = L::key_tiles, value_tiles = L::value_tiles, chunks = L::chunks;
  static constexpr int head_slices = L::head_slices, key_slices = L::key_slices;
  static constexpr int stages = L::stages, copies = Fetch::copies, tile_tokens = L::policy.tokens;
  static constexpr int ahead = chunks == 1 ? 4 : 2;  // operands are read so many products before their use
  static constexpr int score_products = key_tiles * head_slices, products = score_products + value_tiles * key_slices;
  static constexpr int last_read = products - ahead;
  static constexpr int elements = key_tiles * Map::sums;  // scores of a lane
  static constexpr int in_word = 4 / L::element, unit = 4 * in_word;
  /// Probabilities are at most 2^most. Those of fp8 begin with 2^6, so that they have four bits down to 2^-12.
  static constexpr float most = 8.0f, first = is_fp8(type) ? 6.0f : 0.0f;

  const PagedAttentionArgs& a;
  typename L::Shared& shared;
  State& s;
  std::int32_t tiles, whole;  // of these, the first `whole` need no mask
  Fetch fetch;
  MlaLdsReads<L> reads;
  std::int32_t end;  // the first token that the lane's row does not see, counted from the item's first one
  float scale;       // scores times scale are log2 units
  Chunk q[head_slices][chunks];
  Sums sums[key_tiles];                                               // products of scores
  Chunk probabilities[key_slices][chunks], next[key_slices][chunks];  // of tiles n and n + 1
  float sum, largest;             // of tile n + 1: the sum, and the largest exponent
  Chunk operands[ahead][chunks];  // of keys and values: that of product i is at i % ahead

  TILEWAVE_DEVICE MlaLdsMainLoop(const MlaDecodeArgs& args, const PagedAttentionWorkItem& item, typename L::Shared& lds,
                                 State& state)
      : a(args.attention),
        shared(lds),
        s(state),
        tiles(item.tiles),
        whole(max_of(item.full_end - item.begin, 0) / tile_tokens),
        fetch(a, item),
        scale(a.scale_log2) {
    if constexpr (is_fp8(type)) scale *= uniform_float(args.q_scale) * uniform_float(a.k_scale);
    load_queries(item);
  }
  TILEWAVE_DEVICE static float uniform_float(const float* at) {
    return __builtin_bit_cast(float, B::load_uniform(reinterpret_cast<const std::int32_t*>(at)));
  }

  /// Step -1 multiplies the scores of tile 0, and values with probabilities of 0.
  TILEWAVE_DEVICE void run() {
    sum = 0.0f;
    each_chunk([&](Chunk&, Chunk& of_next) TILEWAVE_INLINE_LAMBDA { of_next = Chunk{}; });
    std::int32_t values = 0, keys = 0;  // slots of tiles n and n + 1
    static_for<ahead>([&](auto i) TILEWAVE_INLINE_LAMBDA { read<i>(values, keys); });
    for (std::int32_t n = -1; n < tiles; ++n) {
      s.sum += sum;
      sum = 0.0f;
      each_chunk([&](Chunk& of_this, Chunk& of_next) TILEWAVE_INLINE_LAMBDA { of_this = of_next; });
      largest = minus_infinity;
      step(n, values, keys);
      const bool again = n + 1 >= whole || B::any(largest > most);
      if (again) [[unlikely]]
        make_probabilities(n + 1);
      values = keys;
      keys = L::template slot_behind<1>(keys);
      B::keep_uniform(values), B::keep_uniform(keys);
    }
    B::template copies_wait<0>();
  }

 private:
  template <class F>
  TILEWAVE_DEVICE void each_chunk(const F& f) {
    TILEWAVE_UNROLL
    for (int k = 0; k < key_slices; ++k) {
      TILEWAVE_UNROLL
      for (int c = 0; c < chunks; ++c) f(probabilities[k][c], next[k][c]);
    }
  }

  /// Starts the first copies, and loads q. LLVM does not see copies and would wait for all of them at the first use of
  /// q, so q is there before those of later tiles.
  TILEWAVE_DEVICE void load_queries(const PagedAttentionWorkItem& item) {
    fetch.template copy_tile<0>(shared);
    const std::int32_t row = item.first_row + B::wave_id() * mla_lds_wave_rows + Map::row(L::lane());
    const QueryRow query = query_row(a, item, min_of(row, a.rows - 1));
    end = item.end - a.query_tokens + query.token + 1 - item.begin;
    const auto* const from =
        reinterpret_cast<const Chunk*>(static_cast<const char*>(a.q) +
                                       L::element * (query.out_row * a.q_row_stride + query.head * a.q_head_stride)) +
        Map::unit(L::lane());
    TILEWAVE_UNROLL
    for (int k = 0; k < head_slices; ++k) {
      TILEWAVE_UNROLL
      for (int c = 0; c < chunks; ++c) q[k][c] = B::load(from + Map::units * (chunks * k + c));
    }
    B::loads_wait();
    static_for<stages - 3>([&](auto n) TILEWAVE_INLINE_LAMBDA { fetch.template copy_tile<n + 1>(shared); });
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
      multiply<i>();
      if constexpr (i < last_read) {
        read<i + ahead>(values, keys);
      } else {
        read<i % ahead>(values, later);  // the operand whose place is free
      }
      B::sched_fence();  // a read that follows on vector instructions waits
      if constexpr (i < score_products) {
        interleave<copies, score_products, i>([&](auto c)
                                                  TILEWAVE_INLINE_LAMBDA { fetch.template copy<c>(shared, free); });
      } else {
        exponentials_behind<i - score_products>();
      }
      if constexpr (i == score_products) fetch.look_up(n + stages);
      if constexpr (i == last_read - 1) {
        B::template copies_wait<(stages - 3) * copies>();
        B::lds_barrier();  // tile n + 2
      }
      if constexpr (i == products - 2) fetch.find();
      B::sched_fence();
    });
  }
  /// Reads the operand of product i: keys of the tile in slot `keys`, then values of that in slot `values`.
  template <int i>
  TILEWAVE_DEVICE void read(std::int32_t values, std::int32_t keys) {
    const char* const from = reinterpret_cast<const char*>(&shared);
    if constexpr (i < score_products) {
      reads.key(from + keys, i % key_tiles, i / key_tiles, operands[i % ahead]);
    } else {
      constexpr int of = i - score_products;
      reads.value(from + values, of / key_slices, of % key_slices, operands[i % ahead]);
    }
  }
  template <int i>
  TILEWAVE_DEVICE void multiply() {
    const Chunk(&kv)[chunks] = operands[i % ahead];
    if constexpr (i < score_products) {
      Sums& to = sums[i % key_tiles];
      if constexpr (i / key_tiles == 0) to = Sums{};
      B::template multiply<type, side>(kv, q[i / key_tiles], to);
      B::keep(to);
    } else {
      constexpr int of = i - score_products;
      B::template multiply<type, side>(kv, probabilities[of % key_slices], s.out[of / key_slices]);
    }
  }

  /// Exponentials stand behind product i of values, but not the first ones: the last products of scores are done by
  /// then.
  template <int i>
  TILEWAVE_DEVICE void exponentials_behind() {
    constexpr int begin_at = 4 / chunks, slots = products - score_products - ahead - begin_at;
    if constexpr (i >= begin_at && i < begin_at + slots) {
      interleave<elements / in_word, slots, i - begin_at>([&](auto word) TILEWAVE_INLINE_LAMBDA {
        float exponents[in_word];
        static_for<in_word>([&](auto e) TILEWAVE_INLINE_LAMBDA { exponents[e] = exponent_of<word * in_word + e>(); });
        TILEWAVE_UNROLL
        for (int e = 0; e < in_word; e += 2) largest = Max{}(Max{}(exponents[e], exponents[e + 1]), largest);
        B::keep(largest);  // LLVM would move all of this behind the last product
        // Beyond the largest value of fp8 there is none, and `most` is less.
        if constexpr (is_fp8(type)) {
          TILEWAVE_UNROLL
          for (int e = 0; e < in_word; ++e) exponents[e] = min_of(exponents[e], most);
        }
        add_word<word>(exponents);
      });
    }
  }
  template <int e>
  TILEWAVE_DEVICE float score_of() const {
    return sums[e / Map::sums][e % Map::sums] * scale;
  }
  template <int e>
  TILEWAVE_DEVICE float exponent_of() const {
    return fused(sums[e / Map::sums][e % Map::sums], scale, -s.reference);
  }
  /// Makes the probabilities of a word of the next tile.
  template <int word>
  TILEWAVE_DEVICE void add_word(const float (&exponents)[in_word]) {
    constexpr int e = word * in_word, c = e / unit;
    float of[in_word];
    TILEWAVE_UNROLL
    for (int i = 0; i < in_word; ++i) {
      of[i] = B::exp2(exponents[i]);
      B::keep(of[i]);
    }
    TILEWAVE_UNROLL
    for (int i = 0; i < in_word; ++i) sum += of[i];
    B::keep(sum);
    Chunk& to = next[c / chunks][c % chunks];
    if constexpr (is_fp8(type)) {
      to[word % 4] = B::pack_fp8_within(of[0], of[1], of[2], of[3]);
    } else {
      to[word % 4] = B::pack_bf16(of[0], of[1]);
    }
  }

  /// Makes the probabilities of tile n, some of which a row may not see. If a score is too far above the reference of
  /// its row, the largest score so far makes a new one. Other rows keep theirs, so that a row's bits do not depend on
  /// them.
  TILEWAVE_DEVICE void make_probabilities(std::int32_t n) {
    // Tokens are compared twice, as scalar registers have no room for the answers of more than sixteen scores.
    std::int32_t token = n * tile_tokens + Map::kv_row(L::lane(), 0);
    const auto seen = [&](int e) TILEWAVE_INLINE_LAMBDA {
      return token + e / Map::sums * side + Map::kv_row(0, e % Map::sums) < end;
    };
    float score = minus_infinity;
    static_for<elements>([&](auto e) TILEWAVE_INLINE_LAMBDA {
      float of_seen = seen(e) ? score_of<e>() : minus_infinity;
      B::keep(of_seen);  // one at a time
      score = Max{}(score, of_seen);
    });
    raise_reference(Max{}(score, B::shuffle_xor(score, 32)));
    sum = 0.0f;
    if constexpr (elements > 16) token = B::opaque(token);
    static_for<elements / in_word>([&](auto word) TILEWAVE_INLINE_LAMBDA {
      float exponents[in_word];
      static_for<in_word>([&](auto i) TILEWAVE_INLINE_LAMBDA {
        constexpr int e = word * in_word + i;
        exponents[i] = seen(e) ? min_of(exponent_of<e>(), most) : minus_infinity;
        B::keep(exponents[i]);
      });
      add_word<word>(exponents);
    });
  }
  TILEWAVE_DEVICE void raise_reference(float score) {
    const float raised = score > s.reference + most ? score - first : s.reference;
    const float factor = B::exp2(s.reference - raised);
    s.reference = raised;
    s.sum *= factor;
    TILEWAVE_UNROLL
    for (int d = 0; d < value_tiles; ++d) {
      TILEWAVE_UNROLL
      for (int i = 0; i < Map::sums; ++i) s.out[d][i] *= factor;
    }
  }

  /// Runs those of `count` actions, spread evenly over `slots` slots, that fall into slot `slot`.
  template <int count, int slots, int slot, class Action>
  TILEWAVE_DEVICE static void interleave(const Action& action) {
    constexpr int from = min_of(count * slot / slots, count), to = min_of(count * (slot + 1) / slots, count);
    static_for<to - from>([&](auto index) TILEWAVE_INLINE_LAMBDA { action(Index<from + index>{}); });
  }
};

}  // namespace tilewave
