// SPDX-License-Identifier: MIT
// What a block of CDNA's GEMM kernels keeps where: waves in the tile, sums in a wave, rows of operands in LDS.
#pragma once

#include "tilewave/arch/lds.hpp"
#include "tilewave/core/static_for.hpp"
#include "tilewave/ops/gemm/epilogue.hpp"
#include "tilewave/ops/gemm/policy_status.hpp"

namespace tilewave {

/// Sums of a wave's products, rows x columns each, of which `run` neighbours of a row of C are a lane's.
/// `chunks_a`, `chunks_b`: units of 16 bytes that a lane has of either operand for one product.
template <class B, GemmSpec S, int side>
struct GemmSquareMap : ProductMap<side> {
  static constexpr int rows = side, columns = side, run = 4;
  /// In LDS the k of a lane in a step lie side by side, and not those of all lanes for a product: two products of six
  /// bits take three units.
  static constexpr bool by_lane = is_fp6(S.a) || is_fp6(S.b);
  static constexpr int chunks_a = B::template product_chunks<S.a>, chunks_b = B::template product_chunks<S.b>;
};
/// The same by the room's atom: as many atoms side by side as make 16 columns.
template <class B>
struct GemmAtomMap {
  static constexpr int kv = B::atom.kv, run = B::atom.kv_per_lane;
  static constexpr int rows = B::atom.rows / B::atom.rows_per_lane, columns = 16, sums = 4;

  TILEWAVE_HOST_DEVICE static constexpr int row(int lane) { return LaneMap<B>::position(lane); }
  TILEWAVE_HOST_DEVICE static constexpr int kv_row(int lane, int i) {
    return kv * (i / run) + run * LaneMap<B>::group(lane) + i % run;
  }
};

/// Waves and their products. A wave has `tiles_m` x `tiles_n` products of side x side; the lanes of A's side are the
/// rows operand, so that a lane's sums are runs of four neighbours of a row of C.
template <class B, GemmSpec S, GemmPolicy P, class UserEpilogue>
struct GemmWaveTile {
  static_assert(gemm_policy_status(B::facts.id, S, P).ok(),
                "a law of policies is broken: gemm_policy_status(arch, spec, policy).reason says which");
  using Backend = B;
  static constexpr GemmSpec spec = S;
  static constexpr GemmPolicy policy = P;
  static constexpr int waves = P.waves_rows * P.waves_columns;
  static constexpr int block_threads = waves * B::facts.wave_lanes;  // of those that share no K
  static constexpr int wave_rows = P.rows / P.waves_rows, wave_columns = P.columns / P.waves_columns;
  static constexpr int side = wave_rows % 32 == 0 && wave_columns % 32 == 0 ? 32 : 16;
  using Map = std::conditional_t<S.int4(), GemmAtomMap<B>, GemmSquareMap<B, S, side>>;
  static constexpr int tiles_m = wave_rows / Map::rows, tiles_n = wave_columns / Map::columns;
  using Sum = ProductSum<S.a>;
  using Sums = Vec<Sum, Map::sums>;
  using AllSums = Sums[tiles_m][tiles_n];
  using TileRows = GemmTileRows<S, wave_columns>;                              // of B
  static constexpr int tile_columns = gemm_tile_columns(S, P);                 // of C
  static constexpr int halves = TileRows::halves, tiles_c = tiles_n / halves;  // of C along a row, each of all halves
  static constexpr int step_k = P.depth_bytes * packing_of(S.a) / size_of(S.a);

  struct Args {
    GemmArgs gemm;
    UserEpilogue epilogue;
    float* partial;        // sums of blocks that share K, of i8 as ints
    std::int64_t tiles;    // of the grid, `splits` blocks each
    std::int32_t k_steps;  // of P.depth_bytes bytes
    bool wide_rows;        // runs of four neighbours of a row of C are aligned

    struct Steps {
      std::int32_t first, end;
    };
    TILEWAVE_DEVICE Steps steps(std::int32_t split) const {
      const auto from = [&](std::int32_t s) { return std::int32_t(std::int64_t{k_steps} * s / gemm.splits); };
      return {from(split), from(split + 1)};
    }
  };

  /// Where a block works. Block ids go round robin over the XCDs, each of which has an L2 of its own: neighbouring
  /// tiles go to one of them.
  struct Place {
    std::int32_t number, split;
    bool any;
    GemmTile tile;

    TILEWAVE_DEVICE Place(const Args& a, std::int32_t block, bool of_split) {
      constexpr std::int32_t xcds = B::facts.xcds;
      const std::int32_t tiles = static_cast<std::int32_t>(a.tiles), splits = of_split ? a.gemm.splits : 1;
      const std::int32_t turn = block / splits, whole = tiles / xcds, more = tiles % xcds;
      split = block - turn * splits;
      const std::int32_t xcd = turn % xcds;
      number = xcd * whole + min_of(xcd, more) + turn / xcds;
      GemmTiles<B, S, P> all(a.gemm, number, 1, 0);
      any = all.next(tile);
      if (!any) return;
      tile.layer = B::uniform(tile.layer);
      tile.a_layer = B::uniform(tile.a_layer);
      tile.first_row = B::uniform(tile.first_row);
      tile.row_end = B::uniform(tile.row_end);
      tile.first_column = B::uniform(tile.first_column);
    }
  };

  /// Of this wave among those that share no K; those that do come one set after the other.
  TILEWAVE_DEVICE static int wave() { return P.waves_k == 1 ? B::wave_id() : B::wave_id() % waves; }
  TILEWAVE_DEVICE static int first_row() { return wave() / P.waves_columns * wave_rows; }
  TILEWAVE_DEVICE static int first_column() { return wave() % P.waves_columns * wave_columns; }

  /// The rows that a tile has of an operand as a buffer.
  template <DType type, class RowsOf>
  TILEWAVE_DEVICE static auto source(const void* base, std::int64_t layer_offset, std::int64_t stride, const RowsOf& of,
                                     std::int32_t k) {
    const char* const at = static_cast<const char*>(base) + (layer_offset + of.first * stride) * size_of(type);
    const std::int64_t bytes =
        of.left <= 0 || k == 0 ? 0 : (of.span() - 1) * stride * size_of(type) + bytes_of(type, k);
    return typename B::Source{at, static_cast<std::uint32_t>(align_up<std::int64_t>(bytes, 16))};
  }

  /// The same of preshuffled weights: sixteen rows are one that is sixteen times as long.
  template <DType type, class RowsOf>
  TILEWAVE_DEVICE static auto strips(const void* base, std::int64_t layer_offset, const RowsOf& of, std::int32_t k) {
    const std::int64_t row_bytes = bytes_of(type, k), strips = ceil_div(of.span(), 16);
    const char* const at = static_cast<const char*>(base) + layer_offset * size_of(type) + of.first * row_bytes;
    return typename B::Source{at, static_cast<std::uint32_t>(strips * 16 * row_bytes)};
  }

  /// Which rows of its matrix a tile has of A: neighbours.
  struct RowsOfA {
    std::int32_t first, left;  // how many there are from the first on

    TILEWAVE_DEVICE RowsOfA(const GemmArgs&, const GemmTile& tile)
        : first(tile.first_row), left(tile.row_end - tile.first_row) {}
    /// From the first to the tile's last.
    TILEWAVE_DEVICE std::int32_t span() const { return min_of(left, P.rows); }
    /// Of row r of the tile: whether there is one, and how far behind the first.
    TILEWAVE_DEVICE bool has(int r) const { return r < left; }
    TILEWAVE_DEVICE static std::int32_t row(int r) { return r; }
  };
  /// The same of B: neighbours, or gates and ups.
  struct RowsOfB {
    const GemmArgs& args;
    std::int32_t first, left;  // left: columns of C

    TILEWAVE_DEVICE RowsOfB(const GemmArgs& a, const GemmTile& tile)
        : args(a), first(gemm_row_of_b<S>(a, tile.first_column, 0)), left(a.n - tile.first_column) {}
    TILEWAVE_DEVICE std::int32_t span() const {
      return gemm_row_of_b<S>(args, min_of(left, tile_columns) - 1, halves - 1) + 1;
    }
    TILEWAVE_DEVICE bool has(int r) const { return TileRows::column(r) < left; }
    TILEWAVE_DEVICE std::int32_t row(int r) const {
      return gemm_row_of_b<S>(args, TileRows::column(r), TileRows::half(r));
    }
  };

  TILEWAVE_DEVICE static void clear(AllSums& sums) {
    static_for<tiles_m * tiles_n>([&](auto i) TILEWAVE_INLINE_LAMBDA { sums[i / tiles_n][i % tiles_n] = {}; });
  }

  // How sums leave.

  using Epilogue = GemmEpilogue<B, S, UserEpilogue>;
  /// Where lanes tell each other the largest of their values of a row, while two rows of products are under way.
  static constexpr bool exchanges = S.out_scale == Scaling::per_group;
  struct Exchange {
    float largest[exchanges ? 2 : 1][exchanges ? waves : 1][exchanges ? B::facts.wave_lanes : 1];
  };

  /// Row after row of products: the next moves up, so that one row's code serves all.
  TILEWAVE_DEVICE static void finish(const Args& a, const Place& place, Exchange& exchange, AllSums& sums) {
    for (int i = 0; i < tiles_m; ++i) {
      if (P.splits > 1 && a.gemm.splits > 1) {
        static_for<tiles_n>([&](auto j)
                                TILEWAVE_INLINE_LAMBDA { store_partial(a, place, i * tiles_n + j, sums[0][j]); });
      } else {
        write_row(a, place.tile, i, exchange,
                  [&](int j, int half) TILEWAVE_INLINE_LAMBDA { return sums[0][j + half * tiles_c]; });
      }
      static_for<(tiles_m - 1) * tiles_n>([&](auto at) TILEWAVE_INLINE_LAMBDA {
        sums[at / tiles_n][at % tiles_n] = sums[at / tiles_n + 1][at % tiles_n];
      });
    }
  }

  /// The sums of one product of all blocks that share its K, in order; four blocks' are on their way at once.
  TILEWAVE_DEVICE static Sums gather(const Args& a, const Place& place, int product) {
    Sums sums = {};
    std::int32_t split = 0;
    for (; split + 4 <= a.gemm.splits; split += 4) add_parts<4>(a, place, split, product, sums);
    for (; split < a.gemm.splits; ++split) add_parts<1>(a, place, split, product, sums);
    return sums;
  }
  template <int count>
  TILEWAVE_DEVICE static void add_parts(const Args& a, const Place& place, std::int32_t first, int product,
                                        Sums& sums) {
    constexpr int runs = Map::sums / 4;
    FourSums part[count * runs];
    TILEWAVE_UNROLL
    for (int i = 0; i < count * runs; ++i)
      part[i] = __builtin_bit_cast(
          FourSums,
          B::load(reinterpret_cast<const Chunk*>(aside(a, place.number, first + i / runs, product, i % runs))));
    TILEWAVE_UNROLL
    for (int i = 0; i < count * runs; ++i) {
      TILEWAVE_UNROLL
      for (int e = 0; e < 4; ++e) sums[4 * (i % runs) + e] += part[i][e];
    }
  }

  /// Product j of row i of C, whose scale is known.
  template <class OfHalf>
  TILEWAVE_DEVICE static void write_product(const Args& a, const GemmTile& tile, int i, int j, float factor,
                                            const OfHalf& of_half) {
    store(a, tile, i, j, values_of(a, tile, i, j, of_half), factor);
  }
  /// Row i of products of C; `of(j, half)`: the sums of product j.
  template <class Of>
  TILEWAVE_DEVICE static void write_row(const Args& a, const GemmTile& tile, int i, Exchange& exchange, const Of& of) {
    if constexpr (!exchanges) {
      const float factor = Epilogue::out_factor(a.gemm);
      static_for<tiles_c>([&](auto j) TILEWAVE_INLINE_LAMBDA {
        write_product(a, tile, i, j, factor, [&](int half) TILEWAVE_INLINE_LAMBDA { return of(j, half); });
      });
    } else {
      // A group is the columns of neighbouring waves.
      constexpr int group_waves = scale_group / (tiles_c * side);
      Values values[tiles_c];
      float largest = 0.0f;
      static_for<tiles_c>([&](auto j) TILEWAVE_INLINE_LAMBDA {
        values[j] = values_of(a, tile, i, j, [&](int half) TILEWAVE_INLINE_LAMBDA { return of(j, half); });
        TILEWAVE_UNROLL
        for (int e = 0; e < Map::sums; ++e)
          largest = Epilogue::amax(a.gemm, tile.first_column + column_of(j, e), largest, values[j][e]);
      });
      const int lane = B::lane_id(), wave = B::wave_id(), first = wave / group_waves * group_waves;
      float(&published)[waves][B::facts.wave_lanes] = exchange.largest[i % 2];
      published[wave][lane] = largest;
      B::lds_barrier();
      TILEWAVE_UNROLL
      for (int w = 0; w < group_waves; ++w) {
        TILEWAVE_UNROLL
        for (int u = 0; u < Map::units; ++u) largest = Max{}(largest, published[first + w][Map::row(lane) + u * side]);
      }
      const std::int32_t row = tile.first_row + row_of(i), column = tile.first_column + column_of(0, 0);
      if (wave == first && Map::unit(lane) == 0 && row < tile.row_end && column < a.gemm.n)
        Epilogue::store_scale(a.gemm, tile, row, column, largest);
      const float factor = quant_factor(S.out, largest);
      static_for<tiles_c>([&](auto j) TILEWAVE_INLINE_LAMBDA { store(a, tile, i, j, values[j], factor); });
    }
  }

 private:
  using FourSums = Vec<Sum, 4>;
  using Values = Vec<float, Map::sums>;

  /// Of a lane's products in row i of C; of element e of its product j.
  TILEWAVE_DEVICE static int row_of(int i) { return first_row() + i * Map::rows + Map::row(B::lane_id()); }
  TILEWAVE_DEVICE static int column_of(int j, int e) {
    return first_column() / halves + j * Map::columns + Map::kv_row(B::lane_id(), e);
  }

  template <class OfHalf>
  TILEWAVE_DEVICE static Values values_of(const Args& a, const GemmTile& tile, int i, int j, const OfHalf& of_half) {
    Values values[halves];
    TILEWAVE_UNROLL
    for (int half = 0; half < halves; ++half) values[half] = as_floats(of_half(half));
    struct InTile {
      int row, column;
    };
    Epilogue::apply(a.gemm, a.epilogue, tile, values, [&](int e) TILEWAVE_INLINE_LAMBDA {
      return InTile{row_of(i), column_of(j, e)};
    });
    return values[0];
  }
  TILEWAVE_DEVICE static void store(const Args& a, const GemmTile& tile, int i, int j, const Values& values,
                                    float factor) {
    const std::int32_t row = tile.first_row + row_of(i);
    if (row >= tile.row_end) return;
    TILEWAVE_UNROLL
    for (int from = 0; from < Map::sums; from += Map::run) {
      const std::int32_t column = tile.first_column + column_of(j, from);
      Vec<float, Map::run> some;
      TILEWAVE_UNROLL
      for (int e = 0; e < Map::run; ++e)
        some[e] = S.out_scale == Scaling::none ? values[from + e] : values[from + e] * factor;
      if (a.wide_rows && column + Map::run <= a.gemm.n) {
        Epilogue::store(a.gemm, tile, row, column, some);
      } else {
        TILEWAVE_UNROLL
        for (int e = 0; e < Map::run; ++e)
          if (column + e < a.gemm.n) Epilogue::store(a.gemm, tile, row, column + e, Vec<float, 1>{{some[e]}});
      }
    }
  }

  /// Lanes side by side, so that a wave moves whole lines.
  TILEWAVE_DEVICE static float* aside(const Args& a, std::int32_t number, std::int32_t split, int product, int run) {
    constexpr int runs = tiles_m * tiles_n * Map::sums / 4;
    const std::int64_t block = std::int64_t{number} * a.gemm.splits + split;
    return a.partial + ((block * runs + product * (Map::sums / 4) + run) * block_threads + B::block_lane_id()) * 4;
  }
  TILEWAVE_DEVICE static void store_partial(const Args& a, const Place& place, int product, const Sums& sums) {
    TILEWAVE_UNROLL
    for (int run = 0; run < Map::sums / 4; ++run) {
      const FourSums four{{sums[4 * run], sums[4 * run + 1], sums[4 * run + 2], sums[4 * run + 3]}};
      B::store(reinterpret_cast<Chunk*>(aside(a, place.number, place.split, product, run)),
               __builtin_bit_cast(Chunk, four));
    }
  }
};

/// Behind blocks that share K: their sums in the order of K, then the epilogue. Grid: `blocks` times the tiles; each
/// block has one product of all waves of its tile, or a row of them that has a scale in common.
template <class B, GemmSpec S, GemmPolicy P, class UserEpilogue>
struct GemmCombineKernel {
  using Room = B;
  using W = GemmWaveTile<B, S, P, UserEpilogue>;
  using Args = typename W::Args;
  using Shared = typename W::Exchange;
  static constexpr int block_threads = W::block_threads;
  static constexpr int waves_per_simd = 1;
  static constexpr int of_row = W::exchanges ? 1 : W::tiles_c, blocks = W::tiles_m * of_row;

  TILEWAVE_DEVICE static void run(const Args& a, Shared& shared) {
    const std::int32_t tiles = static_cast<std::int32_t>(a.tiles), part = B::block_id() / tiles;
    const typename W::Place place(a, B::block_id() - part * tiles, false);
    if (!place.any) return;
    const int i = part / of_row;
    const auto sums = [&](int j, int half) TILEWAVE_INLINE_LAMBDA {
      return W::gather(a, place, i * W::tiles_n + j + half * W::tiles_c);
    };
    if constexpr (W::exchanges) {
      W::write_row(a, place.tile, i, shared, sums);
    } else {
      const int j = part % of_row;
      W::write_product(a, place.tile, i, j, W::Epilogue::out_factor(a.gemm),
                       [&](int half) TILEWAVE_INLINE_LAMBDA { return sums(j, half); });
    }
  }
};

}  // namespace tilewave
