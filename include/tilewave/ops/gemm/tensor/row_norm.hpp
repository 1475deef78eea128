// SPDX-License-Identifier: MIT
// Root mean squares of the rows of A (GemmProblem::rms_norm), found from A's boxes beside the products that read them.
#pragma once

#include "tilewave/core/math.hpp"
#include "tilewave/tile/element.hpp"
#include "tilewave/tile/ring.hpp"

namespace tilewave {

/// The sums of squares of a tile's rows, which L::norm_waves waves of their own find: those who multiply have no time
/// for them, as a product waits for the one before. A lane has the same chunks of every stage, so eight neighbouring
/// lanes have a row of 128 bytes, whatever the swizzle, and how the squares of a row are added depends on neither M nor
/// the row.
template <class L, GemmSpec S, GemmPolicy P>
class GemmRowNorm {
 public:
  using B = typename L::Backend;
  static constexpr int lanes = max_of(L::norm_waves, 1) * B::facts.wave_lanes, chunks = P.rows * 8;
  /// Factors of rows, or (splits of K) their sums of squares. The barriers hand them to those who multiply, tile by
  /// tile.
  struct Shared {
    float rows[P.rows];
    RingBarriers<B, 1> ring;
  };
  struct NoShared {};

  /// Finds the factors of rows of tile after tile, or their sums of squares where blocks share K.
  template <class Queue, class KernelShared>
  TILEWAVE_DEVICE static void run(const typename L::Args& a, Queue queue, int wave, KernelShared& shared) {
    typename L::Ring ring;
    RingSlot<1> normed;
    GemmTile tile;
    typename L::Args::Steps steps;
    while (queue.next(tile, steps)) {
      GemmRowNorm norm(wave, min_of(P.rows, tile.row_end - tile.first_row));
      for (std::int32_t step = steps.first; step < steps.end; ++step, ring.advance()) {
        L::wait_full(shared, ring);
        norm.add(P.swapped ? shared.wide[ring.slot] : shared.tall[ring.slot]);
        shared.ring.release(ring.slot);
      }
      if (a.gemm.splits > 1) {
        norm.store(shared.norm, [](float squares) TILEWAVE_INLINE_LAMBDA { return squares; });
      } else {
        shared.norm.ring.wait_free(normed);
        norm.store(shared.norm, [&](float squares) TILEWAVE_INLINE_LAMBDA { return factor(a, squares); });
        B::mbarrier_arrive(&shared.norm.ring.full[0]);
        normed.advance();
      }
    }
  }
  /// Multiplies a wave group's sums by the factors of their rows, for which it waits.
  TILEWAVE_DEVICE static void take(Shared& shared, RingSlot<1>& normed, int wave_group,
                                   typename L::Sums (&sums)[L::tiles]) {
    shared.ring.wait_full(normed);
    apply(shared, wave_group, sums);
    shared.ring.release(0);
    normed.advance();
  }
  /// Returns the factor of a row.
  TILEWAVE_DEVICE static float factor(const typename L::Args& a, float squares) {
    const float square = squares * a.inverse_k + a.norm_eps;
    return square < __builtin_inff() ? B::rsqrt(square) : square - square;
  }

 private:
  /// `rows`: of the tile, beyond which shared memory holds anything.
  TILEWAVE_DEVICE GemmRowNorm(int wave, int rows) : lane_(wave * B::facts.wave_lanes + B::lane_id()), rows_(rows) {}

  /// Adds the squares of a stage of A.
  TILEWAVE_DEVICE void add(const Chunk* stage) {
    TILEWAVE_UNROLL
    for (int r = 0; r < rounds; ++r) {
      const int at = r * lanes + lane_;
      if (at / 8 >= rows_) continue;
      const auto values = widen<B, S.a, 8>(stage[at]);
      TILEWAVE_UNROLL
      for (int e = 0; e < 8; ++e) squares_[r] += values[e] * values[e];
    }
  }
  /// Stores of(sum of squares) of each row.
  template <class Of>
  TILEWAVE_DEVICE void store(Shared& shared, const Of& of) const {
    TILEWAVE_UNROLL
    for (int r = 0; r < rounds; ++r) {
      const int at = r * lanes + lane_;
      const float sum = B::template reduce<8>(squares_[r], Sum{});
      if (at % 8 == 0 && at / 8 < rows_) shared.rows[at / 8] = of(sum);
    }
  }
  /// Multiplies a wave group's sums by the factors of their rows.
  TILEWAVE_DEVICE static void apply(const Shared& shared, int wave_group, typename L::Sums (&sums)[L::tiles]) {
    const int lane = B::lane_id(), wave = L::wave_in_wave_group();
    const float* const own = shared.rows + (P.swapped ? L::wide_row(wave_group) + 2 * (lane % 4)
                                                      : L::tall_row(wave_group) + 16 * wave + lane / 4);
    TILEWAVE_UNROLL
    for (int i = 0; i < L::wave_group_wide / 2; ++i) {
      TILEWAVE_UNROLL
      for (int t = 0; t < L::tiles; ++t)
        sums[t][i] *= P.swapped ? own[8 * (i / 4) + i % 2] : own[64 * t + 8 * (i / 2 % 2)];
    }
  }

  static constexpr int rounds = ceil_div(chunks, lanes);
  int lane_, rows_;
  float squares_[rounds] = {};
};

}  // namespace tilewave
