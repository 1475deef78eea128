// SPDX-License-Identifier: MIT
// Flash attention on CDNA: K and V through LDS, products of 32 x 32. Grid: row tiles x query heads x batch, those of a
// head on one XCD. A block has P.rows query rows of one head, a wave 32 of them, and all waves walk the keys together.
// Scores are computed with keys as rows of the product, so that a lane has scores of one query alone: its maximum and
// sum stay in the lane, and its scores are the operand of the second product as they stand (tiles.hpp).
//
// A turn n of the loop has scores of tile n + 1 and values of tile n: the exponentials of tile n stand between the
// products of both, as what the vector unit does while the matrix unit is busy. What stands below a product is issued
// behind it. Head size 128, tiles of 64 keys, operands four products ahead:
//
//   products     K(n+1) Q: 0 .. 15                    V(n) P(n): 16 .. 27            | barrier | 28 .. 31
//   read LDS     K(n+1) 4 .. 15, V(n) 16 .. 19        V(n) 20 .. 31                  |         | K(n+2) 0 .. 3
//   vector unit  exp of tile n, steps 0 to 2          exp of step 3, maxima of n + 1 |         |
//   copies       K(n + stages), V(n + stages - 1) into the slots of K(n) and V(n - 1)
//
// Behind the barrier all waves have read K(n+1) and V(n), and K(n+2) and V(n+1) are in LDS. Where chips copy 16 bytes
// straight into LDS, copies of stages - 2 turns stay under way across it; else the next tiles wait in registers.
//
// Softmax: exponents are relative to a reference of the row that is raised where a score exceeds it by more than
// `slack` only, so that most turns compare and rescale nothing. Tiles that a row of the block does not see as a whole
// come first, in a loop of their own; the steady loop knows no mask.
#pragma once

#include <limits>

#include "tilewave/attention/sink.hpp"
#include "tilewave/core/static_for.hpp"
#include "tilewave/ops/flash_attention/lds/tiles.hpp"
#include "tilewave/ops/flash_attention/policy_status.hpp"

namespace tilewave {

template <class B, FlashAttentionSpec S, FlashAttentionPolicy P>
struct FlashAttentionLds {
  static_assert(flash_attention_policy_status(B::facts.id, S, P).ok(),
                "a law of policies is broken: flash_attention_policy_status(arch, spec, policy).reason says which");
  using Room = B;
  struct Args {
    FlashAttentionArgs attention;
    FastDiv row_tiles, q_heads;
    std::int32_t blocks;
  };
  using Keys = FlashKeyTile<B, S.kv, P.waves, P.keys, S.head_size>;
  using Values = std::conditional_t<B::facts.lds_transposed, FlashValueLines<B, S.kv, P.waves, P.keys, S.value_size>,
                                    FlashTurnedValues<B, S.kv, P.waves, P.keys, S.value_size>>;
  struct Shared {
    alignas(16) Chunk k[P.stages][Keys::bytes / sizeof(Chunk)];
    alignas(16) Chunk v[P.stages][Values::bytes / sizeof(Chunk)];
  };
  static constexpr int block_threads = P.waves * B::facts.wave_lanes;
  static constexpr int waves_per_simd = P.waves_per_simd;

  TILEWAVE_DEVICE static void run(const Args& args, Shared& shared) {
    const FlashAttentionArgs& a = args.attention;
    const Place at = where_am_i(args);
    if (at.first_row >= at.sequence.q_count) return;
    State s;
    begin(a, at, s);
    if (at.tiles > 0) Walk(a, at, shared, s).run();
    write(a, at, s);
  }

 private:
  using Map = ProductMap<32>;
  using Sums = Vec<float, Map::sums>;
  static constexpr int wave_rows = 32, stages = P.stages;
  static constexpr int key_tiles = P.keys / 32, head_steps = S.head_size / 16;    // of scores
  static constexpr int value_tiles = S.value_size / 32, key_steps = P.keys / 16;  // of values
  static constexpr int score_products = key_tiles * head_steps, products = score_products + value_tiles * key_steps;
  static constexpr int ahead = 4;              // operands are read so many products before
  static constexpr int first_exponential = 2;  // products before it hide whether there is anything to rescale
  static constexpr int elements = P.keys / 2, pairs = elements / 2;  // scores of a lane
  static constexpr float minus_infinity = -__builtin_inff(), lowest = -std::numeric_limits<float>::max();
  static constexpr float slack = 8.0f;  // log2: probabilities are at most 2^slack
  // f16 ends at 2^-24, where many keys of little weight would lose theirs: probabilities are larger by so many powers.
  // Where bf16 are rounded in three operations, half of them are spared: probabilities are cut, and larger by what is
  // lost in the mean, so that errors are centred and hardly larger (2^-8 (1 / m) / 2 in the mean over mantissas m, whose
  // logarithms are uniform: 0.00282). A probability of 1 stays 1.
  static constexpr bool cut = S.kv == DType::bf16 && !B::facts.bf16_pairs;
  static constexpr float lost_by_cut = 0.00282f, lost_log2 = 0.0040627f;
  static constexpr float probability_log2 = S.kv == DType::f16 ? 7.0f : cut ? lost_log2 : 0.0f;

  struct Place {
    AttentionSequence sequence;
    std::int32_t head, kv_head, first_row;
    // Tiles of keys that a row of the block sees, from `first` on. Those that all rows see as a whole are from
    // `full_first` on, behind `masked` others, of which `left` lie before them.
    std::int32_t tiles, first, left, masked, full_first, full_end;

    /// Tile n in the order of turns: masked ones come first. Behind the last it is the last again.
    TILEWAVE_DEVICE std::int32_t tile(std::int32_t n) const {
      n = min_of(n, tiles - 1);
      return n < left ? first + n : n < masked ? full_end + n - left : full_first + n - masked;
    }
  };
  struct State {
    Chunk q[head_steps];
    Sums out[value_tiles];
    VisibleKeys visible;  // of the lane's row
    float less;           // log2 units: what exponents are relative to, negative, and probability_log2
    float sum;            // of the lane's keys
  };

  TILEWAVE_DEVICE static Place where_am_i(const Args& args) {
    const FlashAttentionArgs& a = args.attention;
    // Blocks go to XCDs in turn: block i of an XCD becomes its i-th of a stretch of neighbours.
    constexpr int xcds = B::facts.xcds;
    const std::int32_t xcd = B::block_id() % xcds, part = args.blocks / xcds, more = args.blocks % xcds;
    const std::int32_t block = xcd * part + min_of(xcd, more) + B::block_id() / xcds;
    const std::int32_t heads = args.row_tiles.quotient(block), number = args.q_heads.quotient(heads);
    Place at;
    at.sequence = AttentionSequence::of<B>(a, number);
    at.head = heads - number * args.q_heads.divisor;
    at.kv_head = a.group.quotient(at.head);
    // The last rows see most keys where masks are causal: longest first.
    const std::int32_t tile = args.row_tiles.divisor - 1 - (block - heads * args.row_tiles.divisor);
    at.first_row = tile * P.rows;
    const std::int32_t last_row = max_of(min_of(at.first_row + P.rows, at.sequence.q_count) - 1, 0);
    const VisibleKeys of_first = VisibleKeys::of(a, at.sequence, min_of(at.first_row, last_row)),
                      of_last = VisibleKeys::of(a, at.sequence, last_row);
    at.first = of_first.first / P.keys;
    const std::int32_t end = ceil_div(of_last.end, P.keys);
    at.tiles = of_last.end > of_first.first ? end - at.first : 0;
    at.full_first = ceil_div(of_last.first, P.keys);
    at.full_end = of_first.end / P.keys;
    if (at.full_end <= at.full_first) at.full_first = at.full_end = end;
    at.left = at.full_first - at.first;
    at.masked = at.tiles - (at.full_end - at.full_first);
    return at;
  }

  /// Of this wave's rows the lane's.
  TILEWAVE_DEVICE static std::int32_t row_of(const Place& at) {
    return at.first_row + wave_rows * B::wave_id() + Map::row(B::lane_id());
  }

  TILEWAVE_DEVICE static void begin(const FlashAttentionArgs& a, const Place& at, State& s) {
    const std::int32_t row = min_of(row_of(at), at.sequence.q_count - 1);
    s.visible = VisibleKeys::of(a, at.sequence, row);
    s.less = -lowest;
    s.sum = 0.0f;
    const auto* const from = reinterpret_cast<const Chunk*>(static_cast<const char*>(a.q) +
                                                            2 * at.sequence.query_at(a, a.q_strides, row, at.head));
    TILEWAVE_UNROLL
    for (int c = 0; c < head_steps; ++c) s.q[c] = B::load(from + Map::units * c + Map::unit(B::lane_id()));
    TILEWAVE_UNROLL
    for (int t = 0; t < value_tiles; ++t) s.out[t] = Sums{};
  }

  struct Walk {
    const Place& at;
    Shared& shared;
    State& s;
    Keys keys;
    Values values;
    const char *of_keys, *of_values;      // of the sequence's first token
    const char *next_keys, *next_values;  // of the tiles that were fetched last
    float scale;                          // of scores, to log2 units
    Sums scores[2][key_tiles];            // of tiles n and n + 1, by turns
    Chunk probabilities[key_steps];
    Chunk operands[ahead];
    float largest;  // of the lane's scores of the tile whose turn is next, not scaled

    static constexpr bool direct = B::facts.direct_copies;
    static constexpr int copies = Keys::fetches + Values::fetches;  // of a turn
    static constexpr int pending = (stages - 2) * copies;           // under way across a barrier

    TILEWAVE_DEVICE Walk(const FlashAttentionArgs& a, const Place& place, Shared& lds, State& state)
        : at(place),
          shared(lds),
          s(state),
          keys(static_cast<std::int32_t>(2 * a.k_strides.token), B::wave_id()),
          values(static_cast<std::int32_t>(2 * a.v_strides.token), B::wave_id()),
          of_keys(static_cast<const char*>(a.k) + 2 * at.sequence.key_at(a, a.k_strides, 0, at.kv_head)),
          of_values(static_cast<const char*>(a.v) + 2 * at.sequence.key_at(a, a.v_strides, 0, at.kv_head)),
          scale(__builtin_bit_cast(float, B::opaque(__builtin_bit_cast(std::uint32_t, a.scale_log2)))) {}

    TILEWAVE_DEVICE void run() {
      const std::int32_t steady = align_down(at.tiles - at.masked, std::int32_t{stages}), masked = at.tiles - steady;
      int slot = (stages - masked % stages) % stages;  // of tile 0: the steady loop begins with slot 0
      prepare(slot);
      std::int32_t n = 0;
      for (; n < masked; ++n) {
        turn<false, 0>(n, slot);
        TILEWAVE_UNROLL
        for (int t = 0; t < key_tiles; ++t) scores[0][t] = scores[1][t];
        slot = (slot + 1) % stages;
      }
      for (; n < at.tiles; n += stages) {
        static_for<stages>([&](auto i) TILEWAVE_INLINE_LAMBDA { turn<true, i % 2>(n + i, i); });
      }
      if constexpr (direct) B::template copies_wait<0>();
    }

   private:
    /// Tiles 0 .. of K and V, and the scores of tile 0.
    TILEWAVE_DEVICE void prepare(int slot) {
      if constexpr (direct) {
        static_for<Keys::fetches>([&](auto i) TILEWAVE_INLINE_LAMBDA {
          keys.template copy<i, false>(shared.k[slot], move_keys<false>(0), last_of(0));
        });
        static_for<stages - 1>([&](auto m) TILEWAVE_INLINE_LAMBDA {
          static_for<copies>([&](auto i) TILEWAVE_INLINE_LAMBDA { fetch<i, false>(m + 1 - stages, slot + m + 1); });
        });
        B::template copies_wait<(stages - 1) * copies>();
      } else {
        static_for<Keys::fetches>(
            [&](auto i) TILEWAVE_INLINE_LAMBDA { keys.template load<i, false>(move_keys<false>(0), last_of(0)); });
        static_for<Keys::fetches>([&](auto i) TILEWAVE_INLINE_LAMBDA { keys.template put<i>(shared.k[slot]); });
        static_for<copies>([&](auto i) TILEWAVE_INLINE_LAMBDA { load<i, false>(-1); });
        static_for<copies>([&](auto i) TILEWAVE_INLINE_LAMBDA { fetch<i, false>(-1, slot + 1); });
      }
      B::lds_barrier();
      static_for<ahead>([&](auto i) TILEWAVE_INLINE_LAMBDA { read<i, i>(slot + stages - 1); });
      static_for<score_products>([&](auto i) TILEWAVE_INLINE_LAMBDA {
        multiply<i>(scores[0]);
        if constexpr (i + ahead < score_products) read<i + ahead, i % ahead>(slot + stages - 1);
        B::sched_fence();
      });
      if constexpr (direct) B::template copies_wait<pending>();
      B::lds_barrier();
      static_for<ahead>([&](auto i) TILEWAVE_INLINE_LAMBDA { read<i, i>(slot); });
      mask_scores(token(0), scores[0]);
      find_largest(scores[0]);
    }

    TILEWAVE_DEVICE std::int32_t token(std::int32_t n) const { return at.tile(n) * P.keys; }

    /// Turn n, whose tile has its V in `slot`.
    template <bool whole, int parity>
    TILEWAVE_DEVICE void turn(std::int32_t n, int slot) {
      constexpr int last_read = products - ahead;
      Sums(&now)[key_tiles] = scores[parity], (&next)[key_tiles] = scores[1 - parity];
      static_for<products>([&](auto i) TILEWAVE_INLINE_LAMBDA {
        multiply<i>(next);
        if constexpr (i < last_read) {
          read<i + ahead, i % ahead>(slot);
        } else {
          read<i - last_read, i % ahead>(slot + 1);
        }
        interleave<copies, last_read, i>([&](auto c) TILEWAVE_INLINE_LAMBDA { fetch<c, whole>(n, slot); });
        if constexpr (i == first_exponential - 1) raise_reference();
        exponentials<i>(now);
        if constexpr (whole) maxima<i>(next);
        if constexpr (i == last_read - 1) {
          if constexpr (direct) B::template copies_wait<pending>();
          B::lds_barrier();
        }
        B::sched_fence();
      });
      if constexpr (!whole) {
        mask_scores(token(n + 1), next);
        find_largest(next);
      }
    }

    /// Product i of a turn, from operand i % ahead.
    template <int i>
    TILEWAVE_DEVICE void multiply(Sums (&next)[key_tiles]) {
      const Chunk(&operand)[1] = reinterpret_cast<const Chunk(&)[1]>(operands[i % ahead]);
      if constexpr (i < score_products) {
        constexpr int t = i % key_tiles, c = i / key_tiles;
        if constexpr (c == 0) next[t] = Sums{};
        B::template multiply<S.kv, 32>(operand, reinterpret_cast<const Chunk(&)[1]>(s.q[c]), next[t]);
        B::keep(next[t]);
      } else {
        constexpr int t = (i - score_products) % value_tiles, c = (i - score_products) / value_tiles;
        B::template multiply<S.kv, 32>(operand, reinterpret_cast<const Chunk(&)[1]>(probabilities[c]), s.out[t]);
        B::keep(s.out[t]);
      }
    }
    /// The operand of product i of the turn whose V is in `slot`.
    template <int i, int to>
    TILEWAVE_DEVICE void read(int slot) {
      if constexpr (i < score_products) {
        operands[to] = keys.operand(shared.k[(slot + 1) % stages], i % key_tiles, i / key_tiles);
      } else {
        constexpr int of = i - score_products;
        operands[to] = values.operand(shared.v[slot % stages], of % value_tiles, of / value_tiles);
      }
    }
    /// Of tile n: what its last token is, counted from its first.
    TILEWAVE_DEVICE std::int32_t last_of(std::int32_t n) const { return at.sequence.kv_count - 1 - token(n); }
    /// Where K, or V, of tile n is. Steady turns ask for one tile after the other, up to the last.
    template <bool whole>
    TILEWAVE_DEVICE const char* move_keys(std::int32_t n) {
      if constexpr (whole) {
        next_keys += n < at.tiles ? std::int64_t{P.keys} * keys.fetch.stride : 0;
      } else {
        next_keys = of_keys + std::int64_t{token(n)} * keys.fetch.stride;
      }
      return next_keys;
    }
    template <bool whole>
    TILEWAVE_DEVICE const char* move_values(std::int32_t n) {
      if constexpr (whole) {
        next_values += n < at.tiles ? std::int64_t{P.keys} * values.stride() : 0;
      } else {
        next_values = of_values + std::int64_t{token(n)} * values.stride();
      }
      return next_values;
    }
    /// Copy i of turn n: of K of tile n + stages, then of V of tile n + stages - 1.
    template <int i, bool whole>
    TILEWAVE_DEVICE void fetch(std::int32_t n, int slot) {
      Chunk* const of_k = shared.k[slot % stages];
      Chunk* const of_v = shared.v[(slot + stages - 1) % stages];
      constexpr int of = i - Keys::fetches;
      if constexpr (direct) {
        if constexpr (i == 0) move_keys<whole>(n + stages);
        if constexpr (of == 0) move_values<whole>(n + stages - 1);
        if constexpr (of < 0) {
          keys.template copy<i, whole>(of_k, next_keys, whole ? 0 : last_of(n + stages));
        } else {
          values.template copy<of, whole>(of_v, next_values, whole ? 0 : last_of(n + stages - 1));
        }
      } else {  // what was loaded a turn ago is stored
        if constexpr (of < 0) {
          keys.template put<i>(of_k);
        } else {
          values.template put<of>(of_v);
        }
        load<i, whole>(n + 1);
      }
    }
    /// Into registers, for turn n to store.
    template <int i, bool whole>
    TILEWAVE_DEVICE void load(std::int32_t n) {
      constexpr int of = i - Keys::fetches;
      if constexpr (i == 0) move_keys<whole>(n + stages);
      if constexpr (of == 0) move_values<whole>(n + stages - 1);
      if constexpr (of < 0) {
        keys.template load<i, whole>(next_keys, whole ? 0 : last_of(n + stages));
      } else {
        values.template load<of, whole>(next_values, whole ? 0 : last_of(n + stages - 1));
      }
    }

    /// Behind product i: its share of the exponentials. Those of step c are there before the first product with them.
    template <int i>
    TILEWAVE_DEVICE void exponentials(Sums (&now)[key_tiles]) {
      constexpr int early = 5 * pairs / 8, late_slots = products - score_products - value_tiles;
      const auto pair = [&](auto p) TILEWAVE_INLINE_LAMBDA {
        constexpr int e = 2 * p;
        float& low = now[e / 16][e % 16];
        float& high = now[e / 16][e % 16 + 1];
        low = B::exp2(fused(low, scale, s.less));
        high = B::exp2(fused(high, scale, s.less));
        s.sum += low;
        s.sum += high;
        B::keep(s.sum);
        probabilities[p / 4][p % 4] = packed(low, high);
        if constexpr (p % 4 == 3) B::keep(probabilities[p / 4]);
      };
      if constexpr (i < score_products) {
        if constexpr (i >= first_exponential)
          interleave<early, score_products - first_exponential, i - first_exponential>(pair);
      } else if constexpr (i < score_products + late_slots) {
        interleave<pairs - early, late_slots, i - score_products>(
            [&](auto p) TILEWAVE_INLINE_LAMBDA { pair(Index<p + early>{}); });
      }
    }
    TILEWAVE_DEVICE static std::uint32_t packed(float low, float high) {
      if constexpr (S.kv == DType::f16) return B::pack_f16(low, high);
      if constexpr (!cut) return B::pack_bf16(low, high);
      return B::template pick_bytes<2, 3, 6, 7>(__builtin_bit_cast(std::uint32_t, low),
                                                __builtin_bit_cast(std::uint32_t, high));
    }
    /// Behind product i: its share of the next tile's maxima, from the third product of values on.
    template <int i>
    TILEWAVE_DEVICE void maxima(const Sums (&next)[key_tiles]) {
      constexpr int first = score_products + 2;
      if constexpr (i >= first) {
        if constexpr (i == first) largest = next[0][0];
        interleave<pairs, products - first, i - first>([&](auto p) TILEWAVE_INLINE_LAMBDA { join<p>(next); });
        B::keep(largest);
      }
    }
    template <int p>
    TILEWAVE_DEVICE void join(const Sums (&of)[key_tiles]) {
      constexpr int e = 2 * p;
      largest = Max{}(Max{}(of[e / 16][e % 16], of[e / 16][e % 16 + 1]), largest);
    }
    TILEWAVE_DEVICE void find_largest(const Sums (&of)[key_tiles]) {
      largest = of[0][0];
      static_for<pairs>([&](auto p) TILEWAVE_INLINE_LAMBDA { join<p>(of); });
    }

    /// Where a score is too far above the reference of its row, that becomes the largest score so far.
    TILEWAVE_DEVICE void raise_reference() {
      if (B::any(fused(largest, scale, s.less) > slack + probability_log2)) [[unlikely]]
        rescale();
    }
    TILEWAVE_DEVICE void rescale() {
      const float of_row = Max{}(largest, B::shuffle_xor(largest, 32)) * scale - probability_log2;
      const float raised = Max{}(-s.less, of_row), factor = B::exp2(-s.less - raised);
      s.less = -raised;
      s.sum *= factor;
      TILEWAVE_UNROLL
      for (int t = 0; t < value_tiles; ++t) {
        TILEWAVE_UNROLL
        for (int i = 0; i < Map::sums; ++i) s.out[t][i] *= factor;
      }
    }

    TILEWAVE_DEVICE void mask_scores(std::int32_t token, Sums (&of)[key_tiles]) const {
      const std::int32_t first = token + Map::kv_row(B::lane_id(), 0);
      static_for<elements>([&](auto e) TILEWAVE_INLINE_LAMBDA {
        const std::int32_t key = first + 32 * (e / 16) + Map::kv_row(0, e % 16);
        if (key < s.visible.first || key >= s.visible.end) of[e / 16][e % 16] = minus_infinity;
      });
    }

    /// Of `count` actions spread over `slots`: those of slot `slot`.
    template <int count, int slots, int slot, class Action>
    TILEWAVE_DEVICE static void interleave(const Action& action) {
      constexpr int from = min_of(count * slot / slots, count), to = min_of(count * (slot + 1) / slots, count);
      static_for<to - from>([&](auto index) TILEWAVE_INLINE_LAMBDA { action(Index<from + index>{}); });
    }
  };

  TILEWAVE_DEVICE static void write(const FlashAttentionArgs& a, const Place& at, const State& s) {
    const float all = s.sum + B::shuffle_xor(s.sum, 32);
    const float sum = at.sequence.beyond_capacity ? __builtin_nanf("") : all;
    const float lse = sum == 0.0f ? minus_infinity : (B::log2(sum) - s.less) * ln_2;
    JoinedSink joined{1.0f, lse};
    if (a.sinks != nullptr) joined = join_sink<B>(lse, B::load(a.sinks + at.head));
    const std::int32_t row = row_of(at);
    if (row >= at.sequence.q_count) return;
    float scale = sum == 0.0f ? 0.0f : joined.out_scale * (cut ? 1.0f + lost_by_cut : 1.0f) / sum;
    if constexpr (is_fp8(S.out)) scale *= B::load(a.out_scale);
    constexpr int element = size_of(S.out);
    char* const to = static_cast<char*>(a.out) + element * at.sequence.query_at(a, a.out_strides, row, at.head);
    TILEWAVE_UNROLL
    for (int t = 0; t < value_tiles; ++t) {
      TILEWAVE_UNROLL
      for (int i = 0; i < Map::sums; i += 4) {
        Vec<float, 4> of;
        TILEWAVE_UNROLL
        for (int e = 0; e < 4; ++e) of[e] = s.out[t][i + e] * scale;
        const int dimension = 32 * t + Map::kv_row(B::lane_id(), i);
        B::store(reinterpret_cast<Packed<S.out, 4>*>(to + element * dimension), narrow<B, S.out, 4>(of));
      }
    }
    if (a.lse != nullptr && Map::unit(B::lane_id()) == 0)
      B::store(a.lse + at.head * a.lse_head_stride + at.sequence.q_first + row, joined.lse);
  }
};

}  // namespace tilewave
