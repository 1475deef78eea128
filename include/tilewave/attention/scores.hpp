// SPDX-License-Identifier: MIT
// What becomes of a score between the product Q K and the masks: soft cap, then ALiBi.
#pragma once

#include "tilewave/arch/backend.hpp"

namespace tilewave {

/// tanh(x) for any x, NaN included. The relative error is below 5e-7 if exp2 and reciprocal are within 2 ulp, and 3e-7
/// if they are exact. Below 0.625 it is the odd polynomial of Cephes' tanhf (S. Moshier), because 1 - 2 / (e^2x + 1)
/// has only absolute accuracy there. That formula serves from 0.625 on, where an infinite power gives 1.
template <class B>
TILEWAVE_DEVICE float tanh_of(float x) {
  const float square = x * x, size = abs_of(x);
  float series = -5.70498872745e-3f;
  series = series * square + 2.06390887954e-2f;
  series = series * square - 5.37397155531e-2f;
  series = series * square + 1.33314422036e-1f;
  series = series * square - 3.33332819422e-1f;
  const float small = x + x * square * series;
  const float large = 1.0f - 2.0f * B::reciprocal(1.0f + B::exp2(2.0f * log2_e * size));
  constexpr std::uint32_t sign = 0x80000000u;
  const std::uint32_t bits = __builtin_bit_cast(std::uint32_t, large) | (__builtin_bit_cast(std::uint32_t, x) & sign);
  return size < 0.625f ? small : __builtin_bit_cast(float, bits);
}

/// Soft cap and ALiBi for the scores of a kernel that keeps them in registers. L is its layout and has
///   spec.soft_cap, spec.alibi           what there is to do
///   Scores, row_tiles, score_tiles      a lane's accumulators, [row_tiles][score_tiles]
///   unit, score(tiles, r, e)            scores of a row in a lane; element e of row r
///   each_row(f)                         calls f(t, r) for row r of tile t, for all rows of the lane
///   token_of(lane_group, e)             the token of element e, counted from the tile's first
///   State::causal_end, State::slope     [row_tiles][rows of a lane]
template <class L>
struct AttentionScores {
  using B = typename L::Room;
  using Tiles = typename L::Scores[L::row_tiles][L::score_tiles];

  /// Scores come in multiplied by a.scale_log2 and leave in log2 units. `token` is the first token of the tile.
  template <class Args>
  TILEWAVE_DEVICE static void run(const Args& a, const typename L::State& s, std::int32_t token,
                                  std::int32_t lane_group, Tiles& scores) {
    if constexpr (L::spec.soft_cap) {
      each_score(scores, [&](float& score, int, int, int) { score = a.cap_log2 * tanh_of<B>(score); });
    }
    if constexpr (L::spec.alibi) {
      each_score(scores, [&](float& score, int t, int r, int e) {
        const std::int32_t ahead = token - (s.causal_end[t][r] - 1);  // tokens from the row's own to the tile's first
        score += s.slope[t][r] * static_cast<float>(ahead + L::token_of(lane_group, e));
      });
    }
  }

 private:
  template <class F>
  TILEWAVE_DEVICE static void each_score(Tiles& scores, F f) {
    L::each_row([&](int t, int r) {
      TILEWAVE_UNROLL
      for (int e = 0; e < L::unit; ++e) f(L::score(scores[t], r, e), t, r, e);
    });
  }
};

}  // namespace tilewave
