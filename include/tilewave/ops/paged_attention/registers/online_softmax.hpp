// SPDX-License-Identifier: MIT
// The online softmax of one tile: scores come in, 16-bit probabilities go out, and the running maximum and sum follow.
#pragma once

#include "tilewave/attention/scores.hpp"

namespace tilewave {

/// L is a PagedAttentionLayout. A wave keeps one reference maximum for each row. It need not be the true maximum, only
/// within L::max_slack of it. So most tiles need one vote and no exchange between lanes.
template <class L>
struct OnlineSoftmax {
  using B = typename L::Room;
  using Kv = typename L::Kv;
  using Tiles = typename L::Scores[L::row_tiles][L::score_tiles];
  using Probabilities = typename L::RowsOperand[L::row_tiles][L::steps];
  static constexpr int unit = L::unit;

  /// `token` is the first token of the tile. `edge` says that some row does not attend some token.
  TILEWAVE_DEVICE static void run(const Kv& kv, const typename L::WorkItem& item, std::int32_t token, bool edge,
                                  float k_scale, typename L::State& s, Tiles& scores, Probabilities& probabilities) {
    apply_scale(s, k_scale, scores);
    AttentionScores<L>::run(kv.a, s, token, kv.lane_group, scores);
    if (edge) {
      mask(s, token, kv, scores);
      if constexpr (Kv::per_token) zero_unattended_scales(kv, item, token, s.cursors[0]);
    }
    raise_maximum(s, scores);
    B::sched_fence();
    exponentiate(s, scores, probabilities);
    B::sched_fence();
  }

 private:
  TILEWAVE_DEVICE static void apply_scale(const typename L::State& s, float k_scale, Tiles& scores) {
    static_for<unit>([&](auto e) {
      float scale = k_scale;
      if constexpr (Kv::per_token)
        scale *= B::template group_broadcast<e % L::atom_kv>(s.cursors[0].k_scale[e / L::atom_kv]);
      L::each_row([&](int t, int r) { L::score(scores[t], r, e) *= L::fp8_keys ? scale * s.q_scale[t][r] : scale; });
    });
  }

  TILEWAVE_DEVICE static void mask(const typename L::State& s, std::int32_t token, const Kv& kv, Tiles& scores) {
    L::each_row([&](int t, int r) {
      TILEWAVE_UNROLL
      for (int e = 0; e < unit; ++e) {
        const std::int32_t behind =
            s.causal_end[t][r] - 1 - (token + L::token_of(kv.lane_group, e));  // tokens back from the row's own
        if (static_cast<std::uint32_t>(behind) > static_cast<std::uint32_t>(kv.a.window))
          L::score(scores[t], r, e) = L::minus_infinity;
      }
    });
  }

  /// Zeroes the scales of V of tokens that nobody attends. Their cache slots may hold anything, and 0 * NaN is NaN.
  TILEWAVE_DEVICE static void zero_unattended_scales(const Kv& kv, const typename L::WorkItem& item, std::int32_t token,
                                                     typename Kv::Cursor& cursor) {
    TILEWAVE_UNROLL
    for (int i = 0; i < Kv::scale_words; ++i) {
      const std::int32_t t = token + L::token_of(kv.lane_group, kv.position + i * L::atom_kv);
      if (t < item.first || t >= item.end) cursor.v_scale[i] = 0.0f;
    }
  }

  /// Raises the reference maximum of every row, but only if some row of the wave needs it.
  TILEWAVE_DEVICE static void raise_maximum(typename L::State& s, Tiles& scores) {
    float local[L::row_tiles][L::rows_per_lane];
    bool exceeds = false;
    L::each_row([&](int t, int r) {
      local[t][r] = L::score(scores[t], r, 0);
      TILEWAVE_UNROLL
      for (int e = 1; e < unit; ++e) local[t][r] = L::larger(local[t][r], L::score(scores[t], r, e));
      exceeds = exceeds || local[t][r] > s.row_max[t][r] + L::max_slack;
    });
    if (!B::any(exceeds)) return;
    L::each_row([&](int t, int r) {
      const float raised = L::larger(s.row_max[t][r], L::over_lane_groups(local[t][r], L::larger));
      const float factor = raised == L::minus_infinity ? 1.0f : B::exp2(s.row_max[t][r] - raised);
      s.row_max[t][r] = raised;
      s.row_sum[t][r] *= factor;
      L::scale_row(s, t, r, factor);
    });
  }

  TILEWAVE_DEVICE static void exponentiate(typename L::State& s, Tiles& scores, Probabilities& probabilities) {
    static_for<unit / 2>([&](auto pair) {
      constexpr int e = 2 * pair, words = L::atom.k_per_lane / 2;
      float low_scale = L::probability_scale, high_scale = L::probability_scale;
      if constexpr (Kv::per_token) {
        const auto& scale = s.cursors[0].v_scale;
        low_scale = B::template group_broadcast<e % L::atom_kv>(scale[e / L::atom_kv]);
        high_scale = B::template group_broadcast<(e + 1) % L::atom_kv>(scale[(e + 1) / L::atom_kv]);
      }
      L::each_row([&](int t, int r) {
        const float maximum =
            s.row_max[t][r] == L::minus_infinity ? 0.0f : s.row_max[t][r];  // the row sees no token yet
        // B::subtract takes the maximum from the very score that it was found among: half an ulp of a large product,
        // rounded differently, is a large power.
        const float low = B::exp2(B::subtract(L::score(scores[t], r, e), maximum));
        const float high = B::exp2(B::subtract(L::score(scores[t], r, e + 1), maximum));
        s.row_sum[t][r] += low + high;
        probabilities[t][pair / words][r * words + pair % words] =
            L::template pack_probabilities<L::spec.value_type()>(low * low_scale, high * high_scale);
      });
    });
  }
};

}  // namespace tilewave
