// SPDX-License-Identifier: MIT
// FlashLdsWave is what both loops of path lds, main_loop.hpp and turns.hpp, do step by step: fetch a part of a tile,
// read an operand, multiply, and the softmax of a lane's scores.
//
// Softmax: exponents are relative to a reference of the row. It is raised only if a score exceeds it by more than
// `slack`, so most steps rescale nothing. Tiles that a row of the block does not see as a whole come first, in a loop
// of their own, and the steady loop needs no mask.
#pragma once

#include "tilewave/core/static_for.hpp"
#include "tilewave/ops/flash_attention/lds/places.hpp"

namespace tilewave {

template <class L>
struct FlashLdsWave {
  using B = typename L::Room;
  using Map = typename L::Map;
  using Keys = typename L::Keys;
  using Values = typename L::Values;
  using Scores = typename L::Sums[L::key_tiles];           // of a tile
  using Probabilities = Chunk[L::key_slices * L::chunks];  // of a tile
  static constexpr int stages = L::stages, chunks = L::chunks, tile_keys = L::tile_keys;
  static constexpr int key_tiles = L::key_tiles, value_tiles = L::value_tiles, score_products = L::score_products;
  static constexpr int elements = L::elements, unit = 16 / size_of(L::type), in_word = unit / 4;
  static constexpr DType type = L::type;
  static constexpr bool direct = B::facts.direct_copies;
  static constexpr int copies = Keys::fetches + Values::fetches;  // in one step
  /// Returns the parts of a fetch of V that stand by themselves between products. A copy straight into LDS is one.
  /// Through registers a step has these parts: the first fetch of V, stores and loads; stores of K; the other fetches
  /// of V; loads of K. So some loads are under way whenever others are waited for.
  static constexpr int value_parts() {
    if constexpr (direct) {
      return 1;
    } else {
      return Values::puts + Values::loads;
    }
  }
  static constexpr int key_puts = value_parts();                                     // the first part that stores K
  static constexpr int key_loads = Keys::fetches + Values::fetches * value_parts();  // the first part that loads K
  /// Returns the number of part i, through registers, among those of V; or -1 if it is one of K.
  static constexpr int value_part(int i) {
    if (i < key_puts) return i;
    return i < key_puts + Keys::fetches || i >= key_loads ? -1 : i - Keys::fetches;
  }
  static constexpr int parts = direct ? copies : key_loads + Keys::fetches;
  /// Places in pages take many scalar instructions. Waves that take turns find them in the softmax.
  static constexpr bool planned = L::paged && L::turns;

  const FlashLdsWorkItem& item;
  typename L::Shared& shared;
  typename L::State& s;
  FlashLdsPlaces<L> places;
  Keys keys;
  Values values;
  float scale;                       // multiplies scores to log2 units
  Chunk operands[L::ahead][chunks];  // that of product i is at i % ahead
  FlashLdsPlace at[copies];          // of fetches that were planned
  FlashLdsPlace of_value;            // through registers: of the fetch of V whose loads are being issued

  TILEWAVE_DEVICE FlashLdsWave(const FlashAttentionArgs& a, const FlashLdsWorkItem& work_item, typename L::Shared& lds,
                               typename L::State& state)
      : item(work_item),
        shared(lds),
        s(state),
        places(a, work_item, lds),
        keys(places.key_stride, B::wave_id()),
        values(places.value_stride, B::wave_id()),
        scale(__builtin_bit_cast(float, B::opaque(__builtin_bit_cast(std::uint32_t, state.scale)))) {}

  TILEWAVE_DEVICE std::int32_t token(std::int32_t n) const { return item.tile(n) * tile_keys; }

  /// Fetches the first tiles of K and V, and computes the scores of tile 0.
  TILEWAVE_DEVICE void prepare(int slot, Scores& scores) {
    if constexpr (direct) {
      static_for<Keys::fetches>([&](auto i) TILEWAVE_INLINE_LAMBDA {
        keys.template copy<i>(shared.k[slot], places.template first<i>(keys));
      });
      places.begin(1 - stages, keys, values);
      // LLVM does not see copies, and would wait for those below at the first use of q. So q is there before them.
      static_for<L::head_slices * chunks>([&](auto c) TILEWAVE_INLINE_LAMBDA { B::keep(s.q[c]); });
      B::template copies_wait<0>();
    } else {
      static_for<Keys::fetches>([&](auto i)
                                    TILEWAVE_INLINE_LAMBDA { keys.template load<i>(places.template first<i>(keys)); });
      places.begin(-1, keys, values);
      static_for<Keys::fetches>([&](auto i) TILEWAVE_INLINE_LAMBDA { keys.template put<i>(shared.k[slot]); });
      static_for<parts>([&](auto i) TILEWAVE_INLINE_LAMBDA { load<(i + key_loads) % parts, false>(-1); });
      transpose_values();
      if constexpr (planned) plan<0, 1, false>(-1);
      static_for<parts>([&](auto i) TILEWAVE_INLINE_LAMBDA { fetch<i, false, planned>(-1, slot + 1); });
    }
    B::lds_barrier();
    static_for<L::ahead>([&](auto i) TILEWAVE_INLINE_LAMBDA { read<i, i>(slot + stages - 1); });
    static_for<score_products>([&](auto i) TILEWAVE_INLINE_LAMBDA {
      multiply<i>(scores, nullptr);
      if constexpr (i + L::ahead < score_products) read<i + L::ahead, i % L::ahead>(slot + stages - 1);
      B::sched_fence();
      if constexpr (direct) {
        interleave<(stages - 1) * copies, score_products, i>([&](auto c) TILEWAVE_INLINE_LAMBDA {
          fetch<c % copies, false>(c / copies + 1 - stages, slot + c / copies + 1);
        });
        B::sched_fence();
      }
    });
    if constexpr (direct) B::template copies_wait<(stages - 2) * copies>();
    B::lds_barrier();
  }

  /// Finds the places of what step n is to fetch, part i of `slots` parts of the work, and keeps them until then.
  template <int i, int slots, bool whole>
  TILEWAVE_DEVICE void plan(std::int32_t n) {
    interleave<copies, slots, i>([&](auto c) TILEWAVE_INLINE_LAMBDA {
      FlashLdsPlace& of = at[c] = places.template next<c, whole>(direct ? n : n + 1, keys, values);
      B::keep_uniform(of.base);
      B::keep_uniform(of.offset);
      B::keep_uniform(of.bytes);
    });
  }
  template <int i, bool whole, bool from_plan>
  TILEWAVE_DEVICE FlashLdsPlace place(std::int32_t n) {
    if constexpr (from_plan) {
      return at[i];
    } else {
      return places.template next<i, whole>(n, keys, values);
    }
  }

  /// Issues part i of what step n fetches, whose tile has its V in `slot`: K of tile n + stages, then V of tile n +
  /// stages - 1, into the slots of K of tile n and V of tile n - 1. Through registers, what the step before has loaded
  /// is stored.
  template <int i, bool whole, bool from_plan = false>
  TILEWAVE_DEVICE void fetch(std::int32_t n, int slot) {
    Chunk* const of_k = shared.k[slot % stages];
    Chunk* const of_v = shared.v[(slot + stages - 1) % stages];
    if constexpr (direct) {
      constexpr int of = i - Keys::fetches;
      const FlashLdsPlace from = place<i, whole, from_plan>(n);
      if constexpr (of < 0) {
        keys.template copy<i>(of_k, from);
      } else {
        values.template copy<of>(of_v, from);
      }
    } else {
      constexpr int of = value_part(i);
      if constexpr (i >= key_puts && i < key_puts + Keys::fetches) {
        keys.template put<i - key_puts>(of_k);
      } else if constexpr (of >= 0 && of % value_parts() < Values::puts) {
        values.template put<of / value_parts(), of % value_parts()>(of_v);
      }
      load<i, whole, from_plan>(n + 1);
    }
  }
  /// Through registers: loads what part i loads of the tiles of step n, for that step to store.
  template <int i, bool whole, bool from_plan = false>
  TILEWAVE_DEVICE void load(std::int32_t n) {
    if constexpr (i >= key_loads) {
      keys.template load<i - key_loads>(place<i - key_loads, whole, from_plan>(n));
    } else if constexpr (value_part(i) >= 0) {
      constexpr int of = value_part(i) / value_parts(), e = value_part(i) % value_parts() - Values::puts;
      if constexpr (e == 0) of_value = place<Keys::fetches + of, whole, from_plan>(n);
      if constexpr (e >= 0) values.template load<of, e>(of_value);
    }
  }
  /// Through registers: transposes the values that were loaded, for the next step to store.
  TILEWAVE_DEVICE void transpose_values() {
    static_for<Values::fetches>([&](auto i) TILEWAVE_INLINE_LAMBDA { values.template transpose<i>(); });
  }

  /// Reads the operand of product i of the step whose V is in `slot`. Products of scores come before those of values.
  template <int i, int to>
  TILEWAVE_DEVICE void read(int slot) {
    if constexpr (i < score_products) {
      keys.operand(shared.k[(slot + 1) % stages], i % key_tiles, i / key_tiles, operands[to]);
    } else {
      constexpr int of = i - score_products;
      values.operand(shared.v[slot % stages], of % value_tiles, of / value_tiles, operands[to]);
    }
  }
  /// Multiplies product i of a step: scores of the next tile, or values with `probabilities`.
  template <int i>
  TILEWAVE_DEVICE void multiply(Scores& next, const Chunk* probabilities) {
    Chunk(&operand)[chunks] = operands[i % L::ahead];
    // LLVM would read the first half of an operand of i64 once more.
    if constexpr (!direct && size_of(type) == 1) B::keep(operand[0]);
    if constexpr (i < score_products) {
      constexpr int t = i % key_tiles, c = i / key_tiles;
      if constexpr (c == 0) next[t] = typename L::Sums{};
      B::template multiply<type, 32>(operand, reinterpret_cast<const Chunk(&)[chunks]>(s.q[c * chunks]), next[t]);
      B::keep(next[t]);
    } else {
      constexpr int t = (i - score_products) % value_tiles, c = (i - score_products) / value_tiles;
      B::template multiply<type, 32>(operand, reinterpret_cast<const Chunk(&)[chunks]>(probabilities[c * chunks]),
                                     s.out[t]);
      B::keep(s.out[t]);
    }
  }

  /// Makes a probability of score e.
  template <int e>
  TILEWAVE_DEVICE void exponentiate(Scores& of) {
    float& x = of[e / 16][e % 16];
    x = B::exp2(fused(x, scale, s.negative_reference));
    B::keep(x);
  }
  template <int e>
  TILEWAVE_DEVICE void add(const Scores& of) {
    s.sum += of[e / 16][e % 16];
    B::keep(s.sum);
  }
  /// Packs the word of probabilities that element e ends, if it does.
  template <int e>
  TILEWAVE_DEVICE void pack(const Scores& of, Probabilities& to) {
    if constexpr (e % in_word == in_word - 1) {
      const typename L::Sums& from = of[e / 16];
      constexpr int i = e % 16;
      std::uint32_t& word = to[e / unit][e % unit / in_word];
      if constexpr (is_fp8(type)) {
        word = B::pack_fp8_within(from[i - 3], from[i - 2], from[i - 1], from[i]);
      } else {
        word = packed(from[i - 1], from[i]);
      }
      if constexpr (e % unit == unit - 1) B::keep(to[e / unit]);
    }
  }
  TILEWAVE_DEVICE static std::uint32_t packed(float low, float high) {
    if constexpr (type == DType::f16) return B::pack_f16(low, high);
    if constexpr (!L::truncates) return B::pack_bf16(low, high);
    return B::template pick_bytes<2, 3, 6, 7>(__builtin_bit_cast(std::uint32_t, low),
                                              __builtin_bit_cast(std::uint32_t, high));
  }
  /// Joins the p-th pair of scores to the lane's largest one.
  template <int p>
  TILEWAVE_DEVICE static float join(const Scores& of, float largest) {
    constexpr int e = 2 * p;
    return Max{}(Max{}(of[e / 16][e % 16], of[e / 16][e % 16 + 1]), largest);
  }
  TILEWAVE_DEVICE static float largest_of(const Scores& of) {
    float largest = of[0][0];
    static_for<L::pairs>([&](auto p) TILEWAVE_INLINE_LAMBDA { largest = join<p>(of, largest); });
    return largest;
  }

  /// If a score is too far above the reference of its row, the largest score so far becomes the reference. Other rows
  /// keep theirs, so that a row's bits do not depend on them. `largest` is the lane's largest score, not scaled.
  TILEWAVE_DEVICE void raise_reference(float largest) {
    if (B::any(is_above(largest))) [[unlikely]]
      rescale(largest);
  }
  TILEWAVE_DEVICE bool is_above(float score) const {
    return fused(score, scale, s.negative_reference) > L::slack + L::probability_log2;
  }
  TILEWAVE_DEVICE void rescale(float largest) {
    const float of_row = Max{}(largest, B::shuffle_xor(largest, 32));
    const float raised = is_above(of_row) ? of_row * scale - L::probability_log2 : -s.negative_reference;
    const float factor = B::exp2(-s.negative_reference - raised);
    s.negative_reference = -raised;
    s.sum *= factor;
    TILEWAVE_UNROLL
    for (int t = 0; t < value_tiles; ++t) {
      TILEWAVE_UNROLL
      for (int i = 0; i < Map::sums; ++i) s.out[t][i] *= factor;
    }
  }

  TILEWAVE_DEVICE void mask_scores(std::int32_t first_token, Scores& of) const {
    if (!B::any(first_token < s.visible.first || first_token + tile_keys > s.visible.end)) return;
    const std::int32_t first = B::opaque(first_token + Map::kv_row(B::lane_id(), 0) - s.visible.first);
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
