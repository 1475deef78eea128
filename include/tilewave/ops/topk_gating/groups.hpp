// SPDX-License-Identifier: MIT
// Groups of experts: which of a token's count. What an access brought, a access, lies in one group. Every access leaves
// its two best in shared memory; a lane takes a group, adds up its score, and counts how many groups are better. Three
// barriers, no exchange between lanes.
#pragma once

#include "tilewave/ops/topk_gating/problem.hpp"
#include "tilewave/tile/row.hpp"

namespace tilewave {

struct GatingGroups {
  std::int32_t groups = 1, kept = 1;
  FastDiv accesses = FastDiv::by(1);  // of a group
  bool two_best = false;
};

template <class B, class Tile, RowPolicy P>
struct GroupChoice {
  static constexpr int unit = Tile::unit, accesses = P.lanes * P.chunks;
  static constexpr float minus_infinity = -__builtin_inff();
  struct Shared {
    // Of a access, the larger first; then of a group, at its first access, its score and whether it counts, 1 or 0.
    Vec<float, 2> best[P.rows][accesses];
  };

  /// Clears bit c of `counts` of the accesses whose group is not among the best. By all lanes of the block.
  TILEWAVE_DEVICE static void run(Shared& shared, const GatingGroups& g, std::int32_t lane, std::int32_t slot,
                                  const Vec<float, unit> (&values)[P.chunks], std::uint32_t& counts) {
    Vec<float, 2>* const best = shared.best[slot];
    TILEWAVE_UNROLL
    for (int c = 0; c < P.chunks; ++c) {
      Vec<float, 2> two{{minus_infinity, minus_infinity}};
      TILEWAVE_UNROLL
      for (int e = 0; e < unit; ++e) two = with(two, values[c][e]);
      best[Tile::column(lane, c) / unit] = two;
    }
    B::barrier();
    for (std::int32_t group = lane; group < g.groups; group += P.lanes) {
      Vec<float, 2> two{{minus_infinity, minus_infinity}};
      const std::int32_t first = group * g.accesses.divisor;
      for (std::int32_t i = 0; i < g.accesses.divisor; ++i) {
        const Vec<float, 2> some = best[first + i];
        two = with(with(two, some[0]), some[1]);
      }
      const float score = g.two_best ? two[0] + two[1] : two[0];
      best[first][0] = score == score ? score : two[0];  // of +inf and -inf: one expert forced, the others masked
    }
    B::barrier();
    for (std::int32_t own = lane; own < g.groups; own += P.lanes) {
      const float score = best[own * g.accesses.divisor][0];
      std::int32_t better = 0;
      for (std::int32_t group = 0; group < g.groups; ++group) {
        const float other = best[group * g.accesses.divisor][0];
        better += other > score || (other == score && group < own) ? 1 : 0;
      }
      best[own * g.accesses.divisor][1] = better < g.kept ? 1.0f : 0.0f;
    }
    B::barrier();
    TILEWAVE_UNROLL
    for (int c = 0; c < P.chunks; ++c) {
      const std::int32_t own = g.accesses.quotient(Tile::column(lane, c) / unit);
      if (own < g.groups && best[own * g.accesses.divisor][1] == 0.0f) counts &= ~(1u << c);
    }
  }

 private:
  /// The two best of three; a NaN is none.
  TILEWAVE_DEVICE static Vec<float, 2> with(Vec<float, 2> two, float x) {
    if (x > two[0]) return {{x, two[0]}};
    if (x > two[1]) two[1] = x;
    return two;
  }
};

}  // namespace tilewave
