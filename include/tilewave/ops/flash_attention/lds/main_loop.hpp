// SPDX-License-Identifier: MIT
// The main loop of a wave of path lds walks the keys.
//
// Step n multiplies the scores of tile n + 1 and the values of tile n. The exponentials of tile n stand between the
// products of both, so that the vector unit works while the matrix unit is busy. What stands below a product is issued
// behind it. The drawing is for head size 128, tiles of 64 keys and operands four products ahead:
//
//   products     K(n+1) Q: 0 .. 15                    V(n) P(n): 16 .. 27            | barrier | 28 .. 31
//   read LDS     K(n+1) 4 .. 15, V(n) 16 .. 19        V(n) 20 .. 31                  |         | K(n+2) 0 .. 3
//   vector unit  exponentials of tile n, as many behind each product from 2 on       |         | maxima of n + 1
//   copies       K(n + stages), V(n + stages - 1) into the slots of K(n) and V(n - 1)
//
// Behind the barrier all waves have read K(n+1) and V(n), and K(n+2) and V(n+1) are in LDS. If the chip copies 16 bytes
// straight into LDS, the copies of stages - 2 steps stay under way across the barrier. Else the next tiles wait in
// registers.
//
// Softmax: exponents are relative to a reference of the row. It is raised only if a score exceeds it by more than
// `slack`, so most steps rescale nothing. Tiles that a row of the block does not see as a whole come first, in a loop
// of their own, and the steady loop needs no mask.
#pragma once

#include "tilewave/core/static_for.hpp"
#include "tilewave/ops/flash_attention/lds/places.hpp"

namespace tilewave {

/// The main loop of one wave.
template <class L>
struct FlashLdsMainLoop {
  using B = typename L::Room;
  using Sums = typename L::Sums;
  // Each constant is named here, because g++ 12 finds no inherited ones in lambdas.
  static constexpr int stages = L::stages, ahead = L::ahead, first_exponential = L::first_exponential;
  static constexpr int key_tiles = L::key_tiles, key_slices = L::key_slices, value_tiles = L::value_tiles;
  static constexpr int score_products = L::score_products, products = L::products;
  static constexpr int elements = L::elements, pairs = L::pairs, tile_keys = L::tile_keys;
  static constexpr float slack = L::slack, probability_log2 = L::probability_log2;
  static constexpr bool truncates = L::truncates, late = L::late;
  static constexpr int chunks = L::chunks, value_lag = L::value_lag;
  using Map = typename L::Map;
  using Keys = typename L::Keys;
  using Values = typename L::Values;
  static constexpr DType type = L::type;

  const FlashLdsWorkItem& item;
  typename L::Shared& shared;
  typename L::State& s;
  FlashLdsPlaces<L> places;
  Keys keys;
  Values values;
  float scale;                                             // multiplies scores to log2 units
  Sums scores[L::turns ? 1 : 2][key_tiles];                // of tiles n and n + 1, in turn
  Chunk probabilities[late ? 2 : 1][key_slices * chunks];  // late: of tiles n and n - 1, in turn
  Chunk operands[ahead][chunks];
  float largest;  // the lane's largest score of the next step's tile, not scaled
  bool raised;    // late: outputs are to be multiplied by `factor` at the end of the step
  float factor;

  static constexpr bool direct = B::facts.direct_copies;
  static constexpr int copies = Keys::fetches + Values::fetches;  // in one step
  static constexpr int pending = (stages - 2) * copies;           // under way across a barrier

  TILEWAVE_DEVICE FlashLdsMainLoop(const FlashAttentionArgs& a, const FlashLdsWorkItem& work_item,
                                   typename L::Shared& lds, typename L::State& state)
      : item(work_item),
        shared(lds),
        s(state),
        places(a, work_item, lds),
        keys(places.key_stride, B::wave_id()),
        values(places.value_stride, B::wave_id()),
        scale(__builtin_bit_cast(float, B::opaque(__builtin_bit_cast(std::uint32_t, state.scale)))) {}

  TILEWAVE_DEVICE void run_turns() {
    const std::int32_t all = item.tiles - 1,
                       steady = align_down(all - max_of(item.masked - 1, 0), std::int32_t{stages}),
                       masked = all - steady;
    int slot = (stages - masked % stages) % stages;
    prepare(slot);
    softmax<false>(-1, (slot + stages - 1) % stages);
    const bool second = B::wave_id() >= L::tile.waves / 2;
    if (second) B::lds_barrier();
    std::int32_t n = 0;
    for (; n < masked; ++n) {
      products_turn<false>(n, slot);
      softmax<false>(n, slot);
      slot = (slot + 1) % stages;
    }
    for (; n + stages <= all; n += stages) {
      static_for<stages>([&](auto i) TILEWAVE_INLINE_LAMBDA {
        products_turn<true>(n + i, i);
        softmax<true>(n + i, i);
      });
    }
    // the values of the last tile
    static_for<ahead>([&](auto i) TILEWAVE_INLINE_LAMBDA { read<score_products + i, i>(0); });
    static_for<products - score_products>([&](auto i) TILEWAVE_INLINE_LAMBDA {
      multiply<score_products + i, 0>(scores[0]);
      if constexpr (score_products + i + ahead < products) read<score_products + i + ahead, i % ahead>(0);
    });
    if constexpr (direct) B::template copies_wait<0>();
    if (!second) B::lds_barrier();
  }
  template <bool whole>
  TILEWAVE_DEVICE void products_turn(std::int32_t n, int slot) {
    B::template priority<1>();
    if constexpr (!direct) static_for<ahead>([&](auto i) TILEWAVE_INLINE_LAMBDA { read<i, i>(slot); });
    static_for<products>([&](auto i) TILEWAVE_INLINE_LAMBDA {
      multiply<i, 0>(scores[0]);
      if constexpr (i + ahead < products) read<i + ahead, i % ahead>(slot);
      B::sched_fence();
      interleave<copies, products - ahead, i>([&](auto c) TILEWAVE_INLINE_LAMBDA { fetch<c, whole>(n, slot); });
      if constexpr (i == products - 1 - early) B::lds_barrier();
      B::sched_fence();
    });
    B::template priority<0>();
  }
  static constexpr int early = 2;

  template <bool whole>
  TILEWAVE_DEVICE void softmax(std::int32_t n, int slot) {
    if constexpr (direct) static_for<ahead>([&](auto i) TILEWAVE_INLINE_LAMBDA { read<i, i>(slot + 1); });
    B::sched_fence();
    if constexpr (!whole) mask_scores(token(n + 1), scores[0]);
    find_largest(scores[0]);
    raise_reference();
    B::sched_fence();
    static_for<elements / 2>([&](auto g) TILEWAVE_INLINE_LAMBDA {
      static_for<2>([&](auto j) TILEWAVE_INLINE_LAMBDA {
        constexpr int e = 2 * g + j;
        float& x = scores[0][e / 16][e % 16];
        x = B::exp2(fused(x, scale, s.negative_reference));
        B::keep(x);
      });
      if constexpr (g > 0) s.sum += scores[0][(g - 1) / 16][(g - 1) % 16];
      B::keep(s.sum);
      B::sched_fence();
    });
    static_for<elements>([&](auto e) TILEWAVE_INLINE_LAMBDA {
      if constexpr (e >= elements / 2 - 1) s.sum += scores[0][e / 16][e % 16];
      pack<e>(scores[0], probabilities[0]);
    });
    B::sched_fence();
    if constexpr (direct) B::template copies_wait<(stages - 3) * copies>();
    B::lds_barrier();
    B::sched_fence();
  }

  TILEWAVE_DEVICE void run() {
    if constexpr (L::turns) return run_turns();
    if constexpr (late) {  // step 0 multiplies values of a tile before the first
      TILEWAVE_UNROLL
      for (Chunk& of : probabilities[1]) of = Chunk{};
    }
    const std::int32_t steady = align_down(item.tiles - item.masked, std::int32_t{stages}),
                       masked = item.tiles - steady;
    int slot = (stages - masked % stages) % stages;  // of tile 0: the steady loop begins with slot 0
    prepare(slot);
    std::int32_t n = 0;
    // Two masked steps at a time move no scores, but take registers that copies through registers do not leave.
    for (; direct ? masked % 2 > n : n < masked; ++n) {
      step<false, 0>(n, slot);
      TILEWAVE_UNROLL
      for (int t = 0; t < key_tiles; ++t) scores[0][t] = scores[1][t];
      if constexpr (late) {
        TILEWAVE_UNROLL
        for (int c = 0; c < key_slices * chunks; ++c) probabilities[1][c] = probabilities[0][c];
      }
      slot = (slot + 1) % stages;
    }
    if constexpr (direct) {
      for (; n < masked; n += 2) {
        step<false, 0>(n, slot);
        step<false, 1>(n + 1, slot + 1);
        slot = (slot + 2) % stages;
      }
    }
    for (; n + stages <= item.tiles; n += stages) {
      static_for<stages>([&](auto i) TILEWAVE_INLINE_LAMBDA { step<true, i % 2>(n + i, i); });
    }
    if constexpr (late) finish(stages - 1);
    if constexpr (direct) B::template copies_wait<0>();
  }

 private:
  /// Fetches the first tiles of K and V, and computes the scores of tile 0.
  TILEWAVE_DEVICE void prepare(int slot) {
    if constexpr (direct) {
      static_for<Keys::fetches>([&](auto i) TILEWAVE_INLINE_LAMBDA {
        keys.template copy<i>(shared.k[slot], places.template first<i>(keys));
      });
      places.begin(1 - stages, keys, values);
      // LLVM does not see copies, and would wait for those below at the first use of q. So q is there before them.
      static_for<L::head_slices>([&](auto c) TILEWAVE_INLINE_LAMBDA { B::keep(s.q[c]); });
      B::template copies_wait<0>();
    } else {
      static_for<Keys::fetches>([&](auto i)
                                    TILEWAVE_INLINE_LAMBDA { keys.template load<i>(places.template first<i>(keys)); });
      places.begin(-1, keys, values);
      static_for<Keys::fetches>([&](auto i) TILEWAVE_INLINE_LAMBDA { keys.template put<i>(shared.k[slot]); });
      static_for<copies>([&](auto i) TILEWAVE_INLINE_LAMBDA { load<i, false>(-1); });
      static_for<copies>([&](auto i) TILEWAVE_INLINE_LAMBDA { fetch<i, false>(-1, slot + 1); });
    }
    B::lds_barrier();
    static_for<ahead>([&](auto i) TILEWAVE_INLINE_LAMBDA { read<i, i>(slot + stages - 1); });
    static_for<score_products>([&](auto i) TILEWAVE_INLINE_LAMBDA {
      multiply<i, 0>(scores[0]);
      if constexpr (i + ahead < score_products) read<i + ahead, i % ahead>(slot + stages - 1);
      B::sched_fence();
      if constexpr (direct) {
        interleave<(stages - 1) * copies, score_products, i>([&](auto c) TILEWAVE_INLINE_LAMBDA {
          fetch<c % copies, false>(c / copies + 1 - stages, slot + c / copies + 1);
        });
        B::sched_fence();
      }
    });
    if constexpr (direct) B::template copies_wait<pending>();
    B::lds_barrier();
    if constexpr (L::turns) return;
    static_for<ahead>([&](auto i) TILEWAVE_INLINE_LAMBDA { read<i, i>(slot); });
    mask_scores(token(0), scores[0]);
    find_largest(scores[0]);
  }

  TILEWAVE_DEVICE std::int32_t token(std::int32_t n) const { return item.tile(n) * tile_keys; }

  /// Runs step n, whose tile has its V in `slot`.
  template <bool whole, int parity>
  TILEWAVE_DEVICE void step(std::int32_t n, int slot) {
    constexpr int last_read = products - ahead;
    Sums(&now)[key_tiles] = scores[parity], (&next)[key_tiles] = scores[1 - parity];
    static_for<products>([&](auto i) TILEWAVE_INLINE_LAMBDA {
      if constexpr (products_first) B::template priority<max_of(rank(i), 1)>();
      multiply<i, late ? 1 - parity : 0>(next);
      if constexpr (products_first) B::template priority<0>();
      if constexpr (i < last_read) {
        read<i + ahead, i % ahead>(slot);
      } else {
        read<i - last_read, i % ahead>(slot + 1);
      }
      B::sched_fence();  // a read that follows on vector instructions waits
      interleave<copies, last_read, i>([&](auto c) TILEWAVE_INLINE_LAMBDA { fetch<c, whole>(n, slot); });
      if constexpr (i == first_exponential - 1) raise_reference();
      exponentials<i, late ? parity : 0>(now);
      if constexpr (whole) maxima<i>(next);
      if constexpr (i == last_read - 1) {
        if constexpr (direct) B::template copies_wait<pending>();
        B::lds_barrier();
      }
      if constexpr (!products_first && rank(i + 1) != rank(i)) B::template priority<rank(i + 1)>();
      B::sched_fence();
    });
    if constexpr (late) {
      if (raised) [[unlikely]]
        rescale_outputs();
    }
    if constexpr (!whole) {
      mask_scores(token(n + 1), next);
      find_largest(next);
    }
  }

  /// Returns the priority of a wave before product i. The older of two waves of a SIMD would always go first, and wait
  /// for the other at the barrier. Priorities fall towards the barrier, so that the wave that is behind goes first.
  TILEWAVE_HOST_DEVICE static constexpr int rank(int i) {
    const int late = i - score_products, until_barrier = products - ahead - score_products;
    if (late < 0 || late >= until_barrier) return 3;
    return late < until_barrier / 2 ? 2 : late < until_barrier * 5 / 6 ? 1 : 0;
  }
  /// If a product is two instructions, there is time to put it before the vector instructions of the other wave, which
  /// would keep the matrix unit waiting.
  static constexpr bool products_first = !direct || chunks > 1;

  /// Late: multiplies the values of the last tile.
  TILEWAVE_DEVICE void finish(int slot) {
    static_for<ahead>([&](auto i) TILEWAVE_INLINE_LAMBDA { read<score_products + i, i>(slot + 1); });
    static_for<products - score_products>([&](auto i) TILEWAVE_INLINE_LAMBDA {
      static_assert(score_products % ahead == 0, "operand i of a step lies in place i % ahead");
      multiply<score_products + i, 1>(scores[0]);
      if constexpr (score_products + i + ahead < products) read<score_products + i + ahead, i % ahead>(slot + 1);
    });
  }

  /// Multiplies product i of a step, from operand i % ahead. Its probabilities are those of `parity`.
  template <int i, int parity>
  TILEWAVE_DEVICE void multiply(Sums (&next)[key_tiles]) {
    const Chunk(&operand)[chunks] = operands[i % ahead];
    if constexpr (i < score_products) {
      constexpr int t = i % key_tiles, c = i / key_tiles;
      if constexpr (c == 0) next[t] = Sums{};
      B::template multiply<type, 32>(operand, reinterpret_cast<const Chunk(&)[chunks]>(s.q[c * chunks]), next[t]);
      B::keep(next[t]);
    } else {
      constexpr int t = (i - score_products) % value_tiles, c = (i - score_products) / value_tiles;
      B::template multiply<type, 32>(
          operand, reinterpret_cast<const Chunk(&)[chunks]>(probabilities[parity][c * chunks]), s.out[t]);
      B::keep(s.out[t]);
    }
  }
  /// Reads the operand of product i of the step whose tile has its V in `slot`.
  template <int i, int to>
  TILEWAVE_DEVICE void read(int slot) {
    if constexpr (i < score_products) {
      keys.operand(shared.k[(slot + 1) % stages], i % key_tiles, i / key_tiles, operands[to]);
    } else {
      constexpr int of = i - score_products;
      values.operand(shared.v[(slot + (late ? stages - 1 : 0)) % stages], of % value_tiles, of / value_tiles,
                     operands[to]);
    }
  }
  /// Returns the sequence's last token, counted from the first token of tile n.
  TILEWAVE_DEVICE std::int32_t last_of(std::int32_t n) const { return item.sequence.kv_count - 1 - token(n); }
  /// Issues fetch i of step n. Fetches of K, tile n + stages, come before those of V, tile n + stages - value_lag.
  template <int i, bool whole>
  TILEWAVE_DEVICE void fetch(std::int32_t n, int slot) {
    Chunk* const of_k = shared.k[slot % stages];
    Chunk* const of_v = shared.v[(slot + 2 * stages - value_lag) % stages];
    constexpr int of = i - Keys::fetches;
    if constexpr (direct) {
      const FlashLdsPlace from = places.template next<i, whole>(n, keys, values);
      if constexpr (of < 0) {
        keys.template copy<i>(of_k, from);
      } else {
        values.template copy<of>(of_v, from);
      }
    } else {  // the loads of the step before are stored
      if constexpr (of < 0) {
        keys.template put<i>(of_k);
      } else {
        values.template put<of>(of_v);
      }
      load<i, whole>(n + 1);
    }
  }
  /// Loads part i of the tiles of step n into registers, for that step to store.
  template <int i, bool whole>
  TILEWAVE_DEVICE void load(std::int32_t n) {
    constexpr int of = i - Keys::fetches;
    const FlashLdsPlace from = places.template next<i, whole>(n, keys, values);
    if constexpr (of < 0) {
      keys.template load<i>(from);
    } else {
      values.template load<of, whole>(from, whole ? 0 : last_of(n + stages - value_lag));
    }
  }

  /// Exponentials stand behind so many products, until the products of the last k slice or the barrier, or late until
  /// the end.
  static constexpr int exponential_slots = products - (late ? 0 : max_of(ahead, value_tiles)) - first_exponential;
  static constexpr bool probabilities_in_time() {
    if (late) return true;
    for (int k_slice = 0; k_slice < key_slices; ++k_slice) {
      int slot = 0;  // the product, from first_exponential on, behind which the slice's last probability is packed
      while ((elements + 1) * (slot + 1) / exponential_slots <= 8 * k_slice + 8) ++slot;
      if (first_exponential + slot >= score_products + k_slice * value_tiles) return false;
    }
    return true;
  }

  /// Issues the exponentials that stand behind product i. They become the probabilities of `parity`.
  template <int i, int parity>
  TILEWAVE_DEVICE void exponentials(Sums (&now)[key_tiles]) {
    static_assert(probabilities_in_time(), "probabilities of a k slice are there before the first product with them");
    constexpr int slots = exponential_slots;
    if constexpr (i >= first_exponential && i < first_exponential + slots) {
      interleave<elements + 1, slots, i - first_exponential>([&](auto e) TILEWAVE_INLINE_LAMBDA {
        if constexpr (e < elements) {
          float& x = now[e / 16][e % 16];
          x = B::exp2(fused(x, scale, s.negative_reference));
          B::keep(x);
        }
        if constexpr (e > 0) use_exponential<e - 1>(now, probabilities[parity]);
      });
    }
  }
  /// Adds exponential e to the sum and packs it. This runs one exponential late, since each takes some cycles.
  template <int e>
  TILEWAVE_DEVICE void use_exponential(const Sums (&now)[key_tiles], Chunk (&to)[key_slices * chunks]) {
    s.sum += now[e / 16][e % 16];
    B::keep(s.sum);
    pack<e>(now, to);
  }
  template <int e>
  TILEWAVE_DEVICE void pack(const Sums (&now)[key_tiles], Chunk (&to)[key_slices * chunks]) {
    constexpr int unit = 16 / size_of(type), in_word = unit / 4;  // elements
    const Sums& of = now[e / 16];
    constexpr int i = e % 16;
    if constexpr (e % in_word == in_word - 1) {
      std::uint32_t& word = to[e / unit][e % unit / in_word];
      if constexpr (is_fp8(type)) {
        word = B::pack_fp8_within(of[i - 3], of[i - 2], of[i - 1], of[i]);
      } else {
        word = packed(of[i - 1], of[i]);
      }
      if constexpr (e % unit == unit - 1) B::keep(to[e / unit]);
    }
  }
  TILEWAVE_DEVICE static std::uint32_t packed(float low, float high) {
    if constexpr (type == DType::f16) return B::pack_f16(low, high);
    if constexpr (!truncates) return B::pack_bf16(low, high);
    return B::template pick_bytes<2, 3, 6, 7>(__builtin_bit_cast(std::uint32_t, low),
                                              __builtin_bit_cast(std::uint32_t, high));
  }
  /// Finds the largest of the next tile's scores, behind the last products.
  template <int i>
  TILEWAVE_DEVICE void maxima(const Sums (&next)[key_tiles]) {
    constexpr int first = products - ahead;
    if constexpr (i >= first) {
      if constexpr (i == first) largest = next[0][0];
      interleave<pairs, ahead, i - first>([&](auto p) TILEWAVE_INLINE_LAMBDA { join<p>(next); });
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

  /// If a score is too far above the reference of its row, the largest score so far becomes the reference. Other rows
  /// keep theirs, so that a row's bits do not depend on them.
  TILEWAVE_DEVICE void raise_reference() {
    raised = B::any(is_above(largest));
    if (raised) [[unlikely]]
      rescale();
  }
  TILEWAVE_DEVICE bool is_above(float score) const {
    return fused(score, scale, s.negative_reference) > slack + probability_log2;
  }
  TILEWAVE_DEVICE void rescale() {
    const float of_row = Max{}(largest, B::shuffle_xor(largest, 32));
    const float reference = is_above(of_row) ? of_row * scale - probability_log2 : -s.negative_reference;
    factor = B::exp2(-s.negative_reference - reference);
    s.negative_reference = -reference;
    s.sum *= factor;
    if constexpr (!late) rescale_outputs();
  }
  /// Scales the sums of values. Late, those of the tile before have joined by then.
  TILEWAVE_DEVICE void rescale_outputs() {
    TILEWAVE_UNROLL
    for (int t = 0; t < value_tiles; ++t) {
      TILEWAVE_UNROLL
      for (int i = 0; i < Map::sums; ++i) s.out[t][i] *= factor;
    }
  }

  TILEWAVE_DEVICE void mask_scores(std::int32_t token, Sums (&of)[key_tiles]) const {
    if (!B::any(token < s.visible.first || token + tile_keys > s.visible.end)) return;
    const std::int32_t first = B::opaque(token + Map::kv_row(B::lane_id(), 0) - s.visible.first);
    const auto seen = static_cast<std::uint32_t>(max_of(s.visible.end - s.visible.first, 0));
    static_for<elements>([&](auto e) TILEWAVE_INLINE_LAMBDA {
      float& x = of[e / 16][e % 16];
      if (static_cast<std::uint32_t>(first + 32 * (e / 16) + Map::kv_row(0, e % 16)) >= seen) x = minus_infinity;
      B::keep(x);  // one at a time: LLVM would compare all of them first, which takes more SGPRs than there are
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
