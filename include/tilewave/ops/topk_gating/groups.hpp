// SPDX-License-Identifier: MIT
// Chooses the groups of experts that count for a token. The experts of one access lie in one group. Every access leaves
// its two best in shared memory. Then a lane takes a group, adds up its score, and counts how many groups are better.
// That takes three barriers and no exchange between lanes.
#pragma once

#include "tilewave/ops/topk_gating/problem.hpp"
#include "tilewave/tile/row.hpp"

namespace tilewave {

struct GatingGroups {
  std::int32_t groups = 1, kept = 1;
  FastDiv accesses = FastDiv::by(1);  // accesses of a group
  bool two_best = false;
};

template <class B, class Tile, RowPolicy P>
struct GroupChoice {
  static constexpr int unit = Tile::unit, accesses = P.lanes * P.chunks;
  struct Shared {
    // The two best of an access, the larger first; later, at the first access of a group, its score, and 1 if it counts
    // or else 0.
    Vec<float, 2> best[P.rows][accesses];
  };

  /// Clears bit c of `counts` for the accesses whose group is not among the best. All lanes of the block call it.
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
      // NaN comes of +inf and -inf: one expert forced, the others masked
      best[first][0] = score == score ? score : two[0];
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
  /// Returns the two best of three; a NaN never counts.
  TILEWAVE_DEVICE static Vec<float, 2> with(Vec<float, 2> two, float x) {
    if (x > two[0]) return {{x, two[0]}};
    if (x > two[1]) two[1] = x;
    return two;
  }
};

}  // namespace tilewave
