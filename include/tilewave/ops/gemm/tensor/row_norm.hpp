// SPDX-License-Identifier: MIT
// Root mean squares of the rows of A (GemmProblem::rms_norm), found beside the products.
#pragma once

#include "tilewave/core/math.hpp"
#include "tilewave/tile/element.hpp"
#include "tilewave/tile/ring.hpp"

namespace tilewave {

/// A wave of its own reads the rows of a tile from memory while the others multiply, which have no time for it: a
/// product waits for the one before. It reads whole rows, also where blocks share K, so a row's factor depends on
/// nothing else.
template <class L, GemmSpec S, GemmPolicy P>
struct GemmRowNorm {
  using B = typename L::Backend;
  /// The factors of a tile's rows. The barriers hand them to those who multiply, tile by tile.
  struct Shared {
    float rows[P.rows];
    RingBarriers<B, 1> ring;
  };
  struct NoShared {};

  /// Finds the factors of rows of tile after tile.
  template <class Queue>
  TILEWAVE_DEVICE static void run(const typename L::Args& a, Queue queue, Shared& shared) {
    RingSlot<1> at;
    GemmTile tile;
    typename L::Args::Steps steps;
    for (; queue.next(tile, steps); at.advance()) {
      if (a.gemm.splits == 1) shared.ring.wait_free(at);
      const int rows = min_of(P.rows, tile.row_end - tile.first_row);
      if (P.rows > 16 || a.a_squares != nullptr) add_squares(a, tile.first_row, rows, shared);
      TILEWAVE_ROLL
      for (int r = 0; P.rows <= 16 && a.a_squares == nullptr && r < rows; ++r) {
        const float squares = B::template reduce<B::facts.wave_lanes>(
            squares_of(a.gemm, static_cast<const char*>(a.gemm.a) +
                                   (tile.a_layer * a.gemm.a_layer_stride + (tile.first_row + r) * a.gemm.a_stride) * 2),
            Sum{});
        if (B::lane_id() == 0) shared.rows[r] = factor_of(a, squares);
      }
      B::mbarrier_arrive(&shared.ring.full[0]);  // behind a barrier of the block where blocks share K
    }
  }
  /// Multiplies a wave group's sums by the factors of their rows, for which it waits.
  TILEWAVE_DEVICE static void take(Shared& shared, RingSlot<1>& at, int wave_group,
                                   typename L::Sums (&sums)[L::tiles]) {
    shared.ring.wait_full(at);
    const int lane = B::lane_id(), wave = L::wave_in_wave_group();
    const float* const own = shared.rows + (P.swapped ? L::wide_row(wave_group) + 2 * (lane % 4)
                                                      : L::tall_row(wave_group) + 16 * wave + lane / 4);
    TILEWAVE_UNROLL
    for (int i = 0; i < L::wave_group_wide / 2; ++i) {
      TILEWAVE_UNROLL
      for (int t = 0; t < L::tiles; ++t)
        sums[t][i] *= P.swapped ? own[8 * (i / 4) + i % 2] : own[64 * t + 8 * (i / 2 % 2)];
    }
    shared.ring.release(0);
    at.advance();
  }

 private:
  TILEWAVE_DEVICE static float factor_of(const typename L::Args& a, float squares) {
    const float square = squares * a.inverse_k + a.norm_eps;
    return square < __builtin_inff() ? B::rsqrt(square) : square - square;
  }
  /// Finds the factors of rows whose squares are added up already, 64 elements a number. Sixteen lanes have a row, and
  /// ask for the numbers of eight rows at a time.
  TILEWAVE_DEVICE static void add_squares(const typename L::Args& a, std::int32_t first_row, int rows, Shared& shared) {
    constexpr int row_lanes = 16, at_once = 8, beside = B::facts.wave_lanes / row_lanes;
    const int lane = B::lane_id() % row_lanes, own = B::lane_id() / row_lanes;
    const std::int32_t numbers = a.gemm.k / gemm_squares_columns;
    TILEWAVE_ROLL
    for (int first = 0; first < rows; first += at_once * beside) {
      Vec<float, at_once> sums{};
      TILEWAVE_ROLL
      for (std::int32_t n = 4 * lane; n < align_up(numbers, 4 * row_lanes); n += 4 * row_lanes) {
        Vec<float, 4> loaded[at_once] = {};
        const auto from = [&](int i) TILEWAVE_INLINE_LAMBDA {
          return a.a_squares + (first_row + std::int64_t{first + i * beside + own}) * numbers + n;
        };
        if (numbers % 4 == 0) {
          TILEWAVE_UNROLL
          for (int i = 0; i < at_once; ++i) {
            if (first + i * beside + own < rows && n < numbers)
              loaded[i] = B::load(reinterpret_cast<const Vec<float, 4>*>(from(i)));
          }
        } else {
          // One number of each row at a time, which those behind it push to its place.
          TILEWAVE_ROLL
          for (int e = 0; e < 4; ++e) {
            TILEWAVE_UNROLL
            for (int i = 0; i < at_once; ++i) {
              const bool any = first + i * beside + own < rows && n + e < numbers;
              loaded[i] = {{loaded[i][1], loaded[i][2], loaded[i][3], any ? B::load(from(i) + e) : 0.0f}};
            }
          }
        }
        TILEWAVE_UNROLL
        for (int i = 0; i < at_once; ++i) sums[i] += (loaded[i][0] + loaded[i][1]) + (loaded[i][2] + loaded[i][3]);
      }
      TILEWAVE_UNROLL
      for (int i = 0; i < at_once; ++i) {
        const float squares = B::template reduce<row_lanes>(sums[i], Sum{});
        if (lane == 0 && first + i * beside + own < rows) shared.rows[first + i * beside + own] = factor_of(a, squares);
      }
    }
  }
  /// Returns the sum of squares of the lane's part of a row.
  TILEWAVE_DEVICE static float squares_of(const GemmArgs& a, const char* row) {
    constexpr int at_once = 8, lanes = B::facts.wave_lanes;
    const std::int32_t chunks = ceil_div(a.k, 8);
    float sums[2] = {};
    TILEWAVE_ROLL
    for (std::int32_t first = B::lane_id(); first < chunks; first += at_once * lanes) {
      Chunk loaded[at_once] = {};
      TILEWAVE_UNROLL
      for (int i = 0; i < at_once; ++i) {
        const std::int32_t chunk = first + i * lanes;
        if (chunk < chunks) loaded[i] = B::load(reinterpret_cast<const Chunk*>(row + 16 * std::int64_t{chunk}));
      }
      TILEWAVE_UNROLL
      for (int i = 0; i < at_once; ++i) {
        const auto values = widen<B, S.a, 8>(loaded[i]);
        TILEWAVE_UNROLL
        for (int e = 0; e < 8; ++e) {  // what lies between K and the end of 16 bytes does not count
          const float value = 8 * (first + i * lanes) + e < a.k ? values[e] : 0.0f;
          sums[e % 2] += value * value;
        }
      }
    }
    return sums[0] + sums[1];
  }
};

}  // namespace tilewave
