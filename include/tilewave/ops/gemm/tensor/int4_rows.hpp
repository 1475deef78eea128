// SPDX-License-Identifier: MIT
// Weights of four bits as the 64-row side of a wave group's products: codes lie in the ring as they lie in memory,
// sixteen rows by sixteen k in 128 bytes, and a lane widens those of its two rows into the registers that the product
// reads.
#pragma once

#include "tilewave/core/static_for.hpp"
#include "tilewave/ops/gemm/args.hpp"
#include "tilewave/ops/gemm/epilogue.hpp"

namespace tilewave {

/// A stage is 128 k: of sixteen rows ("a strip") 8 rows of 128 bytes, as copy_tensor writes those of a box. An SM
/// starts a copy in some 120 cycles, of any size, so one copy brings all strips that lie side by side.
template <class B, GemmSpec S, GemmPolicy P, class TileRows>
struct GemmInt4Rows {
  static constexpr int step = 128, strip_chunks = step * 8 / 16, strips = P.columns / 16;
  static constexpr int piece = 32 / size_of(S.a);                      // k of a product
  static constexpr int group = S.int4() ? S.scale_k : step;            // k of a scale
  static constexpr int groups = step / group, pieces = group / piece;  // of a stage; products of one
  static constexpr int box_strips = S.gated ? TileRows::run / 16 : strips;

  /// Strips of all layers, one after the other, of which each has K / 16 rows.
  static TensorShape shape(const void* b, std::int32_t k, std::int64_t strips_of_all) {
    return {b, DType::i8, 128, k / 16, strips_of_all, 128, std::int64_t{k} * 8, step / 16, box_strips};
  }
  /// By a wave. What lies beyond B nobody stores.
  template <class Map, class Mbarrier>
  TILEWAVE_DEVICE static void copy(const GemmArgs& a, const Map& map, const GemmTile& tile, std::int32_t stage,
                                   Chunk* to, Mbarrier* full) {
    const int first = B::lane_id() * box_strips;
    if (first >= strips) return;
    const std::int32_t column = min_of(tile.first_column + TileRows::column(16 * first), a.n - 16);
    const std::int32_t row = gemm_row_of_b<S>(a, column, TileRows::half(16 * first));
    const std::int32_t strip = tile.layer * a.b_layer_strips + row / 16;
    B::copy_tensor(to + first * strip_chunks, map, 0, stage * (step / 16), strip, full);
  }

  /// Codes of 64 rows, of group g of the stage: word i of piece p as group_multiply takes operand a's. A lane reads all
  /// of 16 k, as its neighbours do, and takes the two or four of each eight that are its own.
  TILEWAVE_DEVICE static void widen(const Chunk* rows, int group_wave, int g, Chunk (&codes)[pieces]) {
    using Words = Vec<std::uint32_t, 2>;  // 16 k of a row, half a unit
    const int lane = B::lane_id(), own = lane % 4, row = lane / 4;
    const auto* const strip = reinterpret_cast<const Words*>(rows + group_wave * strip_chunks);
    // A row's unit of line l is row / 2 ^ l % 8: what a lane knows of it, of four lines, and a constant each.
    const Words* of_line[4];
    TILEWAVE_UNROLL
    for (int l = 0; l < 4; ++l) of_line[l] = strip + 2 * (row / 2 ^ l) + row % 2;
    TILEWAVE_UNROLL
    for (int p = 0; p < pieces; ++p) {
      TILEWAVE_UNROLL
      for (int h = 0; h < 2; ++h) {
        const auto words_of = [&](int sixteen) TILEWAVE_INLINE_LAMBDA {
          const int line = (g * pieces + p) * (piece / 16) + sixteen;  // of the strip's 8
          return of_line[line % 4][line * 16 + 8 * (h ^ line / 4)];
        };
        if constexpr (size_of(S.a) == 2) {
          const Words pairs = B::template widen_i4_pairs<S.a>(words_of(0), own);
          codes[p][h] = pairs[0];
          codes[p][2 + h] = pairs[1];
        } else {
          TILEWAVE_UNROLL
          for (int half = 0; half < 2; ++half) {
            const Words words = words_of(half);
            codes[p][2 * half + h] = B::widen_i4_quad(own < 2 ? words[0] : words[1], own % 2);
          }
        }
      }
    }
  }

  /// Scales of a stage in a wave's registers, on their way from device to shared memory: [groups][P.columns].
  struct FetchedScales {
    static constexpr int lanes = B::facts.wave_lanes, per_load = 4, count = groups * P.columns / per_load;
    static constexpr float unit = is_fp8(S.a) ? B::i4_fp8_unit : 1.0f;  // of what `widen` makes
    using Scales = Packed<S.group_scale(), per_load>;
    Scales scales[ceil_div(count, lanes)];

    TILEWAVE_DEVICE void load(const GemmArgs& a, const GemmTile& tile, std::int32_t stage) {
      const auto* const first =
          static_cast<const std::uint16_t*>(a.b_group_scale) + tile.layer * a.b_scale_layer_stride;
      each([&](Scales& some, int at) TILEWAVE_INLINE_LAMBDA {
        const int r = at % P.columns, g = at / P.columns;
        const std::int32_t column = min_of(tile.first_column + TileRows::column(r), a.n - per_load);
        const std::int32_t row = gemm_row_of_b<S>(a, column, TileRows::half(r));
        const std::int32_t of_k = min_of(stage * groups + g, a.k / group - 1);  // what is beyond is times 0
        some = B::load(reinterpret_cast<const Scales*>(first + of_k * a.b_scale_k_stride + row));
      });
    }
    template <class Shared>
    TILEWAVE_DEVICE void store(Shared& shared, int slot) {
      each([&](const Scales& some, int at) TILEWAVE_INLINE_LAMBDA {
        Vec<float, per_load> wide = tilewave::widen<B, S.group_scale(), per_load>(some);
        TILEWAVE_UNROLL
        for (float& scale : wide.data) scale *= 1.0f / unit;
        *reinterpret_cast<Vec<float, per_load>*>(shared.b_scale[slot] + at) = wide;
      });
    }

   private:
    /// Where in [groups][P.columns] each load of the lane begins.
    template <class Body>
    TILEWAVE_DEVICE void each(const Body& body) {
      TILEWAVE_UNROLL
      for (int i = 0; i < ceil_div(count, lanes); ++i) {
        const int load = i * lanes + B::lane_id();
        if (count % lanes == 0 || load < count) body(scales[i], load * per_load);
      }
    }
  };
};

}  // namespace tilewave
