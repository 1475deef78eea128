// SPDX-License-Identifier: MIT
// What becomes of a score between the product and the masks.
#pragma once

#include "tilewave/arch/backend.hpp"

namespace tilewave {

/// tanh(x) of any x, NaN included, with a relative error below 5e-7 where exp2 and reciprocal are within 2 ulp (3e-7 if
/// they are exact). Up to 0.625 the odd polynomial of Cephes' tanhf (S. Moshier), since 1 - 2 / (e^2x + 1) has only
/// absolute accuracy; that above, where an infinite power gives 1.
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

/// L is the layout of a kernel: what a lane holds. Scores come as the product times scale_log2 and leave in log2 units.
template <class L>
struct AttentionScores {
  using B = typename L::Room;
  using Tiles = typename L::Scores[L::row_tiles][L::score_tiles];

  /// `token` is the tile's first, `group` the lane's.
  template <class Args>
  TILEWAVE_DEVICE static void run(const Args& a, const typename L::State& s, std::int32_t token, std::int32_t group,
                                  Tiles& scores) {
    if constexpr (L::spec.soft_cap) {
      each_score(scores, [&](float& score, int, int, int) { score = a.cap_log2 * tanh_of<B>(score); });
    }
    if constexpr (L::spec.alibi) {
      each_score(scores, [&](float& score, int t, int r, int e) {
        const std::int32_t ahead = token - (s.causal_end[t][r] - 1);  // of the row's own token
        score += s.slope[t][r] * static_cast<float>(ahead + L::token_of(group, e));
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
