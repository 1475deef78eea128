// SPDX-License-Identifier: MIT
// GEMM with preshuffled weights of four bits on CDNA. Grid: one block for each tile of C, or with P.splits several that
// share its K. A wave has its own part of the tile and loads the rows of A and the codes of B straight to registers.
// There it widens the codes to the type of the products, exactly, and fp8 rows of A to f16. Products are the room's
// atom, with A as its rows. The sum of the values that share a scale is scaled and added in f32. Where conversions
// scale, MXFP4 is widened with a quarter of its scale, by the lane that has the codes. A step is 128 k, and loads of
// P.stages steps are under way. Waves share nothing, except the K of their tile with P.waves_k: then they merge their
// sums in order at the end. LDS plan: these sums. Bound: memory bandwidth of B where A has few rows.
#pragma once

#include "tilewave/ops/gemm/registers/int4_units.hpp"
#include "tilewave/ops/gemm/wave_tile/code_offset.hpp"
#include "tilewave/ops/gemm/wave_tile/scaled_fp4.hpp"
#include "tilewave/ops/gemm/wave_tile/wave_tile.hpp"

namespace tilewave {

/// The kernel. A wave has `tiles_m` x `tiles_n` products, each of `atoms` atoms side by side.
template <class B, GemmSpec S, GemmPolicy P, class UserEpilogue = GemmIdentity>
struct GemmInt4Kernel {
  using Room = B;
  using W = GemmWaveTile<B, S, P, UserEpilogue>;
  using Args = typename W::Args;
  static constexpr bool bf16_products = S.a == DType::bf16;  // else they are of f16
  /// Conversions of fp4 to bf16 scale, too, where the chip has such. Then lanes load the scales of the codes they have.
  static constexpr bool scaled_codes = S.mxfp4() && bf16_products && B::facts.mx;
  using Units = GemmInt4Units<S, scaled_codes>;
  using Scaled = GemmScaledFp4<B>;
  using Map = typename W::Map;
  static constexpr int lanes = B::facts.wave_lanes;
  static constexpr int block_threads = W::block_threads * P.waves_k;
  static constexpr int waves_per_simd = P.waves_per_simd * ceil_div(W::waves * P.waves_k, B::facts.simds_per_cu);
  static constexpr int k_per_lane = B::atom.k_per_lane, rows_per_lane = B::atom.rows_per_lane;
  static constexpr int atoms = Map::columns / Map::kv;  // side by side in a product of 16 columns
  static constexpr int run_length = Map::run;           // neighbours of a row of C that a lane has in an atom
  /// Loads of scales in a step, and the units that share one of a lane.
  static constexpr int step_scales = scaled_codes ? Units::per_step : Units::step_k / S.scale_k;
  static constexpr int scale_units = Units::per_step / step_scales;
  /// Groups of scales that the lanes of a load have: a lane's 16 k of 64 are of the first or the second 32.
  static constexpr int load_groups = scaled_codes ? Units::wave_k / S.scale_k : 1;
  static_assert(W::tiles_m % rows_per_lane == 0 && scale_units > 0,
                "a wave has whole atoms of rows, and a lane's loads are of one scale");

  static constexpr int products = W::tiles_m * W::tiles_n;
  struct Merged {
    Chunk sums[P.waves_k - 1][products][W::block_threads];
  };
  struct Shared : std::conditional_t<(P.waves_k > 1), Merged, typename W::Exchange> {};

  TILEWAVE_DEVICE static void run(const Args& a, Shared& shared) {
    const typename W::BlockWork work(a, B::block_id(), true);
    if (!work.exists) return;
    typename W::WaveSums sums;
    W::clear(sums);
    auto steps = a.steps(work.split);
    int k_part = 0;  // the part of the tile's K that is this wave's
    if constexpr (P.waves_k > 1) {
      k_part = B::wave_id() / W::waves;
      const std::int32_t count = steps.end - steps.first;
      const std::int32_t first = steps.first;
      steps = {first + count * k_part / P.waves_k, first + count * (k_part + 1) / P.waves_k};
    }
    if (steps.first < steps.end) multiply(a.gemm, work.tile, steps, sums);
    if constexpr (scaled_codes) W::multiply(sums, Scaled::factor);
    if constexpr (P.waves_k > 1) {
      if (!merge(k_part, shared, sums)) return;
    }
    typename W::Exchange none;
    W::finish(a, work, none, sums);
  }

 private:
  using Codes = Vec<std::uint32_t, Units::products>;
  using AWords = Vec<std::uint32_t, Units::a_words>;
  using LaneScales = Packed<S.group_scale(), scaled_codes ? 1 : run_length>;
  using LaneZero = Packed<DType::i8, 1>;
  using Window = typename B::template Window<true>;
  static constexpr std::uint32_t nowhere = 1u << 31;  // an offset beyond every window

  /// Merges the sums of the waves that share a part of the tile. The first of them adds the others' in the order of K,
  /// and gets true. The others get false, and are done.
  TILEWAVE_DEVICE static bool merge(int k_part, Shared& shared, typename W::WaveSums& sums) {
    const int lane = B::block_lane_id() % W::block_threads;
    if (k_part > 0) {
      static_for<products>([&](auto i) TILEWAVE_INLINE_LAMBDA {
        shared.sums[k_part - 1][i][lane] = __builtin_bit_cast(Chunk, sums[i / W::tiles_n][i % W::tiles_n]);
      });
    }
    B::barrier();
    if (k_part > 0) return false;
    TILEWAVE_UNROLL
    for (int p = 0; p < P.waves_k - 1; ++p) {
      static_for<products>([&](auto i) TILEWAVE_INLINE_LAMBDA {
        const auto other = __builtin_bit_cast(typename W::Sums, shared.sums[p][i][lane]);
        TILEWAVE_UNROLL
        for (int e = 0; e < Map::sums; ++e) sums[i / W::tiles_n][i % W::tiles_n][e] += other[e];
      });
    }
    return true;
  }

  /// A unit of all rows of A that a wave has.
  struct Rows {
    AWords words[W::tiles_m];
  };
  /// A step in registers. CDNA waits for loads in their order, so rows of A are loaded as early as codes.
  struct Stage {
    Rows rows[Units::per_step];
    Codes codes[W::tiles_n][atoms][Units::per_step];
    LaneScales scales[step_scales][W::tiles_n][atoms];
    LaneZero zeros[S.zero_points ? step_scales : 1][W::tiles_n][atoms];  // of the row whose codes the lane has
  };

  /// Loads one step after the other.
  struct Loads {
    const char *a, *codes, *scales;                  // the next step in the rows of the tile
    std::uint32_t a_bytes, code_bytes, scale_bytes;  // of the windows that begin there
    std::int64_t scale_stride;                       // from scale_k values of K to the next, in bytes
    std::int32_t left;                               // k from the next step on
    // Offsets in the windows, in bytes, of this lane's units and scales.
    std::uint32_t a_offset[W::tiles_m], code_offset[W::tiles_n][atoms], scale_offset[W::tiles_n][atoms];
    const char* zeros;
    std::uint32_t zero_offset[S.zero_points ? W::tiles_n : 1][atoms];

    TILEWAVE_DEVICE Loads(const GemmArgs& g, const GemmTile& tile, typename Args::Steps steps) {
      const typename W::TileRowsA rows_a(g, tile);
      const typename W::TileRowsB rows_b(g, tile);
      const int lane = B::lane_id(), lane_group = LaneMap<B>::group(lane), position = LaneMap<B>::position(lane);
      constexpr int a_size = size_of(S.a), scale_size = size_of(S.group_scale());
      const std::int64_t k = std::int64_t{steps.first} * Units::step_k;
      left = min_of(g.k, steps.end * Units::step_k) - steps.first * Units::step_k;
      a = static_cast<const char*>(g.a) + (tile.a_layer * g.a_layer_stride + rows_a.first * g.a_stride + k) * a_size;
      // The window ends with the last row. In a tile of one row the stride does not count, however large it is.
      a_bytes = static_cast<std::uint32_t>((max_of(rows_a.span() - 1, 0) * g.a_stride + g.k) * a_size);
      TILEWAVE_UNROLL
      for (int i = 0; i < W::tiles_m; ++i) {
        const int row = W::first_row() + i * Map::rows + position;
        a_offset[i] =
            rows_a.has(row)
                ? static_cast<std::uint32_t>((rows_a.row(row) * g.a_stride + Units::lane_k * lane_group) * a_size)
                : nowhere;
      }
      const std::int64_t strip_bytes = std::int64_t{g.k} * 8;  // of sixteen rows of B
      codes = static_cast<const char*>(g.b) + tile.layer * g.b_layer_stride + rows_b.first / 16 * strip_bytes + k * 8;
      code_bytes = static_cast<std::uint32_t>(ceil_div(rows_b.span(), 16) * strip_bytes);
      scales = static_cast<const char*>(g.b_group_scale) +
               (tile.layer * g.b_scale_layer_stride + k / S.scale_k * g.b_scale_k_stride + rows_b.first) * scale_size;
      scale_bytes = static_cast<std::uint32_t>((load_groups - 1) * g.b_scale_k_stride + rows_b.span()) * scale_size;
      if constexpr (S.zero_points)
        zeros = reinterpret_cast<const char*>(g.b_mx_scale) + tile.layer * g.b_scale_layer_stride +
                k / S.scale_k * g.b_scale_k_stride + rows_b.first;
      scale_stride = g.b_scale_k_stride * scale_size;
      TILEWAVE_UNROLL
      for (int j = 0; j < W::tiles_n; ++j) {
        TILEWAVE_UNROLL
        for (int atom = 0; atom < atoms; ++atom) {
          const int first = W::first_column() + j * Map::columns + atom * Map::kv;
          const int scale_column = first + (scaled_codes ? position : run_length * lane_group);
          const std::int32_t code_row = rows_b.row(first + position), scale_row = rows_b.row(scale_column);
          code_offset[j][atom] = rows_b.has(first + position)
                                     ? gemm_code_offset(code_row, Units::lane_k * lane_group, strip_bytes)
                                     : nowhere;
          const auto group = static_cast<std::uint32_t>(
              scaled_codes ? Units::lane_k * lane_group / S.scale_k * g.b_scale_k_stride : 0);
          scale_offset[j][atom] = rows_b.has(scale_column) ? (scale_row + group) * scale_size : nowhere;
          if constexpr (S.zero_points)
            zero_offset[j][atom] = rows_b.has(first + position) ? static_cast<std::uint32_t>(code_row) : nowhere;
        }
      }
    }

    /// The first k of unit u of the next step: of the lane where K may end within a unit, else of the wave.
    template <int u>
    TILEWAVE_DEVICE static int first_k() {
      return u * Units::wave_k + (scaled_codes ? Units::lane_k * LaneMap<B>::group(B::lane_id()) : 0);
    }
    /// Loads unit u of A's next step. `whole`: all of the step lies within K.
    template <bool whole, int u>
    TILEWAVE_DEVICE void load_rows(Rows& to) {
      const Window window{a, a_bytes};
      const std::uint32_t beyond = whole || first_k<u>() < left ? 0 : nowhere;
      constexpr int words = min_of(Units::a_words, 4);
      TILEWAVE_UNROLL
      for (int i = 0; i < W::tiles_m; ++i) {
        TILEWAVE_UNROLL
        for (int w = 0; w < Units::a_words; w += words) {
          const auto loaded = window.template load<Vec<std::uint32_t, words>>((a_offset[i] | beyond) +
                                                                              u * Units::wave_k * size_of(S.a) + 4 * w);
          TILEWAVE_UNROLL
          for (int e = 0; e < words; ++e) to.words[i][w + e] = loaded[e];
        }
      }
    }
    /// Loads the next step.
    template <bool whole>
    TILEWAVE_DEVICE void load(Stage& to) {
      const Window code_window{codes, code_bytes};
      static_for<Units::per_step>([&](auto u) TILEWAVE_INLINE_LAMBDA {
        const std::uint32_t beyond = whole || first_k<u>() < left ? 0 : nowhere;
        TILEWAVE_UNROLL
        for (int j = 0; j < W::tiles_n * atoms; ++j) {
          to.codes[j / atoms][j % atoms][u] =
              code_window.template load<Codes>((code_offset[j / atoms][j % atoms] | beyond) + u * Units::code_bytes);
        }
        load_rows<whole, u>(to.rows[u]);
      });
      static_for<step_scales>([&](auto s) TILEWAVE_INLINE_LAMBDA {
        const Window scale_window{scales + s * load_groups * scale_stride, scale_bytes};
        const std::uint32_t beyond = whole || first_k<s * scale_units>() < left ? 0 : nowhere;
        TILEWAVE_UNROLL
        for (int j = 0; j < W::tiles_n * atoms; ++j) {
          to.scales[s][j / atoms][j % atoms] =
              scale_window.template load<LaneScales>(scale_offset[j / atoms][j % atoms] | beyond);
        }
        if constexpr (S.zero_points) {
          const Window zero_window{zeros + s * (scale_stride / size_of(S.group_scale())),
                                   scale_bytes / size_of(S.group_scale())};
          TILEWAVE_UNROLL
          for (int j = 0; j < W::tiles_n * atoms; ++j) {
            to.zeros[s][j / atoms][j % atoms] =
                zero_window.template load<LaneZero>(zero_offset[j / atoms][j % atoms] | beyond);
          }
        }
      });
      a += Units::step_k * size_of(S.a);
      codes += Units::step_k * 8;
      scales += step_scales * load_groups * scale_stride;
      if constexpr (S.zero_points) zeros += step_scales * (scale_stride / size_of(S.group_scale()));
      left -= Units::step_k;
    }
  };

  /// Returns a lane's 8 k of a row of A for product p of a unit, in the type of the products.
  TILEWAVE_DEVICE static Chunk widened_row(const AWords& words, int p) {
    Chunk row;
    if constexpr (is_fp8(S.a)) {
      TILEWAVE_UNROLL
      for (int w = 0; w < 2; ++w) {
        const Vec<std::uint32_t, 2> pairs = B::widen_fp8_to_f16(words[2 * p + w]);
        row[2 * w] = pairs[0];
        row[2 * w + 1] = pairs[1];
      }
    } else {
      TILEWAVE_UNROLL
      for (int w = 0; w < 4; ++w) row[w] = words[4 * p + w];
    }
    return row;
  }

  /// Multiplies 32 k of 16 columns by the rows of one atom, which are tile `first` of the wave and those behind it.
  TILEWAVE_DEVICE static void multiply_atoms(const Chunk (&kv)[atoms], const Chunk (&rows)[W::tiles_m], int j,
                                             int first, typename W::WaveSums& sums) {
    TILEWAVE_UNROLL
    for (int chained = 0; chained < 8 / k_per_lane; ++chained) {
      constexpr int words = k_per_lane / 2;
      typename B::RowsOperand row_operand;
      TILEWAVE_UNROLL
      for (int w = 0; w < rows_per_lane * words; ++w)
        row_operand[w] = rows[first + w / words][chained * words + w % words];
      TILEWAVE_UNROLL
      for (int atom = 0; atom < atoms; ++atom) {
        typename B::KvOperand kv_operand;
        TILEWAVE_UNROLL
        for (int w = 0; w < words; ++w) kv_operand[w] = kv[atom][chained * words + w];
        typename B::Accumulator acc;
        TILEWAVE_UNROLL
        for (int i = 0; i < rows_per_lane * run_length; ++i)
          acc[i] = sums[first + i / run_length][j][atom * run_length + i % run_length];
        if constexpr (bf16_products) {
          acc = B::mma(kv_operand, row_operand, acc);
        } else {
          acc = B::mma_f16(kv_operand, row_operand, acc);
        }
        TILEWAVE_UNROLL
        for (int i = 0; i < rows_per_lane * run_length; ++i)
          sums[first + i / run_length][j][atom * run_length + i % run_length] = acc[i];
      }
    }
  }

  /// Returns 8 k of a lane's codes for product p of unit u, in the type of the products. `by_conversion`: see
  /// GemmScaledFp4.
  template <int s, int u, bool by_conversion>
  TILEWAVE_DEVICE static Chunk widened_codes(const Stage& stage, int j, int atom, int p) {
    const std::uint32_t codes = stage.codes[j][atom][u][p];
    if constexpr (scaled_codes) {
      return Scaled::template widened<by_conversion>(codes, stage.scales[s][j][atom][0]);
    } else if constexpr (S.mxfp4()) {
      return bf16_products ? B::widen_fp4(codes) : B::widen_fp4_to_f16(codes);
    } else if constexpr (S.zero_points) {
      const std::uint32_t zeros = B::template i4_zeros<S.a>(static_cast<std::int8_t>(stage.zeros[s][j][atom][0]));
      return bf16_products ? B::widen_i4(codes, zeros) : B::widen_i4_to_f16(codes, zeros);
    } else {
      return bf16_products ? B::widen_i4(codes) : B::widen_i4_to_f16(codes);
    }
  }
  /// Adds the products of the k that share scale s.
  template <int s, bool by_conversion>
  TILEWAVE_DEVICE static void multiply_scale(const Stage& stage, typename W::WaveSums& sums) {
    static_for<scale_units>([&](auto unit) TILEWAVE_INLINE_LAMBDA {
      constexpr int u = s * scale_units + unit;
      TILEWAVE_UNROLL
      for (int p = 0; p < Units::products; ++p) {
        Chunk rows[W::tiles_m];
        TILEWAVE_UNROLL
        for (int i = 0; i < W::tiles_m; ++i) rows[i] = widened_row(stage.rows[u].words[i], p);
        TILEWAVE_UNROLL
        for (int j = 0; j < W::tiles_n; ++j) {
          Chunk kv[atoms];
          TILEWAVE_UNROLL
          for (int atom = 0; atom < atoms; ++atom) kv[atom] = widened_codes<s, u, by_conversion>(stage, j, atom, p);
          TILEWAVE_UNROLL
          for (int i = 0; i < W::tiles_m; i += rows_per_lane) multiply_atoms(kv, rows, j, i, sums);
        }
      }
    });
  }
  /// Returns the scales of the columns of which a lane has sums.
  template <int s>
  TILEWAVE_DEVICE static Vec<float, run_length> column_scales(const Stage& stage, int j, int atom) {
    return widen<B, S.group_scale(), run_length>(stage.scales[s][j][atom]);
  }
  /// Says whether all scales of the step are such that conversions scale exactly, in all lanes of the wave.
  TILEWAVE_DEVICE static bool converts(const Stage& stage) {
    std::uint32_t least = 255, most = 0;
    static_for<step_scales>([&](auto s) TILEWAVE_INLINE_LAMBDA {
      TILEWAVE_UNROLL
      for (int j = 0; j < W::tiles_n * atoms; ++j) {
        const std::uint32_t scale = stage.scales[s][j / atoms][j % atoms][0];
        least = min_of(least, scale), most = max_of(most, scale);
      }
    });
    return B::uniform(B::any(!Scaled::converts(least) || !Scaled::converts(most))) == 0;
  }

  /// Adds the products of a step. Where codes are not scaled, the sum of the values that share a scale is scaled before
  /// it is added.
  TILEWAVE_DEVICE static void multiply_stage(const Stage& stage, typename W::WaveSums& sums) {
    if constexpr (scaled_codes) {
      if (converts(stage)) [[likely]] {
        static_for<step_scales>([&](auto s) TILEWAVE_INLINE_LAMBDA { multiply_scale<s, true>(stage, sums); });
      } else {
        static_for<step_scales>([&](auto s) TILEWAVE_INLINE_LAMBDA { multiply_scale<s, false>(stage, sums); });
      }
    } else {
      static_for<step_scales>([&](auto s) TILEWAVE_INLINE_LAMBDA {
        typename W::WaveSums scale_sums;
        W::clear(scale_sums);
        multiply_scale<s, false>(stage, scale_sums);
        TILEWAVE_UNROLL
        for (int j = 0; j < W::tiles_n; ++j) {
          TILEWAVE_UNROLL
          for (int atom = 0; atom < atoms; ++atom) {
            const Vec<float, run_length> scales = column_scales<s>(stage, j, atom);
            TILEWAVE_UNROLL
            for (int i = 0; i < W::tiles_m; ++i) {
              TILEWAVE_UNROLL
              for (int e = 0; e < run_length; ++e) {
                sums[i][j][atom * run_length + e] += scale_sums[i][j][atom * run_length + e] * scales[e];
              }
            }
          }
        }
      });
    }
  }

  TILEWAVE_DEVICE static void multiply(const GemmArgs& g, const GemmTile& tile, typename Args::Steps steps,
                                       typename W::WaveSums& sums) {
    Loads loads(g, tile, steps);
    Stage stage[P.stages];
    static_for<P.stages>([&](auto s) TILEWAVE_INLINE_LAMBDA { loads.template load<false>(stage[s]); });
    std::int32_t step = steps.first;
    for (; loads.left >= P.stages * Units::step_k; step += P.stages) {
      static_for<P.stages>([&](auto s) TILEWAVE_INLINE_LAMBDA {
        multiply_stage(stage[s], sums);
        B::sched_fence();  // Without it, loads get registers of their own, and wait for a copy from there.
        loads.template load<true>(stage[s]);
        B::sched_fence();
      });
    }
    for (; step < steps.end; step += P.stages) {
      static_for<P.stages>([&](auto s) TILEWAVE_INLINE_LAMBDA {
        if (step + s >= steps.end) return;
        multiply_stage(stage[s], sums);
        loads.template load<false>(stage[s]);
      });
    }
  }
};

}  // namespace tilewave
