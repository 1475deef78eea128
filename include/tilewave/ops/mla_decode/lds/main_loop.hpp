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
  struct Row {
    float reference, sum;  // log2 units; sum of the probabilities of this lane's tokens
  };
  typename L::Sums out[L::row_tiles][L::value_tiles];
  Row row[L::row_tiles];

  /// Combines a value over the lanes that share a row.
  template <class Op>
  TILEWAVE_DEVICE static float over_units(float x, Op op) {
    if constexpr (Map::units > 2) x = op(x, B::shuffle_xor(x, 16));
    return op(x, B::shuffle_xor(x, 32));
  }
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
    static_for<stages - 1>([&](auto n) TILEWAVE_INLINE_LAMBDA { fetch.template copy_tile<n>(shared); });
    fetch.look_up(stages - 1);
    B::template copies_wait<(stages - 2) * copies>();
    B::lds_barrier();  // tile 0
    fetch.find();
    B::template copies_wait<(stages - 3) * copies>();
    B::lds_barrier();  // tile 1
    std::int32_t free = (stages - 1) * L::tile_bytes;
    for (std::int32_t n = 0; n < item.tiles; ++n) {
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
  static constexpr int side = L::side, row_tiles = L::row_tiles, key_tiles = L::key_tiles, key_units = L::key_units;
  static constexpr int value_tiles = L::value_tiles;
  static constexpr int stages = L::stages, copies = Fetch::copies, tile_tokens = L::policy.tokens;
  static constexpr int ahead = 4;  // operands are read so many products before their use
  static constexpr int of_tile = key_tiles * Map::sums, elements = row_tiles * of_tile;  // scores of a lane
  static constexpr int key_slices = L::policy.tokens / 16;                               // products of a tile of values
  static constexpr int score_products = key_tiles * key_units, products = score_products + value_tiles * key_slices;
  static constexpr int last_read = products - ahead;
  static constexpr float slack = 8.0f;  // log2 units, probabilities are at most 2^slack

  const PagedAttentionArgs& a;
  typename L::Shared& shared;
  State& s;
  std::int32_t tiles, begin, full_end, last;
  Fetch fetch;
  MlaLdsReads<L> reads;
  std::int32_t first_row;  // of this lane, in the sequence
  float scale;
  Chunk q[row_tiles][key_units];
  Sums sums[row_tiles][key_tiles];                                          // products of scores
  Chunk probabilities[row_tiles][key_slices], next[row_tiles][key_slices];  // of tiles n and n + 1
  float sum[row_tiles], largest;  // of tile n + 1: sums, and the largest exponent
  Chunk units[ahead];             // operands of keys and values: that of product i is at i % ahead

  TILEWAVE_DEVICE MlaLdsMainLoop(const PagedAttentionArgs& args, const PagedAttentionWorkItem& item,
                                 typename L::Shared& lds, State& state)
      : a(args),
        shared(lds),
        s(state),
        tiles(item.tiles),
        begin(item.begin),
        full_end(item.full_end),
        last(item.end - 1),
        fetch(args, item),
        first_row(item.first_row + B::wave_id() * L::wave_rows + Map::row(L::lane())),
        scale(args.scale_log2) {
    load_queries(item);
  }

  TILEWAVE_DEVICE void run() {
    static_for<ahead>([&](auto i) TILEWAVE_INLINE_LAMBDA { read<i>(0, 0); });
    static_for<score_products>([&](auto i) TILEWAVE_INLINE_LAMBDA {
      multiply<i>();
      if constexpr (i + ahead < score_products) read<i + ahead>(0, 0);
      B::sched_fence();
    });
    make_probabilities(0);
    B::template copies_wait<(stages - 3) * copies>();
    B::lds_barrier();       // tile 1
    std::int32_t slot = 0;  // of tile n
    static_for<ahead>([&](auto i) TILEWAVE_INLINE_LAMBDA { read<i>(0, L::template slot_behind<1>(slot)); });
    for (std::int32_t n = 0; n < tiles; ++n) {
      TILEWAVE_UNROLL
      for (int t = 0; t < row_tiles; ++t) {
        s.row[t].sum += sum[t];
        sum[t] = 0.0f;
        TILEWAVE_UNROLL
        for (int c = 0; c < key_slices; ++c) probabilities[t][c] = next[t][c];
      }
      largest = minus_infinity;
      step(n, slot);
      const bool again = needs_mask(n + 1) || B::any(largest > slack);
      if (again) [[unlikely]]
        make_probabilities(n + 1);
      slot = L::template slot_behind<1>(slot);
      B::keep_uniform(slot);
    }
    B::template copies_wait<0>();
  }

 private:
  TILEWAVE_DEVICE std::int32_t tile_of(std::int32_t n) const { return begin + n * tile_tokens; }
  TILEWAVE_DEVICE bool needs_mask(std::int32_t n) const { return tile_of(n + 1) > full_end; }

  /// Starts the first copies, and loads q. LLVM does not see copies and would wait for all of them at the first use of
  /// q, so q is there before those of later tiles.
  TILEWAVE_DEVICE void load_queries(const PagedAttentionWorkItem& item) {
    const int unit = Map::unit(L::lane());
    fetch.template copy_tile<0>(shared);
    TILEWAVE_UNROLL
    for (int t = 0; t < row_tiles; ++t) {
      const QueryRow query = query_row(a, item, min_of(B::opaque(first_row) + side * t, a.rows - 1));
      const auto* const from = reinterpret_cast<const Chunk*>(
          static_cast<const std::uint16_t*>(a.q) + query.out_row * a.q_row_stride + query.head * a.q_head_stride);
      TILEWAVE_UNROLL
      for (int c = 0; c < key_units; ++c) q[t][c] = B::load(from + Map::units * c + unit);
    }
    B::loads_wait();
    static_for<stages - 2>([&](auto n) TILEWAVE_INLINE_LAMBDA { fetch.template copy_tile<n + 1>(shared); });
    fetch.look_up(stages - 1);
    B::lds_barrier();  // tile 0
    fetch.find();
  }

  /// Runs the products of step n, whose values are in `slot`. Keys of tile n + 1 are in the next slot.
  TILEWAVE_DEVICE void step(std::int32_t n, std::int32_t slot) {
    std::int32_t keys = L::template slot_behind<1>(slot), later = L::template slot_behind<2>(slot),
                 free = L::template slot_behind<stages - 1>(slot);
    B::keep_uniform(keys), B::keep_uniform(later), B::keep_uniform(free);
    static_for<products>([&](auto i) TILEWAVE_INLINE_LAMBDA {
      multiply<i>();
      if constexpr (i < last_read) {
        read<i + ahead>(slot, keys);
      } else {
        read<i - last_read>(slot, later);
      }
      B::sched_fence();  // a read that follows on vector instructions waits
      if constexpr (i < score_products) {
        interleave<copies, score_products, i>([&](auto part)
                                                  TILEWAVE_INLINE_LAMBDA { fetch.template copy<part>(shared, free); });
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
      units[i % ahead] = reads.key(from + keys, i % key_tiles, i / key_tiles);
    } else {
      constexpr int of = i - score_products;
      units[i % ahead] = reads.value(from + values, of / key_slices, of % key_slices);
    }
  }
  template <int i>
  TILEWAVE_DEVICE void multiply() {
    TILEWAVE_UNROLL
    for (int t = 0; t < row_tiles; ++t) {
      if constexpr (i < score_products) {
        constexpr int j = i % key_tiles, c = i / key_tiles;
        if constexpr (c == 0) sums[t][j] = Sums{};
        multiply(units[i % ahead], q[t][c], sums[t][j]);
        B::keep(sums[t][j]);
      } else {
        constexpr int of = i - score_products;
        multiply(units[i % ahead], probabilities[t][of % key_slices], s.out[t][of / key_slices]);
      }
    }
  }
  TILEWAVE_DEVICE static void multiply(const Chunk& kv, const Chunk& rows, Sums& to) {
    B::template multiply<DType::bf16, side>(reinterpret_cast<const Chunk(&)[1]>(kv),
                                            reinterpret_cast<const Chunk(&)[1]>(rows), to);
  }

  /// Exponentials stand behind product i of values, from the fourth on: the last products of scores are done by then.
  template <int i>
  TILEWAVE_DEVICE void exponentials_behind() {
    constexpr int first = 4, slots = products - score_products - ahead - first;
    if constexpr (i >= first && i < first + slots) {
      interleave<elements / 2, slots, i - first>([&](auto pair) TILEWAVE_INLINE_LAMBDA {
        constexpr int e = 2 * pair;
        const float low = exponent_of<e>(), high = exponent_of<e + 1>();
        largest = Max{}(Max{}(low, high), largest);
        B::keep(largest);  // LLVM would move all of this behind the last product
        add_probabilities<e>(low, high);
      });
    }
  }
  /// Element e of a lane is of its row of tile e / of_tile.
  template <int e>
  TILEWAVE_DEVICE float sum_of() const {
    return sums[e / of_tile][e % of_tile / Map::sums][e % Map::sums];
  }
  template <int e>
  TILEWAVE_DEVICE float exponent_of() const {
    return fused(sum_of<e>(), scale, -s.row[e / of_tile].reference);
  }
  template <int e>
  TILEWAVE_DEVICE void add_probabilities(float low, float high) {
    constexpr int t = e / of_tile, c = e % of_tile / 8;
    float of_low = B::exp2(low), of_high = B::exp2(high);
    B::keep(of_low), B::keep(of_high);
    sum[t] += of_low;
    sum[t] += of_high;
    B::keep(sum[t]);
    next[t][c][e % 8 / 2] = B::pack_bf16(of_low, of_high);
    if constexpr (e % 8 == 6) B::keep(next[t][c]);
  }

  /// Makes the probabilities of tile n, some of which a row may not see. If a score is too far above the reference of
  /// its row, the largest score so far becomes the reference. Other rows keep theirs, so that a row's bits do not
  /// depend on them.
  TILEWAVE_DEVICE void make_probabilities(std::int32_t n) {
    const std::int32_t first = tile_of(n) + Map::kv_row(L::lane(), 0);
    static_for<row_tiles>([&](auto t) TILEWAVE_INLINE_LAMBDA {
      const std::int32_t row = min_of(B::opaque(first_row) + side * t, a.rows - 1);
      const std::int32_t end = last + 1 - a.query_tokens + a.gqa_ratio.quotient(row) + 1;  // of what the row sees
      const auto seen = [&](int e) TILEWAVE_INLINE_LAMBDA {
        return first + e / Map::sums * side + Map::kv_row(0, e % Map::sums) < end;
      };
      float score = minus_infinity;
      static_for<of_tile>([&](auto e) TILEWAVE_INLINE_LAMBDA {
        if (seen(e)) score = Max{}(score, sum_of<of_tile * t + e>() * scale);
      });
      raise_reference(t, State::over_units(score, Max{}));
      sum[t] = 0.0f;
      static_for<of_tile / 2>([&](auto pair) TILEWAVE_INLINE_LAMBDA {
        constexpr int e = 2 * pair, element = of_tile * t + e;
        add_probabilities<element>(seen(e) ? exponent_of<element>() : minus_infinity,
                                   seen(e + 1) ? exponent_of<element + 1>() : minus_infinity);
      });
    });
  }
  TILEWAVE_DEVICE void raise_reference(int t, float score) {
    auto& row = s.row[t];
    const float raised = score > row.reference + slack ? score : row.reference;
    const float factor = B::exp2(row.reference - raised);
    row.reference = raised;
    row.sum *= factor;
    TILEWAVE_UNROLL
    for (int d = 0; d < value_tiles; ++d) {
      TILEWAVE_UNROLL
      for (int c = 0; c < Map::sums; ++c) s.out[t][d][c] *= factor;
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
