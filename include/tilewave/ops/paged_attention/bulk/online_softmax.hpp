// SPDX-License-Identifier: MIT
// The online softmax of a stage: from products to probabilities in shared memory, with one reference maximum a row for
// the wave group, which need not be the true one, only within L::max_slack of it.
#pragma once

#include "tilewave/attention/scores.hpp"
#include "tilewave/ops/paged_attention/bulk/layout.hpp"

namespace tilewave {

/// L is a PagedAttentionStagedLayout. Scores meet the maximum as they were when it was taken (B::subtract): half an ulp
/// of a large product is a large power.
template <class L>
struct PagedAttentionStagedSoftmax {
  using B = typename L::Room;
  using Args = PagedAttentionArgs;
  using Place = PagedAttentionPlace;
  using State = typename L::State;
  using Products = typename L::Products;
  using Stage = typename PagedAttentionStages<L>::Stage;
  using OfGroup = typename L::OfGroup;
  using Probabilities = Chunk[L::stage_tokens / L::piece][L::rows];
  using Sums = float[L::eights][2];

  /// From products to masked scores in log2 units. Whether one exceeds the reference maximum by more than the slack.
  TILEWAVE_DEVICE static bool scale_and_mask(const Args& a, const Place& at, std::int32_t token, bool edge,
                                             const Stage& stage, const State& s, Products (&scores)[L::tiles]) {
    bool exceeds = false;
    each_token([&](int tile, int h, std::int32_t in_stage) {
      const std::int32_t here = token + in_stage;
      const float k_scale = L::per_token && at.attends(here) ? B::load(&stage.k_scale[in_stage]) : 0.0f;
      L::each_row([&](int j, int e) {
        float& score = L::value(scores[tile], j, h, e);
        score *= L::per_token ? s.factor[j][e] * k_scale : s.factor[j][e];
        if constexpr (L::spec.soft_cap) score = a.cap_log2 * tanh_of<B>(score);
        const std::int32_t behind = s.causal_end[j][e] - 1 - here;  // tokens back from the row's own
        if constexpr (L::spec.alibi) score -= s.slope[j][e] * static_cast<float>(behind);
        if (edge && static_cast<std::uint32_t>(behind) > static_cast<std::uint32_t>(a.window))
          score = L::minus_infinity;
        exceeds = exceeds || score > s.row_max[j][e] + L::max_slack;
      });
    });
    return exceeds;
  }
  /// Probabilities into shared memory, and what they sum up to in this lane.
  TILEWAVE_DEVICE static void exponentiate(const Place& at, std::int32_t token, const Stage& stage, const State& s,
                                           const Products (&scores)[L::tiles], Probabilities& p, Sums& sums) {
    L::each_row([&](int j, int e) { sums[j][e] = 0.0f; });
    if constexpr (L::spec.native) {
      exponentiate_to_fp8(s, scores, p, sums);
      return;
    }
    std::uint32_t words[L::tiles][L::eights][2];
    each_token([&](int tile, int h, std::int32_t in_stage) {
      const float v_scale = L::per_token && at.attends(token + in_stage) ? B::load(&stage.v_scale[in_stage]) : 0.0f;
      TILEWAVE_UNROLL
      for (int j = 0; j < L::eights; ++j) {
        float x[2];
        TILEWAVE_UNROLL
        for (int e = 0; e < 2; ++e) {
          const float maximum = s.row_max[j][e] == L::minus_infinity ? 0.0f : s.row_max[j][e];  // nothing visible yet
          x[e] = B::exp2(B::subtract(L::value(scores[tile], j, h, e), maximum));
          sums[j][e] += x[e];
          x[e] *= L::per_token ? v_scale : L::probability_scale;
        }
        words[tile][j][h] = L::template pack_probabilities<L::v_type>(x[0], x[1]);
      }
    });
    // Matrices are eight tokens h of eight query rows.
    TILEWAVE_UNROLL
    for (int tile = 0; tile < L::tiles; ++tile) {
      Chunk* eight = p[8 * tile + 2 * L::wave() + lane() / 8 % 2];
      if constexpr (L::eights == 1) {
        B::template store_matrices<2>(&eight[lane() % 8],
                                      Vec<std::uint32_t, 2>{{words[tile][0][0], words[tile][0][1]}});
      } else {
        TILEWAVE_UNROLL
        for (int j = 0; j < L::eights; j += 2) {
          const Vec<std::uint32_t, 4> four{
              {words[tile][j][0], words[tile][j][1], words[tile][j + 1][0], words[tile][j + 1][1]}};
          B::template store_matrices<4>(&eight[8 * (j + lane() / 16) + lane() % 8], four);
        }
      }
    }
  }

  TILEWAVE_DEVICE static void raise_maximum(State& s, const Products (&scores)[L::tiles], OfGroup& own) {
    const int wave = L::wave();
    L::each_row([&](int j, int e) {
      float most = L::minus_infinity;
      TILEWAVE_UNROLL
      for (int tile = 0; tile < L::tiles; ++tile) {
        TILEWAVE_UNROLL
        for (int h = 0; h < 2; ++h) most = L::larger(most, L::value(scores[tile], j, h, e));
      }
      most = L::over_tokens(most, L::larger);
      if (lane() / 4 == 0) own.of_wave[L::query_of(lane(), j, e)][wave] = most;
    });
    B::group_barrier();
    L::each_row([&](int j, int e) {
      const Vec<float, 4> maxima = own.of_wave[L::query_of(lane(), j, e)];
      float raised = s.row_max[j][e];
      TILEWAVE_UNROLL
      for (int w = 0; w < L::waves; ++w) raised = L::larger(raised, maxima[w]);
      const float factor = raised == L::minus_infinity ? 1.0f : B::exp2(s.row_max[j][e] - raised);
      s.row_max[j][e] = raised;
      s.row_sum[j][e] *= factor;
      TILEWAVE_UNROLL
      for (int d = 0; d < L::out_tiles; ++d) {
        TILEWAVE_UNROLL
        for (int h = 0; h < 2; ++h) L::value(s.out[d], j, h, e) *= factor;
      }
    });
  }

 private:
  TILEWAVE_DEVICE static int lane() { return B::lane_id(); }

  /// Sums are of what is stored: else a token with nearly all the weight would be off by its rounding.
  TILEWAVE_DEVICE static void exponentiate_to_fp8(const State& s, const Products (&scores)[L::tiles], Probabilities& p,
                                                  Sums& sums) {
    constexpr int matrices = L::tiles * L::eights, at_once = min_of(matrices, 4);
    std::uint32_t words[matrices];  // two tokens h of two query rows each
    TILEWAVE_UNROLL
    for (int m = 0; m < matrices; ++m) {
      const int tile = m / L::eights, j = m % L::eights;
      float x[2][2];
      TILEWAVE_UNROLL
      for (int e = 0; e < 2; ++e) {
        const float maximum = s.row_max[j][e] == L::minus_infinity ? 0.0f : s.row_max[j][e];
        TILEWAVE_UNROLL
        for (int h = 0; h < 2; ++h)
          x[e][h] = B::exp2(B::subtract(L::value(scores[tile], j, h, e), maximum)) * L::probability_scale;
      }
      words[m] = B::pack_fp8(x[0][0], x[0][1], x[1][0], x[1][1]);
      const Vec<std::uint32_t, 2> rounded = B::widen_fp8_to_f16(words[m]);
      TILEWAVE_UNROLL
      for (int e = 0; e < 2; ++e) {
        const Vec<float, 2> pair = B::widen_f16(rounded[e]);
        sums[j][e] += (pair[0] + pair[1]) * (1.0f / L::probability_scale);
      }
    }
    // Matrices are eight pairs of tokens of eight query rows.
    TILEWAVE_UNROLL
    for (int first = 0; first < matrices; first += at_once) {
      Vec<std::uint32_t, at_once> some;
      TILEWAVE_UNROLL
      for (int i = 0; i < at_once; ++i) some[i] = words[first + i];
      const int m = first + lane() / 8 % at_once;
      B::template store_matrices<at_once>(&p[4 * (m / L::eights) + L::wave()][8 * (m % L::eights) + lane() % 8], some);
    }
  }

  /// Call f(tile, h, in_stage) for every token of the lane.
  template <class F>
  TILEWAVE_DEVICE static void each_token(F f) {
    const int first = 16 * L::wave();
    TILEWAVE_UNROLL
    for (int tile = 0; tile < L::tiles; ++tile) {
      TILEWAVE_UNROLL
      for (int h = 0; h < 2; ++h) f(tile, h, 64 * tile + first + L::token_of(lane(), h));
    }
  }
};

}  // namespace tilewave
