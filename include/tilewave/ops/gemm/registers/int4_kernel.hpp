// SPDX-License-Identifier: MIT
// GEMM with weights of four bits, preshuffled, of CDNA: rows of A and codes of B come straight to registers,
// where codes are widened to the type of the products, exactly; fp8 rows are, too, to f16. Products are the room's
// atom, with A as its rows. What a group of k sums up to is scaled and added in f32. A step is 128 k, of which `stages`
// are under way. Waves share nothing but, where P.waves_k says so, the K of their tile, whose sums they merge in order
// at the end; blocks may share K besides. LDS plan: those sums. Bound: memory bandwidth of B where rows are few.
#pragma once

#include "tilewave/ops/gemm/wave_tile/wave_tile.hpp"

namespace tilewave {

/// How a lane's loads, the units of k, follow each other. A lane of group u takes 8 k for an atom or two of 32 k: of
/// each 32 those from 8 u on; or, where scales let two such products be of one group, of each 64 the 16 from 16 u on,
/// which lie side by side.
template <GemmSpec S>
struct GemmPackedUnits {
  static constexpr int step = 128, products = S.scale_k >= 64 ? 2 : 1, k = 8 * products;  // of a lane's load of codes
  static constexpr int all_k = 4 * k, count = step / all_k;                               // of a step
  static constexpr int code_bytes = all_k * 8;                                            // of sixteen rows
  static constexpr int a_words = k * size_of(S.a) / 4;                                    // of a lane

  /// Where a lane's first unit of codes lies, of row r of sixteen; in bytes.
  TILEWAVE_HOST_DEVICE static constexpr int code_at(int group, int r) {
    return k * group / 16 * 128 + r * 8 + k * group % 16 / 2;
  }
};

template <class B, GemmSpec S, GemmPolicy P, class UserEpilogue = GemmIdentity>
struct GemmInt4Kernel {
  using Room = B;
  using W = GemmWaveTile<B, S, P, UserEpilogue>;
  using Args = typename W::Args;
  using Units = GemmPackedUnits<S>;
  using Map = typename W::Map;
  static constexpr int lanes = B::facts.wave_lanes;
  static constexpr int block_threads = W::block_threads * P.waves_k;
  static constexpr int waves_per_simd = P.waves_per_simd * ceil_div(W::waves * P.waves_k, B::facts.simds_per_cu);
  static constexpr int k_per_lane = B::atom.k_per_lane, rows_per_lane = B::atom.rows_per_lane;
  static constexpr int atoms = Map::columns / Map::kv, sums_of_row = Map::run;  // beside each other; of a lane in each
  static constexpr int groups = Units::step / S.scale_k, units_of_group = Units::count / groups;
  static constexpr bool of_bf16 = S.a == DType::bf16;  // products, else of f16
  static_assert(W::tiles_m % rows_per_lane == 0 && units_of_group > 0,
                "a wave has whole atoms of rows, and a lane's loads are of one scale");

  static constexpr int products = W::tiles_m * W::tiles_n;
  struct Merged {
    Chunk sums[P.waves_k - 1][products][W::block_threads];
  };
  struct Shared : std::conditional_t<(P.waves_k > 1), Merged, typename W::Exchange> {};

  TILEWAVE_DEVICE static void run(const Args& a, Shared& shared) {
    const typename W::Place place(a, B::block_id(), true);
    if (!place.any) return;
    typename W::AllSums sums;
    W::clear(sums);
    auto steps = a.steps(place.split);
    int part = 0;
    if constexpr (P.waves_k > 1) {
      part = B::wave_id() / W::waves;
      const std::int32_t count = steps.end - steps.first;
      const std::int32_t first = steps.first;
      steps = {first + count * part / P.waves_k, first + count * (part + 1) / P.waves_k};
    }
    if (steps.first < steps.end) multiply(a.gemm, place.tile, steps, sums);
    if constexpr (P.waves_k > 1) {
      if (!merge(part, shared, sums)) return;
    }
    typename W::Exchange none;
    W::finish(a, place, none, sums);
  }

 private:
  using Codes = Vec<std::uint32_t, Units::products>;
  using AWords = Vec<std::uint32_t, Units::a_words>;
  using GroupScales = Packed<S.group_scale(), sums_of_row>;
  using Window = typename B::template Window<true>;
  static constexpr std::uint32_t nowhere = 1u << 31;  // beyond every window

  /// The first wave of those that share a part of the tile adds what the others bring, in their order.
  TILEWAVE_DEVICE static bool merge(int part, Shared& shared, typename W::AllSums& sums) {
    const int lane = B::block_lane_id() % W::block_threads;
    if (part > 0) {
      static_for<products>([&](auto i) TILEWAVE_INLINE_LAMBDA {
        shared.sums[part - 1][i][lane] = __builtin_bit_cast(Chunk, sums[i / W::tiles_n][i % W::tiles_n]);
      });
    }
    B::barrier();
    if (part > 0) return false;
    TILEWAVE_UNROLL
    for (int p = 0; p < P.waves_k - 1; ++p) {
      static_for<products>([&](auto i) TILEWAVE_INLINE_LAMBDA {
        const auto more = __builtin_bit_cast(typename W::Sums, shared.sums[p][i][lane]);
        TILEWAVE_UNROLL
        for (int e = 0; e < Map::sums; ++e) sums[i / W::tiles_n][i % W::tiles_n][e] += more[e];
      });
    }
    return true;
  }

  /// A unit of the rows of A.
  struct Rows {
    AWords of[W::tiles_m];
  };
  /// CDNA waits for loads in their order: rows of A have to be asked for as early as codes.
  struct Stage {
    Rows rows[Units::count];
    Codes codes[W::tiles_n][atoms][Units::count];
    GroupScales scales[groups][W::tiles_n][atoms];
  };

  /// Loads of one step after the other.
  struct Loads {
    const char *a, *codes, *scales;  // of the next step
    std::uint32_t a_bytes, code_bytes, scale_bytes;
    std::int64_t scale_step;
    std::int32_t left;  // k from the next step on
    std::uint32_t a_at[W::tiles_m], codes_at[W::tiles_n][atoms], scales_at[W::tiles_n][atoms];

    TILEWAVE_DEVICE Loads(const GemmArgs& g, const GemmTile& tile, typename Args::Steps steps) {
      const typename W::RowsOfA rows_a(g, tile);
      const typename W::RowsOfB rows_b(g, tile);
      const int lane = B::lane_id(), group = LaneMap<B>::group(lane), position = LaneMap<B>::position(lane);
      constexpr int a_size = size_of(S.a), scale_size = size_of(S.group_scale());
      const std::int64_t k = std::int64_t{steps.first} * Units::step;
      left = min_of(g.k, steps.end * Units::step) - steps.first * Units::step;
      a = static_cast<const char*>(g.a) + (tile.a_layer * g.a_layer_stride + rows_a.first * g.a_stride + k) * a_size;
      // The last row's end; a tile of one row has no use for the stride, however large.
      a_bytes = static_cast<std::uint32_t>((max_of(rows_a.span() - 1, 0) * g.a_stride + g.k) * a_size);
      TILEWAVE_UNROLL
      for (int i = 0; i < W::tiles_m; ++i) {
        const int row = W::first_row() + i * Map::rows + position;
        a_at[i] = rows_a.has(row)
                      ? static_cast<std::uint32_t>((rows_a.row(row) * g.a_stride + Units::k * group) * a_size)
                      : nowhere;
      }
      const std::int64_t of_sixteen = std::int64_t{g.k} * 8;  // bytes of sixteen rows of B
      codes = static_cast<const char*>(g.b) + tile.layer * g.b_layer_stride + rows_b.first / 16 * of_sixteen + k * 8;
      code_bytes = static_cast<std::uint32_t>(ceil_div(rows_b.span(), 16) * of_sixteen);
      scales = static_cast<const char*>(g.b_group_scale) +
               (tile.layer * g.b_scale_layer_stride + k / S.scale_k * g.b_scale_k_stride + rows_b.first) * scale_size;
      scale_bytes = static_cast<std::uint32_t>(rows_b.span()) * scale_size;
      scale_step = g.b_scale_k_stride * scale_size;
      TILEWAVE_UNROLL
      for (int j = 0; j < W::tiles_n; ++j) {
        TILEWAVE_UNROLL
        for (int atom = 0; atom < atoms; ++atom) {
          const int first = W::first_column() + j * Map::columns + atom * Map::kv;
          const std::int32_t of_codes = rows_b.row(first + position),
                             of_scales = rows_b.row(first + sums_of_row * group);
          codes_at[j][atom] = rows_b.has(first + position) ? static_cast<std::uint32_t>(of_codes / 16 * of_sixteen) +
                                                                 Units::code_at(group, of_codes % 16)
                                                           : nowhere;
          scales_at[j][atom] = rows_b.has(first + sums_of_row * group) ? of_scales * scale_size : nowhere;
        }
      }
    }

    /// Unit u of A's next step. `whole`: it is there.
    template <bool whole, int u>
    TILEWAVE_DEVICE void load_rows(Rows& to) {
      const Window of_a{a, a_bytes};
      const std::uint32_t beyond = whole || u * Units::all_k < left ? 0 : nowhere;
      constexpr int words = min_of(Units::a_words, 4);
      TILEWAVE_UNROLL
      for (int i = 0; i < W::tiles_m; ++i) {
        TILEWAVE_UNROLL
        for (int w = 0; w < Units::a_words; w += words) {
          const auto some = of_a.template load<Vec<std::uint32_t, words>>((a_at[i] | beyond) +
                                                                          u * Units::all_k * size_of(S.a) + 4 * w);
          TILEWAVE_UNROLL
          for (int e = 0; e < words; ++e) to.of[i][w + e] = some[e];
        }
      }
    }
    /// The next step.
    template <bool whole>
    TILEWAVE_DEVICE void load(Stage& to) {
      const Window of_codes{codes, code_bytes};
      static_for<Units::count>([&](auto u) TILEWAVE_INLINE_LAMBDA {
        const std::uint32_t beyond = whole || u * Units::all_k < left ? 0 : nowhere;
        TILEWAVE_UNROLL
        for (int j = 0; j < W::tiles_n * atoms; ++j) {
          to.codes[j / atoms][j % atoms][u] =
              of_codes.template load<Codes>((codes_at[j / atoms][j % atoms] | beyond) + u * Units::code_bytes);
        }
        load_rows<whole, u>(to.rows[u]);
      });
      static_for<groups>([&](auto g) TILEWAVE_INLINE_LAMBDA {
        const Window of_group{scales + g * scale_step, scale_bytes};
        const std::uint32_t beyond = whole || g * S.scale_k < left ? 0 : nowhere;
        TILEWAVE_UNROLL
        for (int j = 0; j < W::tiles_n * atoms; ++j) {
          to.scales[g][j / atoms][j % atoms] =
              of_group.template load<GroupScales>(scales_at[j / atoms][j % atoms] | beyond);
        }
      });
      a += Units::step * size_of(S.a);
      codes += Units::step * 8;
      scales += groups * scale_step;
      left -= Units::step;
    }
  };

  /// A lane's 8 k of a row of A for product p of a unit.
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

  /// 32 k of 16 columns and of the rows of one atom, whose tiles are `first` and those behind it.
  TILEWAVE_DEVICE static void multiply_atoms(const Chunk (&kv)[atoms], const Chunk (&rows)[W::tiles_m], int j,
                                             int first, typename W::AllSums& sums) {
    TILEWAVE_UNROLL
    for (int part = 0; part < 8 / k_per_lane; ++part) {
      constexpr int words = k_per_lane / 2;
      typename B::RowsOperand of_rows;
      TILEWAVE_UNROLL
      for (int w = 0; w < rows_per_lane * words; ++w) of_rows[w] = rows[first + w / words][part * words + w % words];
      TILEWAVE_UNROLL
      for (int atom = 0; atom < atoms; ++atom) {
        typename B::KvOperand of_kv;
        TILEWAVE_UNROLL
        for (int w = 0; w < words; ++w) of_kv[w] = kv[atom][part * words + w];
        typename B::Accumulator acc;
        constexpr int n = sums_of_row;
        TILEWAVE_UNROLL
        for (int i = 0; i < rows_per_lane * n; ++i) acc[i] = sums[first + i / n][j][atom * n + i % n];
        if constexpr (of_bf16) {
          acc = B::mma(of_kv, of_rows, acc);
        } else {
          acc = B::mma_f16(of_kv, of_rows, acc);
        }
        TILEWAVE_UNROLL
        for (int i = 0; i < rows_per_lane * n; ++i) sums[first + i / n][j][atom * n + i % n] = acc[i];
      }
    }
  }

  TILEWAVE_DEVICE static void multiply_stage(const Stage& stage, typename W::AllSums& sums) {
    static_for<groups>([&](auto g) TILEWAVE_INLINE_LAMBDA {
      typename W::AllSums part;
      W::clear(part);
      static_for<units_of_group>([&](auto unit) TILEWAVE_INLINE_LAMBDA {
        constexpr int u = g * units_of_group + unit;
        const Rows& unit_rows = stage.rows[u];
        TILEWAVE_UNROLL
        for (int p = 0; p < Units::products; ++p) {
          Chunk rows[W::tiles_m];
          TILEWAVE_UNROLL
          for (int i = 0; i < W::tiles_m; ++i) rows[i] = widened_row(unit_rows.of[i], p);
          TILEWAVE_UNROLL
          for (int j = 0; j < W::tiles_n; ++j) {
            Chunk kv[atoms];
            TILEWAVE_UNROLL
            for (int atom = 0; atom < atoms; ++atom) {
              const std::uint32_t codes = stage.codes[j][atom][u][p];
              kv[atom] = of_bf16 ? B::widen_i4(codes) : B::widen_i4_to_f16(codes);
            }
            TILEWAVE_UNROLL
            for (int i = 0; i < W::tiles_m; i += rows_per_lane) multiply_atoms(kv, rows, j, i, part);
          }
        }
      });
      TILEWAVE_UNROLL
      for (int j = 0; j < W::tiles_n; ++j) {
        TILEWAVE_UNROLL
        for (int atom = 0; atom < atoms; ++atom) {
          const Vec<float, sums_of_row> scales = widen<B, S.group_scale(), sums_of_row>(stage.scales[g][j][atom]);
          TILEWAVE_UNROLL
          for (int i = 0; i < W::tiles_m; ++i) {
            TILEWAVE_UNROLL
            for (int e = 0; e < sums_of_row; ++e) {
              sums[i][j][atom * sums_of_row + e] += part[i][j][atom * sums_of_row + e] * scales[e];
            }
          }
        }
      }
    });
  }

  TILEWAVE_DEVICE static void multiply(const GemmArgs& g, const GemmTile& tile, typename Args::Steps steps,
                                       typename W::AllSums& sums) {
    Loads loads(g, tile, steps);
    Stage stage[P.stages];
    static_for<P.stages>([&](auto s) TILEWAVE_INLINE_LAMBDA { loads.template load<false>(stage[s]); });
    std::int32_t step = steps.first;
    for (; loads.left >= P.stages * Units::step; step += P.stages) {
      static_for<P.stages>([&](auto s) TILEWAVE_INLINE_LAMBDA {
        multiply_stage(stage[s], sums);
        B::sched_fence();  // else loads get registers of their own, and wait for a copy from there
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
