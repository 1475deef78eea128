// SPDX-License-Identifier: MIT
// Root mean squares of the rows of A (GemmProblem::rms_norm), found from A's boxes while products read them.
#pragma once

#include "tilewave/core/math.hpp"
#include "tilewave/tile/element.hpp"

namespace tilewave {

/// The rows of A are a wave group's own, `L::norm_rows` of them, and each of its lanes has the same chunks of every
/// stage: chunk `lane` and every 128th from there. So eight neighbouring lanes have a row of 128 bytes, whatever the
/// swizzle, and how the squares of a row are added depends on neither M nor the row. Rows that no box brings are
/// whatever shared memory holds, and so is what becomes of them.
template <class L, GemmSpec S, GemmPolicy P>
class GemmRowNorm {
 public:
  using B = typename L::Backend;
  static constexpr int chunks = L::norm_rows * L::row_chunks, lanes = L::wave_group_lanes;

  /// Adds the squares of a stage of A.
  TILEWAVE_DEVICE void add(const Chunk* stage, int wave_group) {
    const Chunk* const own = stage + first_row(wave_group) * L::row_chunks;
    TILEWAVE_UNROLL
    for (int r = 0; r < rounds; ++r) {
      const int at = r * lanes + L::lane_in_wave_group();
      if (chunks % lanes != 0 && at >= chunks) continue;
      const auto values = widen<B, S.a, 8>(own[at]);
      TILEWAVE_UNROLL
      for (int e = 0; e < 8; ++e) squares_[r] += values[e] * values[e];
    }
  }
  /// Stores of(sum of squares) of each row. All lanes of a wave group call this, and wait for each other before they
  /// read it.
  template <class Of>
  TILEWAVE_DEVICE void store(float* rows, const Of& of) const {
    TILEWAVE_UNROLL
    for (int r = 0; r < rounds; ++r) {
      const int at = r * lanes + L::lane_in_wave_group();
      const float sum = B::template reduce<8>(squares_[r], Sum{});
      if (at % L::row_chunks == 0 && at < chunks) rows[at / L::row_chunks] = of(sum);
    }
  }
  /// Returns the factor of a row.
  TILEWAVE_DEVICE static float factor(const typename L::Args& a, float squares) {
    const float square = squares * a.inverse_k + a.norm_eps;
    return square < __builtin_inff() ? B::rsqrt(square) : square - square;
  }
  /// Multiplies a wave group's sums by the factors of their rows.
  TILEWAVE_DEVICE static void apply(const float* factors, typename L::Sums (&sums)[L::tiles]) {
    const int lane = B::lane_id(), wave = L::wave_in_wave_group();
    TILEWAVE_UNROLL
    for (int i = 0; i < L::wave_group_wide / 2; ++i) {
      TILEWAVE_UNROLL
      for (int t = 0; t < L::tiles; ++t) {
        sums[t][i] *= P.swapped ? factors[8 * (i / 4) + 2 * (lane % 4) + i % 2]
                                : factors[64 * t + 16 * wave + lane / 4 + 8 * (i / 2 % 2)];
      }
    }
  }
  /// Returns where the wave groups of a block keep a row of the tile: its wave group, and the row in it.
  TILEWAVE_DEVICE static int wave_group_of(int row) { return row / L::norm_rows * (P.swapped ? 1 : P.waves_columns); }
  TILEWAVE_DEVICE static int row_of(int row) { return row % L::norm_rows; }

 private:
  static constexpr int rounds = ceil_div(chunks, lanes);
  TILEWAVE_DEVICE static int first_row(int wave_group) {
    return P.swapped ? L::wide_row(wave_group) : L::tall_row(wave_group);
  }

  float squares_[rounds] = {};
};

}  // namespace tilewave
