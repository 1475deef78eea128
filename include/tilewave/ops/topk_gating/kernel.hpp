// SPDX-License-Identifier: MIT
// Chooses the best experts of every token. Grid: P.rows tokens a block. P.lanes lanes of a wave hold the logits of a
// token in registers, so several tokens fill a wave where experts are few. The value that orders a token's experts
// becomes a key, with the expert's index in the same integer. Each lane sorts its own keys, and lanes merge their best
// (tile/top_keys.hpp), so there is no round for each choice. Every lane then has all choices and writes its part of
// them. Shared memory: scores of groups of experts, if there are any. Bound: memory where tokens are many, else the
// latency of one read and the merges.
#pragma once

#include "tilewave/core/launch_arguments.hpp"
#include "tilewave/ops/topk_gating/groups.hpp"
#include "tilewave/ops/topk_gating/policy.hpp"
#include "tilewave/ops/topk_gating/problem.hpp"
#include "tilewave/tile/column_vector.hpp"
#include "tilewave/tile/top_keys.hpp"

namespace tilewave {

struct TopkGatingArgs {
  const void* logits;
  const float* bias;
  float* weights;
  std::int32_t* indices;
  std::int32_t* token_expert_indices;
  RowExtent extent;
  std::int64_t logits_stride, weights_stride, indices_stride, token_expert_stride;
  GatingGroups groups;
  std::int32_t topk;
  bool sigmoid, renormalise;
  bool by_score;    // true: choices are by score + bias; false: by logit
  bool sums_token;  // true: weights need the sum over all experts
  float scale;
};
static_assert(sizeof(TopkGatingArgs) <= sm90_arguments_with_launch);

template <class B, TopkGatingSpec S, TopkGatingPolicy P>
struct TopkGating {
  static constexpr RowPolicy rows = P;
  using Room = B;
  using Args = TopkGatingArgs;
  using Tile = Row<B, S.x, rows>;
  using Groups = GroupChoice<B, Tile, rows>;
  using Shared = typename Groups::Shared;
  static constexpr int block_threads = P.block_threads(), waves_per_simd = P.waves_per_simd;
  static constexpr int unit = Tile::unit, keep = P.keep;

  TILEWAVE_DEVICE static void run(const Args& a, Shared& shared) {
    const auto at = Tile::lane_row(a.extent, shared);
    const void* source = Tile::row(a.logits, a.extent, at, {a.logits_stride, 0});
    Tile x;
    x.load(source, at, 0, a.extent.columns);
    Values v;
    std::uint32_t counts = 0;  // bit c: the experts of chunk c may be chosen (in a register: 16 masks would fill SGPRs)
    TILEWAVE_UNROLL
    for (int c = 0; c < P.chunks; ++c) {
      const bool there = Tile::column(at.lane, c) < a.extent.columns;
      counts |= there ? 1u << c : 0u;
      v[c] = x.values(c);
      TILEWAVE_UNROLL
      for (int e = 0; e < unit; ++e) v[c][e] = there ? v[c][e] : minus_infinity;
    }
    Scores scores{a.sigmoid, 0.0f, 1.0f};
    if (a.sums_token) scores = over_all(v);
    if (a.by_score) to_scores(a, at.lane, scores, v);
    if (a.groups.groups > 1) Groups::run(shared, a.groups, at.lane, at.slot, v, counts);

    if constexpr (size_of(S.x) == 2) {
      if (!a.by_score) {
        choose<std::uint32_t>(a, at, source, scores, v, counts);
        return;
      }
    }
    choose<std::uint64_t>(a, at, source, scores, v, counts);
  }

 private:
  using LaneRow = typename Tile::LaneRow;
  using Values = Vec<float, unit>[P.chunks];

  struct Scores {
    bool sigmoid;
    float top, inverse;  // for softmax: the logit that is subtracted, and 1 / sum
    TILEWAVE_DEVICE float of(float x) const {
      if (sigmoid) return B::reciprocal(1.0f + B::exp2(-log2_e * x));
      return B::exp2((x - top) * log2_e) * inverse;
    }
  };
  TILEWAVE_DEVICE static float finite_of(float x) { return x == minus_infinity ? 0.0f : x; }

  /// Returns the scores of a softmax over all experts of the token; a NaN does not count.
  TILEWAVE_DEVICE static Scores over_all(const Values& v) {
    float top = minus_infinity, sum = 0.0f;
    TILEWAVE_UNROLL
    for (int c = 0; c < P.chunks; ++c) top = Max{}(top, fold(v[c], Max{}));
    top = finite_of(B::template reduce<P.lanes>(top, Max{}));
    TILEWAVE_UNROLL
    for (int c = 0; c < P.chunks; ++c) {
      Vec<float, unit> weights;
      TILEWAVE_UNROLL
      for (int e = 0; e < unit; ++e) weights[e] = v[c][e] == v[c][e] ? B::exp2((v[c][e] - top) * log2_e) : 0.0f;
      sum += fold(weights, Sum{});
    }
    sum = B::template reduce<P.lanes>(sum, Sum{});
    return {false, top, sum == 0.0f ? 0.0f : 1.0f / sum};
  }

  /// Turns logits into the values by which experts are chosen.
  TILEWAVE_DEVICE static void to_scores(const Args& a, std::int32_t lane, const Scores& scores, Values& v) {
    const auto biases = Tile::template shared_window<DType::f32>(a.bias, 0, a.bias == nullptr ? 0 : a.extent.columns);
    TILEWAVE_UNROLL
    for (int c = 0; c < P.chunks; ++c) {
      ColumnVector<B, DType::f32, unit> bias;
      bias.load(biases, Tile::column(lane, c));
      const Vec<float, unit> of_chunk = bias.values();
      TILEWAVE_UNROLL
      for (int e = 0; e < unit; ++e) v[c][e] = scores.of(v[c][e]) + of_chunk[e];
    }
  }

  /// Chooses experts. `counts` has the chunks whose experts may be chosen, as in run.
  template <class Key>
  TILEWAVE_DEVICE static void choose(const Args& a, const LaneRow& at, const void* source, Scores scores,
                                     const Values& v, std::uint32_t counts) {
    Keys<P.chunks * unit, Key> keys;
    TILEWAVE_UNROLL
    for (int c = 0; c < P.chunks; ++c) {
      Vec<Key, unit> some{};
      if ((counts >> c & 1u) != 0) {  // one branch a chunk, and a wave has few chunks where experts are few
        TILEWAVE_UNROLL
        for (int e = 0; e < unit; ++e) some[e] = key_of<Key>(v[c][e], Tile::column(at.lane, c) + e);
      }
      TILEWAVE_UNROLL
      for (int e = 0; e < unit; ++e) keys[c * unit + e] = some[e];
    }
    using Best = TopKeys<B, keep, Key>;
    Keys<keep, Key> best = Best::best(keys);
    Best::template merge_lanes<P.lanes>(best);
    if (!a.sums_token) scores.top = finite_of(value_of(best[0]));
    write(a, at, source, scores, best);
  }

  // Returns a key. Its high bits order as the value does, and are 0 for a NaN; below them is 1024 less the index, which
  // is 1 to 1024. A key of 32 bits has the 19 highest bits of the order, which are all bits of a 16-bit value.
  template <class Key>
  static constexpr int index_bits = sizeof(Key) == 8 ? 30 : 11;
  template <class Key>
  static constexpr int left_out = sizeof(Key) == 8 ? 0 : 13;
  template <class Key>
  TILEWAVE_DEVICE static Key key_of(float x, std::int32_t expert) {
    const auto bits = __builtin_bit_cast(std::uint32_t, x + 0.0f);  // -0 ranks as 0
    const auto sign = static_cast<std::uint32_t>(static_cast<std::int32_t>(bits) >> 31);
    const std::uint32_t order = x == x ? bits ^ (sign | 0x80000000u) : 0u;
    return Key{order >> left_out<Key>} << index_bits<Key> | static_cast<std::uint32_t>(most_gating_experts - expert);
  }
  template <class Key>
  TILEWAVE_DEVICE static float value_of(Key key) {
    const auto order = static_cast<std::uint32_t>(key >> index_bits<Key>) << left_out<Key>;
    const std::uint32_t lowest = ~(~0u << left_out<Key>);
    return __builtin_bit_cast(float, (order >> 31) != 0 ? order ^ 0x80000000u : ~(order | lowest));
  }
  template <class Key>
  TILEWAVE_DEVICE static std::int32_t expert_of(Key key) {
    return most_gating_experts - static_cast<std::int32_t>(key & (2 * most_gating_experts - 1));
  }

  /// Writes choices slot, slot + writers, ... of the token, each from one lane.
  template <class Key>
  TILEWAVE_DEVICE static void write(const Args& a, const LaneRow& at, const void* source, const Scores& scores,
                                    const Vec<Key, keep>& best) {
    constexpr int writers = min_of(P.lanes, 16), lane_choices = ceil_div(keep, writers);
    const std::int32_t first = at.lane - (P.lanes - writers);  // negative for lanes that have not merged everything
    const auto row = Tile::template window<S.x>(source, at, 0, a.extent.columns);
    float weight[lane_choices], sum = 0.0f;
    std::int32_t expert[lane_choices];
    TILEWAVE_UNROLL
    for (int c = 0; c < lane_choices; ++c) {
      const std::int32_t slot = first + c * writers;
      Key key = best[0];
      TILEWAVE_UNROLL
      for (int i = 1; i < keep; ++i) key = slot == i ? best[i] : key;
      expert[c] = expert_of(key);
      float x = value_of(key);
      if (a.by_score) {
        const auto logit = row.template load<Packed<S.x, 1>>(static_cast<std::uint32_t>(expert[c]) * size_of(S.x));
        x = widen<B, S.x, 1>(logit)[0];
      }
      weight[c] = slot >= 0 && slot < a.topk ? scores.of(x) : 0.0f;
      sum += weight[c];
    }
    float factor = a.scale;
    if (a.renormalise) {
      sum = B::template reduce<writers>(sum, Sum{});
      factor /= sum < 1e-20f ? 1e-20f : sum;  // a NaN stays NaN
    }
    TILEWAVE_UNROLL
    for (int c = 0; c < lane_choices; ++c) {
      const std::int32_t slot = first + c * writers;
      if (!at.active || slot < 0 || slot >= a.topk) continue;
      B::store(a.weights + at.row * a.weights_stride + slot, weight[c] * factor);
      B::store(a.indices + at.row * a.indices_stride + slot, expert[c]);
      if (a.token_expert_indices != nullptr) {
        B::store(a.token_expert_indices + at.row * a.token_expert_stride + slot, slot * a.extent.rows + at.row);
      }
    }
  }
};

}  // namespace tilewave
