// SPDX-License-Identifier: MIT
// The lane map of GemmTensorKernel's sums, and how the partials of blocks that share the K of a tile are added:
// through the shared memory of a cluster (merge), or through the workspace (combine).
#pragma once

#include "tilewave/ops/gemm/tensor/layout.hpp"

namespace tilewave {

template <class B, GemmSpec S, GemmPolicy P, class UserEpilogue>
class GemmSumMap {
 public:
  using L = GemmTensorLayout<B, S, P, UserEpilogue>;
  using Args = typename L::Args;
  using Shared = typename L::Shared;
  using Sums = typename L::Sums;
  using Epilogue = GemmEpilogue<B, S, UserEpilogue>;
  static constexpr bool quantised = S.out_scale != Scaling::none, per_group = Epilogue::per_group;

  /// Each block of a cluster has a split of K. It adds the partials of its part of the tile in the order of ranks, and
  /// writes that part. Wave groups of a block that share K have partials of their own. Such a block has one tile only,
  /// so the ring is free for the partials. The fetching waves take part in the barriers (join_merge).
  TILEWAVE_DEVICE void merge(const Args& a, const GemmTile& tile, int rank, int wave_group, Shared& shared,
                             Sums (&sums)[L::tiles]) {
    join_merge_of_products();
    out_factor_ = Epilogue::out_factor(a.gemm);
    using Sum = typename L::Sum;
    constexpr int partial = P.rows * partial_stride;
    Sum* const all = reinterpret_cast<Sum*>(shared.tall);
    Sum* const own = all + (P.waves_k > 1 ? wave_group / L::stage_groups * partial : 0);
    TILEWAVE_UNROLL
    for (int half = 0; half < L::halves; ++half) {
      TILEWAVE_UNROLL
      for (int t = 0; t < tiles_c; ++t) {
        TILEWAVE_UNROLL
        for (int i = 0; i < L::sums_of(wide_c); i += 2) {  // two neighbours of the wide side
          const Vec<Sum, 2> two{{sum_of(sums, half, t, i), sum_of(sums, half, t, i + 1)}};
          if constexpr (P.swapped) {
            own[offset(element(wave_group, t, i), half)] = two[0];
            own[offset(element(wave_group, t, i + 1), half)] = two[1];
          } else {
            *reinterpret_cast<Vec<Sum, 2>*>(own + offset(element(wave_group, t, i), half)) = two;
          }
        }
      }
    }
    join_merge_of_partials();
    constexpr int lanes = L::wave_groups * L::wave_group_lanes;
    const int splits = a.gemm.splits;
    for (int i = merged_first(rank); i < vectors; i += splits * lanes) {
      // What is read of other blocks is stored, so a lane that is here again knows that its reads are done.
      const bool whole_rows = L::writes_squares && a.out_squares != nullptr;  // whose lanes add up their squares
      const int of_wave = whole_rows ? i / B::facts.wave_lanes * B::facts.wave_lanes : i;
      if (tile.first_row + vector_of(of_wave).row >= tile.row_end) continue;
      if (!per_group && tile.first_column + vector_of(i).column >= a.gemm.n) continue;
      const auto values = write_vector(a, tile, i, [&](InTile first, int half) TILEWAVE_INLINE_LAMBDA {
        // All partials are asked for before the first is added: a read of another block's memory takes long.
        Vec<Sum, vector_size> parts[P.splits * P.waves_k];
        TILEWAVE_UNROLL
        for (int r = 0; r < P.splits * P.waves_k; ++r) {
          Sum* const from = all + r % P.waves_k * partial + offset(first, half);
          if (r / P.waves_k < splits)
            parts[r] =
                *reinterpret_cast<const Vec<Sum, vector_size>*>(P.splits > 1 ? B::remote(from, r / P.waves_k) : from);
        }
        Vec<Sum, vector_size> sum{};
        TILEWAVE_UNROLL
        for (int r = 0; r < P.splits * P.waves_k; ++r) {
          TILEWAVE_UNROLL
          for (int e = 0; e < vector_size; ++e) {
            if (r / P.waves_k < splits) sum[e] += parts[r][e];
          }
        }
        if constexpr (L::norms) {
          if (a.normalises) {
            for (Sum& value : sum.data) value *= shared.norm.rows[first.row];
          }
        }
        return sum;
      });
      if constexpr (L::writes_squares) {
        if (whole_rows) {
          const auto rounded = widen<B, S.out, vector_size>(narrow<B, S.out, vector_size>(values));
          float squares = 0.0f;
          for (const float value : rounded.data) squares += value * value;
          store_square<columns / vector_size>(a, tile, vector_of(i).row, squares);
        }
      }
    }
  }
  /// Stores the sum of squares that `lanes` neighbours have of a row of the tile.
  template <int lanes>
  TILEWAVE_DEVICE static void store_square(const Args& a, const GemmTile& tile, int row, float squares) {
    squares = B::template reduce<lanes>(squares, ::tilewave::Sum{});
    const std::int32_t in_layer = tile.first_row + row;
    if (B::lane_id() % lanes == 0 && in_layer < tile.row_end)
      B::store(a.out_squares + std::int64_t{in_layer} * (a.gemm.n / gemm_squares_columns) +
                   tile.first_column / gemm_squares_columns,
               squares);
  }
  /// The barriers of `merge`, for the waves that have no sums.
  TILEWAVE_DEVICE static void join_merge() {
    join_merge_of_products();
    join_merge_of_partials();
  }

  /// A vector is four neighbours of a row of the tile of C.
  static constexpr int vector_size = 4, vectors = P.rows * gemm_tile_columns(S, P) / vector_size;

  /// Stores the sums as partial number `partial` of the workspace, [P.rows][P.columns].
  TILEWAVE_DEVICE void store_partial(const Args& a, std::int32_t partial, int wave_group,
                                     const Sums (&sums)[L::tiles]) {
    using Sum = typename L::Sum;
    Sum* const to = a.partial + partial * std::int64_t{P.rows * P.columns};
    TILEWAVE_UNROLL
    for (int half = 0; half < L::halves; ++half) {
      TILEWAVE_UNROLL
      for (int t = 0; t < tiles_c; ++t) {
        TILEWAVE_UNROLL
        for (int i = 0; i < L::sums_of(wide_c); i += 2) {  // two neighbours of the wide side
          const Vec<Sum, 2> two{{sum_of(sums, half, t, i), sum_of(sums, half, t, i + 1)}};
          if constexpr (P.swapped) {
            B::store(to + offset<P.columns>(element(wave_group, t, i), half), two[0]);
            B::store(to + offset<P.columns>(element(wave_group, t, i + 1), half), two[1]);
          } else {
            B::store(reinterpret_cast<Vec<Sum, 2>*>(to + offset<P.columns>(element(wave_group, t, i), half)), two);
          }
        }
      }
    }
  }
  /// Adds vector i of all partials of a tile in the order of K, and writes it.
  TILEWAVE_DEVICE void combine(const Args& a, const GemmTile& tile, const GemmStream::Partials& partials, int i) {
    using Sum = typename L::Sum;
    out_factor_ = Epilogue::out_factor(a.gemm);
    write_vector(a, tile, i, [&](InTile at, int half) TILEWAVE_INLINE_LAMBDA {
      Vec<Sum, vector_size> all{};
      constexpr std::int64_t size = P.rows * P.columns;
      const Sum* from = a.partial + partials.first * size + offset<P.columns>(at, half);
      const std::int64_t stride = a.stream.run_tiles.divisor * size;
      for (std::int32_t part = 0; part < partials.count; ++part, from += stride) {
        const auto some = B::load(reinterpret_cast<const Vec<Sum, vector_size>*>(from));
        TILEWAVE_UNROLL
        for (int e = 0; e < vector_size; ++e) all[e] += some[e];
      }
      return all;
    });
  }

 protected:
  struct InTile {
    int row, column;  // of C
  };
  // Gated products have the sums of gates first and those of their ups second: tiles if swapped, else elements. Or both
  // are rows of a lane in one tile (L::pairs).
  static constexpr int columns = gemm_tile_columns(S, P);
  static constexpr int tiles_c = P.swapped && !L::pairs ? L::tiles / L::halves : L::tiles;
  static constexpr int wide_c = P.swapped ? L::wave_group_wide : L::wave_group_wide / L::halves;
  TILEWAVE_DEVICE static int first_tall(int wave_group) {
    return L::tall_row(wave_group) / (P.swapped ? L::halves : 1);
  }
  TILEWAVE_DEVICE static int first_wide(int wave_group) {
    return L::wide_row(wave_group) / (P.swapped ? 1 : L::halves);
  }
  TILEWAVE_DEVICE static typename L::Sum sum_of(const Sums (&sums)[L::tiles], int half, int t, int i) {
    if constexpr (L::pairs) return sums[t][i / 2 * 4 + 2 * half + i % 2];
    return P.swapped ? sums[t + half * tiles_c][i] : sums[t][i + half * wide_c / 2];
  }

  /// The place of this lane's element i of tile t in the tile of C.
  TILEWAVE_DEVICE static InTile element(int wave_group, int t, int i) {
    const int lane = B::lane_id(), wave = L::wave_in_wave_group();
    const int tall =
        first_tall(wave_group) + (L::pairs ? 8 * wave + lane / 4 : 64 * t + 16 * wave + lane / 4 + 8 * (i / 2 % 2));
    const int wide = first_wide(wave_group) + 8 * (i / L::sums_of(8)) + 2 * (lane % 4) + i % 2;
    return P.swapped ? InTile{wide, tall} : InTile{tall, wide};
  }
  /// Partials lie as rows of C, so that lanes write neighbouring columns. Rows are padded against bank conflicts.
  static constexpr int partial_stride = P.columns + 4;
  template <int stride = partial_stride>
  TILEWAVE_DEVICE static int offset(InTile e, int half) {
    return e.row * stride + half * columns + e.column;
  }
  TILEWAVE_DEVICE float scaled(float value) const { return quantised ? value * out_factor_ : value; }
  /// The factor by which neighbouring `lanes` multiply a row's 128 columns from `first` on. Its inverse, the scale, is
  /// stored. `largest` is the largest magnitude that the lane has.
  template <int lanes>
  TILEWAVE_DEVICE static float keep_scale(const Args& a, const GemmTile& tile, int row, int first, float largest) {
    largest = B::template reduce<lanes>(largest, Max{});
    const std::int32_t in_layer = tile.first_row + row, column = tile.first_column + first;
    if (B::lane_id() % lanes == 0 && in_layer < tile.row_end && column < a.gemm.n)
      Epilogue::store_scale(a.gemm, tile, in_layer, column, largest);
    return quant_factor(S.out, largest);
  }

  TILEWAVE_DEVICE static void store(const Args& a, const GemmTile& tile, InTile at, float value) {
    const std::int32_t row = tile.first_row + at.row, column = tile.first_column + at.column;
    if (row < tile.row_end && column < a.gemm.n) Epilogue::store(a.gemm, tile, row, column, Vec<float, 1>{{value}});
  }

  TILEWAVE_DEVICE static InTile vector_of(int i) {
    return {i / (columns / vector_size), i % (columns / vector_size) * vector_size};
  }
  /// The first vector that the lane adds up where blocks share K.
  TILEWAVE_DEVICE static int merged_first(int rank) {
    return rank * L::wave_groups * L::wave_group_lanes + B::block_lane_id();
  }

  float out_factor_ = 1.0f;
  /// Rows that a lane writes by GemmProblem::cache_write: of boxes one in each 16 of the tile. Where blocks share the K
  /// of a tile of 16 rows, a lane has one vector of it.
  static constexpr int cache_rounds = ceil_div(P.rows, 16);
  struct CacheRows {
    GemmCacheRow<B> row[cache_rounds];
  };
  [[no_unique_address]] std::conditional_t<L::writes_cache, CacheRows, GemmNoCacheRow> cache_;

 private:
  TILEWAVE_DEVICE static void join_merge_of_products() { B::barrier(); }  // all products have read the ring
  TILEWAVE_DEVICE static void join_merge_of_partials() {
    if constexpr (P.splits == 1) {
      B::barrier();
    } else {
      B::cluster_arrive();
      B::cluster_wait();
    }
  }

  /// Runs the epilogue on vector i of a tile, stores what of it is in the matrix, and returns it.
  /// `sums_of(first, half)` gives its sums over all of K.
  template <class SumsOf>
  TILEWAVE_DEVICE Vec<float, vector_size> write_vector(const Args& a, const GemmTile& tile, int i,
                                                       const SumsOf& sums_of) {
    const InTile first = vector_of(i);
    const std::int32_t row = tile.first_row + first.row, column = tile.first_column + first.column;
    [[maybe_unused]] std::conditional_t<L::writes_cache, GemmCacheOutput<B, S.out, vector_size>, GemmNoCacheRow> heads;
    if constexpr (L::writes_cache) {
      if (a.cache.writes && row < tile.row_end && column < a.gemm.n) {
        if constexpr (cache_rounds > 1) cache_.row[0].find(a.cache, row);
        heads.load(a.cache, cache_.row[0], column);
      }
    }
    Vec<float, vector_size> values[L::halves];
    TILEWAVE_UNROLL
    for (int half = 0; half < L::halves; ++half) {
      values[half] = as_floats(sums_of(first, half));
      if constexpr (L::packed) {
        for (float& value : values[half].data) value *= L::Codes::factor;
      }
    }
    const auto at = [&](int e) TILEWAVE_INLINE_LAMBDA { return InTile{first.row, first.column + e}; };
    Epilogue::apply(a.gemm, a.epilogue, tile, values, at);
    if constexpr (per_group) {
      static_assert(scale_group == vector_size * B::facts.wave_lanes, "a wave has one group of 128 columns of a row");
      float largest = 0.0f;
      TILEWAVE_UNROLL
      for (int e = 0; e < vector_size; ++e)
        largest = Epilogue::amax(a.gemm, tile.first_column + at(e).column, largest, values[0][e]);
      out_factor_ =
          keep_scale<B::facts.wave_lanes>(a, tile, first.row, first.column / scale_group * scale_group, largest);
    }
    TILEWAVE_UNROLL
    for (int e = 0; e < vector_size; ++e) values[0][e] = scaled(values[0][e]);
    if constexpr (L::writes_cache) {
      if (a.cache.writes) {
        if (row < tile.row_end && column < a.gemm.n)
          heads.store(a.cache, a.gemm, cache_.row[0], row, column, narrow<B, S.out, vector_size>(values[0]));
        return values[0];
      }
    }
    if (a.wide_stores && column + vector_size <= a.gemm.n) {
      if (row < tile.row_end) Epilogue::store(a.gemm, tile, row, column, values[0]);
    } else {
      TILEWAVE_UNROLL
      for (int e = 0; e < vector_size; ++e) store(a, tile, at(e), values[0][e]);
    }
    return values[0];
  }
};

}  // namespace tilewave
