// SPDX-License-Identifier: MIT
// The online softmax of a stage: products come in, and probabilities go to shared memory. A wave group keeps one
// reference maximum for each row. It need not be the true maximum, only within L::max_slack of it.
#pragma once

#include "tilewave/attention/scores.hpp"
#include "tilewave/ops/paged_attention/bulk/layout.hpp"

namespace tilewave {

/// L is a PagedAttentionBulkLayout. B::subtract takes the maximum from the very score that the maximum was found among:
/// half an ulp of a large product, rounded differently, is a large power.
template <class L>
struct PagedAttentionBulkSoftmax {
  using B = typename L::Room;
  using Args = PagedAttentionArgs;
  using WorkItem = PagedAttentionWorkItem;
  using State = typename L::State;
  using Products = typename L::Products;
  using Stage = typename PagedAttentionStages<L>::Stage;
  using GroupShared = typename L::GroupShared;
  using Probabilities = Chunk[L::stage_tokens / L::chunk_k][L::rows];
  using Sums = float[L::row_octets][2];

  /// Turns products into masked scores in log2 units. Returns whether one of them exceeds the reference maximum of its
  /// row by more than the slack.
  TILEWAVE_DEVICE static bool scale_and_mask(const Args& a, const WorkItem& item, std::int32_t token, bool edge,
                                             const Stage& stage, const State& s, Products (&scores)[L::tiles]) {
    bool exceeds = false;
    each_token([&](int tile, int half, std::int32_t in_stage) {
      const std::int32_t score_token = token + in_stage;
      float k_scale = 0.0f;
      if constexpr (L::per_token) k_scale = item.attends(score_token) ? B::load(&stage.k_scale[in_stage]) : 0.0f;
      L::each_row([&](int octet, int r) {
        float& score = L::value(scores[tile], octet, half, r);
        score *= L::per_token ? s.factor[octet][r] * k_scale : s.factor[octet][r];
        if constexpr (L::spec.soft_cap) score = a.cap_log2 * tanh_of<B>(score);
        const std::int32_t behind = s.causal_end[octet][r] - 1 - score_token;  // tokens back from the row's own
        if constexpr (L::spec.alibi) score -= s.slope[octet][r] * static_cast<float>(behind);
        if (edge && static_cast<std::uint32_t>(behind) > static_cast<std::uint32_t>(a.window))
          score = L::minus_infinity;
        exceeds = exceeds || score > s.row_max[octet][r] + L::max_slack;
      });
    });
    return exceeds;
  }

  /// Puts probabilities into shared memory. `sums` receives what they sum up to in this lane.
  TILEWAVE_DEVICE static void exponentiate(const WorkItem& item, std::int32_t token, const Stage& stage, const State& s,
                                           const Products (&scores)[L::tiles], Probabilities& p, Sums& sums) {
    L::each_row([&](int octet, int r) { sums[octet][r] = 0.0f; });
    if constexpr (L::spec.native) {
      exponentiate_to_fp8(s, scores, p, sums);
      return;
    }
    std::uint32_t words[L::tiles][L::row_octets][2];
    each_token([&](int tile, int half, std::int32_t in_stage) {
      // A slot of the cache that is not in use may hold any scale, and 0 * NaN is NaN.
      float v_scale = 0.0f;
      if constexpr (L::per_token) v_scale = item.attends(token + in_stage) ? B::load(&stage.v_scale[in_stage]) : 0.0f;
      TILEWAVE_UNROLL
      for (int octet = 0; octet < L::row_octets; ++octet) {
        float x[2];
        TILEWAVE_UNROLL
        for (int r = 0; r < 2; ++r) {
          const float row_max = s.row_max[octet][r];
          const float maximum = row_max == L::minus_infinity ? 0.0f : row_max;  // the row sees no token yet
          x[r] = B::exp2(B::subtract(L::value(scores[tile], octet, half, r), maximum));
          sums[octet][r] += x[r];
          x[r] *= L::per_token ? v_scale : L::probability_scale;
        }
        words[tile][octet][half] = L::template pack_probabilities<L::v_type>(x[0], x[1]);
      }
    });
    // A matrix of store_matrices has eight tokens, those of one half, of eight query rows.
    TILEWAVE_UNROLL
    for (int tile = 0; tile < L::tiles; ++tile) {
      Chunk* tokens = p[8 * tile + 2 * L::wave() + lane() / 8 % 2];
      if constexpr (L::row_octets == 1) {
        B::template store_matrices<2>(&tokens[lane() % 8],
                                      Vec<std::uint32_t, 2>{{words[tile][0][0], words[tile][0][1]}});
      } else {
        TILEWAVE_UNROLL
        for (int octet = 0; octet < L::row_octets; octet += 2) {
          const Vec<std::uint32_t, 4> four{
              {words[tile][octet][0], words[tile][octet][1], words[tile][octet + 1][0], words[tile][octet + 1][1]}};
          B::template store_matrices<4>(&tokens[8 * (octet + lane() / 16) + lane() % 8], four);
        }
      }
    }
  }

  /// Raises the reference maxima of all rows to the true ones, over the waves of the group, and scales sums and outputs
  /// down to them.
  TILEWAVE_DEVICE static void raise_maximum(State& s, const Products (&scores)[L::tiles], GroupShared& group) {
    const int wave = L::wave();
    L::each_row([&](int octet, int r) {
      float most = L::minus_infinity;
      TILEWAVE_UNROLL
      for (int tile = 0; tile < L::tiles; ++tile) {
        TILEWAVE_UNROLL
        for (int half = 0; half < 2; ++half) most = L::larger(most, L::value(scores[tile], octet, half, r));
      }
      most = L::over_tokens(most, L::larger);
      if (lane() / 4 == 0) group.wave_values[L::row_of(lane(), octet, r)][wave] = most;
    });
    B::group_barrier();
    L::each_row([&](int octet, int r) {
      const Vec<float, 4> maxima = group.wave_values[L::row_of(lane(), octet, r)];
      float raised = s.row_max[octet][r];
      TILEWAVE_UNROLL
      for (int w = 0; w < L::waves; ++w) raised = L::larger(raised, maxima[w]);
      const float factor = raised == L::minus_infinity ? 1.0f : B::exp2(s.row_max[octet][r] - raised);
      s.row_max[octet][r] = raised;
      s.row_sum[octet][r] *= factor;
      TILEWAVE_UNROLL
      for (int d = 0; d < L::out_tiles; ++d) {
        TILEWAVE_UNROLL
        for (int half = 0; half < 2; ++half) L::value(s.out[d], octet, half, r) *= factor;
      }
    });
  }

 private:
  TILEWAVE_DEVICE static int lane() { return B::lane_id(); }

  /// The same for native products. Sums are over the rounded probabilities that are stored: a token with nearly all the
  /// weight would be off by its rounding otherwise.
  TILEWAVE_DEVICE static void exponentiate_to_fp8(const State& s, const Products (&scores)[L::tiles], Probabilities& p,
                                                  Sums& sums) {
    constexpr int matrices = L::tiles * L::row_octets, stored_together = min_of(matrices, 4);
    std::uint32_t words[matrices];  // two tokens of two query rows each
    TILEWAVE_UNROLL
    for (int m = 0; m < matrices; ++m) {
      const int tile = m / L::row_octets, octet = m % L::row_octets;
      float x[2][2];  // [row][token]
      TILEWAVE_UNROLL
      for (int r = 0; r < 2; ++r) {
        const float maximum = s.row_max[octet][r] == L::minus_infinity ? 0.0f : s.row_max[octet][r];
        TILEWAVE_UNROLL
        for (int half = 0; half < 2; ++half)
          x[r][half] = B::exp2(B::subtract(L::value(scores[tile], octet, half, r), maximum)) * L::probability_scale;
      }
      words[m] = B::pack_fp8(x[0][0], x[0][1], x[1][0], x[1][1]);
      const Vec<std::uint32_t, 2> rounded = B::widen_fp8_to_f16(words[m]);
      TILEWAVE_UNROLL
      for (int r = 0; r < 2; ++r) {
        const Vec<float, 2> pair = B::widen_f16(rounded[r]);
        sums[octet][r] += (pair[0] + pair[1]) * (1.0f / L::probability_scale);
      }
    }
    // A matrix of store_matrices has eight pairs of tokens of eight query rows.
    TILEWAVE_UNROLL
    for (int first = 0; first < matrices; first += stored_together) {
      Vec<std::uint32_t, stored_together> some;
      TILEWAVE_UNROLL
      for (int i = 0; i < stored_together; ++i) some[i] = words[first + i];
      const int m = first + lane() / 8 % stored_together;
      B::template store_matrices<stored_together>(
          &p[4 * (m / L::row_octets) + L::wave()][8 * (m % L::row_octets) + lane() % 8], some);
    }
  }

  /// Calls f(tile, half, in_stage) for every token of the lane. in_stage counts tokens from the first of the stage.
  template <class F>
  TILEWAVE_DEVICE static void each_token(F f) {
    const int first = 16 * L::wave();
    TILEWAVE_UNROLL
    for (int tile = 0; tile < L::tiles; ++tile) {
      TILEWAVE_UNROLL
      for (int half = 0; half < 2; ++half) f(tile, half, 64 * tile + first + L::token_of(lane(), half));
    }
  }
};

}  // namespace tilewave
