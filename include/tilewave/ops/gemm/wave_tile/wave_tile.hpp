// SPDX-License-Identifier: MIT
// What CDNA's GEMM kernels share: a block's tile, a wave's part of it with its sums, and how sums become output.
// GemmCombineKernel adds up the sums of blocks that share the K of a tile.
#pragma once

#include "tilewave/arch/lds.hpp"
#include "tilewave/core/static_for.hpp"
#include "tilewave/ops/gemm/epilogue.hpp"
#include "tilewave/ops/gemm/policy_status.hpp"

namespace tilewave {

/// The lane map of a product by the matrix unit's square instructions. A lane has `sums` of its rows x columns, in runs
/// of `run` neighbours of a row of C. It supplies `chunks_a` and `chunks_b` units of 16 bytes of the operands.
template <class B, GemmSpec S, int side>
struct GemmSquareMap : ProductMap<side> {
  static constexpr int rows = side, columns = side, run = 4;
  /// With fp6, the k of a lane in a step lie side by side in LDS, since two products take three units. Otherwise the k
  /// of all lanes for one product do.
  static constexpr bool by_lane = is_fp6(S.a) || is_fp6(S.b);
  static constexpr int chunks_a = B::template product_chunks<S.a>;
  static constexpr int chunks_b = B::template product_chunks<S.product_b()>;
};
/// The lane map of a product by the room's atom, of which as many stand side by side as make 16 columns.
template <class B>
struct GemmAtomMap {
  static constexpr int kv = B::atom.kv, run = B::atom.kv_per_lane;
  static constexpr int rows = B::atom.rows / B::atom.rows_per_lane, columns = 16, sums = 4;

  TILEWAVE_HOST_DEVICE static constexpr int row(int lane) { return LaneMap<B>::position(lane); }
  TILEWAVE_HOST_DEVICE static constexpr int kv_row(int lane, int i) {
    return kv * (i / run) + run * LaneMap<B>::group(lane) + i % run;
  }
};

/// The waves of a block and their products. A wave has `tiles_m` x `tiles_n` products of side x side. A's rows are the
/// lanes' side of the instruction, so a lane's sums are runs of four neighbours of a row of C.
template <class B, GemmSpec S, GemmPolicy P, class UserEpilogue>
struct GemmWaveTile {
  static_assert(gemm_policy_status(B::facts.id, S, P).ok(),
                "a law of policies is broken: gemm_policy_status(arch, spec, policy).reason says which");
  using Backend = B;
  static constexpr GemmSpec spec = S;
  static constexpr GemmPolicy policy = P;
  static constexpr int waves = P.waves_rows * P.waves_columns;       // that share no K
  static constexpr int block_threads = waves * B::facts.wave_lanes;  // of these waves
  static constexpr int wave_rows = P.rows / P.waves_rows, wave_columns = P.columns / P.waves_columns;
  static constexpr int side = wave_rows % 32 == 0 && wave_columns % 32 == 0 ? 32 : 16;
  using Map = std::conditional_t<S.four_bit() && P.path == GemmPath::weights_in_registers, GemmAtomMap<B>,
                                 GemmSquareMap<B, S, side>>;
  static constexpr int tiles_m = wave_rows / Map::rows, tiles_n = wave_columns / Map::columns;
  using Sum = ProductSum<S.a>;
  using Sums = Vec<Sum, Map::sums>;         // a lane's sums of one product
  using WaveSums = Sums[tiles_m][tiles_n];  // a lane's sums of all products of its wave
  using TileRows = GemmTileRows<S, wave_columns>;
  static constexpr int tile_columns = gemm_tile_columns(S, P);  // of C
  static constexpr int halves = TileRows::halves;               // gates and ups
  static constexpr int tiles_c = tiles_n / halves;              // products of C along a row, each with all its halves
  static constexpr bool walks = detail::gemm_walks(S, P) && std::is_same_v<UserEpilogue, GemmIdentity>;
  static constexpr int step_k = P.depth_bytes * packing_of(S.a) / size_of(S.a);

  struct Args {
    GemmArgs gemm;
    UserEpilogue epilogue;
    float* partial;        // the workspace: partials of blocks that share K, of i8 as 32-bit integers
    std::int64_t tiles;    // of the grid, which has `splits` blocks for each
    std::int32_t k_steps;  // of P.depth_bytes bytes
    bool wide_rows;        // runs of four neighbours of a row of C are aligned, and are stored at once
    std::uint8_t walk;     // gemm_walks: tiles side by side that a block goes through

    struct Steps {
      std::int32_t first, end;
    };
    TILEWAVE_DEVICE Steps steps(std::int32_t split) const {
      // Steps that share scales stay together.
      constexpr int period = S.four_bit() ? max_of(1, S.scale_k / step_k) : 1;
      const auto from = [&](std::int32_t s) {
        return std::int32_t(std::int64_t{k_steps} / period * s / gemm.splits) * period;
      };
      return {from(split), from(split + 1)};
    }
  };

  /// The tile and the split of a block. The chip deals block ids round robin to its XCDs, each of which has an L2 of
  /// its own. Tiles are numbered so that neighbours, which share operands, go to one XCD. How many tiles groups have is
  /// known on the device alone: there each XCD takes runs of neighbours in turn, so that all have as many whatever
  /// tiles there are. On a walk it is the first tile.
  struct BlockWork {
    std::int32_t tile_index, split;
    bool exists;  // The grid may be larger than the number of tiles.
    GemmTile tile;

    TILEWAVE_DEVICE BlockWork(const Args& a, std::int32_t block, bool has_splits) {
      constexpr std::int32_t xcds = B::facts.xcds;
      const std::int32_t tiles = static_cast<std::int32_t>(a.tiles), splits = has_splits ? a.gemm.splits : 1;
      const std::int32_t launch_index = block / splits, xcd = launch_index % xcds, turn = launch_index / xcds;
      split = block - launch_index * splits;
      if constexpr (S.groups == GemmGroups::one) {
        tile_index = xcd * (tiles / xcds) + min_of(xcd, tiles % xcds) + turn;
      } else {
        const std::int32_t run = max_of(1, tiles / (32 * xcds)), round = turn / run, tiles_of_round = run * xcds;
        const bool whole = (round + 1) * tiles_of_round <= tiles;  // what is left behind the last whole round is dealt
        tile_index = whole ? round * tiles_of_round + xcd * run + turn - round * run : launch_index;
      }
      GemmTiles<B, S, P> all(a.gemm, tile_index, 1, 0, walks ? a.walk : 1);
      exists = all.next(tile);
      if (!exists) return;
      tile.layer = B::uniform(tile.layer);
      tile.a_layer = B::uniform(tile.a_layer);
      tile.first_row = B::uniform(tile.first_row);
      tile.row_end = B::uniform(tile.row_end);
      tile.first_column = B::uniform(tile.first_column);
    }
  };

  /// The number of this wave among those that share no K. Waves that do share it follow in further sets.
  TILEWAVE_DEVICE static int wave() { return P.waves_k == 1 ? B::wave_id() : B::wave_id() % waves; }
  TILEWAVE_DEVICE static int first_row() { return wave() / P.waves_columns * wave_rows; }
  TILEWAVE_DEVICE static int first_column() { return wave() % P.waves_columns * wave_columns; }
  /// The row of the tile of C that this lane has in row i of products.
  TILEWAVE_DEVICE static int row_of(int i) { return first_row() + i * Map::rows + Map::row(B::lane_id()); }
  /// The column of the tile of C of element e of this lane's sums of product j of a row.
  TILEWAVE_DEVICE static int column_of(int j, int e) {
    return first_column() / halves + j * Map::columns + Map::kv_row(B::lane_id(), e);
  }

  /// The rows of an operand that a tile has, as a buffer. Reads beyond its end give 0.
  template <DType type, class TileRowsOf>
  TILEWAVE_DEVICE static auto source(const void* base, std::int64_t layer_offset, std::int64_t stride,
                                     const TileRowsOf& rows, std::int32_t k) {
    const char* const at = static_cast<const char*>(base) + (layer_offset + rows.first * stride) * size_of(type);
    const std::int64_t bytes =
        rows.left <= 0 || k == 0 ? 0 : (rows.span() - 1) * stride * size_of(type) + bytes_of(type, k);
    return typename B::Source{at, static_cast<std::uint32_t>(align_up<std::int64_t>(bytes, 16))};
  }

  /// The same for preshuffled weights, where a strip of sixteen rows is one row that is sixteen times as long.
  template <DType type, class TileRowsOf>
  TILEWAVE_DEVICE static auto strips(const void* base, std::int64_t layer_offset, const TileRowsOf& rows,
                                     std::int32_t k) {
    const std::int64_t row_bytes = bytes_of(type, k), strips = ceil_div(rows.span(), 16);
    const char* const at = static_cast<const char*>(base) + layer_offset * size_of(type) + rows.first * row_bytes;
    return typename B::Source{at, static_cast<std::uint32_t>(strips * 16 * row_bytes)};
  }

  /// The rows of A's matrix that a tile has. They are neighbours, or gathered from all of it.
  struct TileRowsA {
    const GemmArgs& args;
    std::int32_t first, left;  // left: rows of the group from the tile's first on
    std::int32_t first_of_tile;

    TILEWAVE_DEVICE TileRowsA(const GemmArgs& a, const GemmTile& tile)
        : args(a),
          first(S.gathered ? 0 : tile.first_row),
          left(tile.row_end - tile.first_row),
          first_of_tile(tile.first_row) {}
    /// Rows of the matrix from the tile's first to its last.
    TILEWAVE_DEVICE std::int32_t span() const { return S.gathered ? args.tokens : min_of(left, P.rows); }
    /// Says whether the group has row r of the tile.
    TILEWAVE_DEVICE bool has(int r) const { return r < left; }
    /// Returns how many rows of the matrix row r of the tile lies behind the first.
    TILEWAVE_DEVICE std::int32_t row(int r) const {
      if constexpr (!S.gathered) return r;
      return gemm_row_of_a<B, S>(args, first_of_tile + min_of(r, left - 1));
    }
  };
  /// The rows of B's matrix that a tile has, or as far as its span a walk of tiles. They are neighbours, or runs of
  /// gates and of ups.
  struct TileRowsB {
    const GemmArgs& args;
    std::int32_t first, left;  // left: columns of C from the first on
    std::int32_t tiles;

    TILEWAVE_DEVICE TileRowsB(const GemmArgs& a, const GemmTile& tile, std::int32_t of_walk = 1)
        : args(a), first(gemm_row_of_b<S>(a, tile.first_column, 0)), left(a.n - tile.first_column), tiles(of_walk) {}
    TILEWAVE_DEVICE std::int32_t span() const {
      return gemm_row_of_b<S>(args, min_of(left, tiles * tile_columns) - 1, halves - 1) + 1;
    }
    TILEWAVE_DEVICE bool has(int r) const { return TileRows::column(r) < left; }
    TILEWAVE_DEVICE std::int32_t row(int r) const {
      return gemm_row_of_b<S>(args, TileRows::column(r), TileRows::half(r));
    }
  };

  TILEWAVE_DEVICE static void clear(WaveSums& sums) {
    static_for<tiles_m * tiles_n>([&](auto i) TILEWAVE_INLINE_LAMBDA { sums[i / tiles_n][i % tiles_n] = {}; });
  }
  TILEWAVE_DEVICE static void multiply(WaveSums& sums, float factor) {
    static_for<tiles_m * tiles_n * Map::sums>([&](auto i) TILEWAVE_INLINE_LAMBDA {
      sums[i / Map::sums / tiles_n][i / Map::sums % tiles_n][i % Map::sums] *= factor;
    });
  }

  // From here on: how sums become partials or output.

  using Epilogue = GemmEpilogue<B, S, UserEpilogue>;
  /// With scales found for 128 columns, lanes exchange the largest magnitudes of their values of a row through LDS.
  static constexpr bool exchanges = S.out_scale == Scaling::per_group;
  /// Two rows of products may be under way, so there are two buffers.
  struct Exchange {
    float largest[exchanges ? 2 : 1][exchanges ? waves : 1][exchanges ? B::facts.wave_lanes : 1];
  };

  /// Stores the sums of a wave: as partials if blocks share K, else by write(i) as row i of products, whose sums are
  /// then sums[0]. It takes row after row of products, and moves the next row's sums up, so that one row's code serves
  /// all.
  template <class Write>
  TILEWAVE_DEVICE static void finish_rows(const Args& a, const BlockWork& work, WaveSums& sums, const Write& write) {
    for (int i = 0; i < tiles_m; ++i) {
      if (P.splits > 1 && a.gemm.splits > 1) {
        static_for<tiles_n>([&](auto j)
                                TILEWAVE_INLINE_LAMBDA { store_partial(a, work, i * tiles_n + j, sums[0][j]); });
      } else {
        write(i);
      }
      static_for<(tiles_m - 1) * tiles_n>([&](auto at) TILEWAVE_INLINE_LAMBDA {
        sums[at / tiles_n][at % tiles_n] = sums[at / tiles_n + 1][at % tiles_n];
      });
    }
  }
  TILEWAVE_DEVICE static void finish(const Args& a, const BlockWork& work, Exchange& exchange, WaveSums& sums) {
    finish_rows(a, work, sums, [&](int i) TILEWAVE_INLINE_LAMBDA {
      write_row(a, work.tile, i, exchange,
                [&](int j, int half) TILEWAVE_INLINE_LAMBDA { return sums[0][j + half * tiles_c]; });
    });
  }

  /// Adds up the partials of one product of all blocks that share its K, in the order of K. Loads of four blocks'
  /// partials are under way at once.
  TILEWAVE_DEVICE static Sums combine_partials(const Args& a, const BlockWork& work, int product) {
    Sums sums = {};
    std::int32_t split = 0;
    for (; split + 4 <= a.gemm.splits; split += 4) add_partials<4>(a, work, split, product, sums);
    for (; split < a.gemm.splits; ++split) add_partials<1>(a, work, split, product, sums);
    return sums;
  }

  /// Writes product j of row i of products of C, by a scale of the output that is known. `sums_of(half)` gives its
  /// sums.
  template <class SumsOf>
  TILEWAVE_DEVICE static void write_product(const Args& a, const GemmTile& tile, int i, int j, float factor,
                                            const SumsOf& sums_of) {
    store(a, tile, i, j, values_of(a, tile, i, j, sums_of), factor);
  }
  /// Writes row i of products of C. `sums_of(j, half)` gives the sums of product j.
  template <class SumsOf>
  TILEWAVE_DEVICE static void write_row(const Args& a, const GemmTile& tile, int i, Exchange& exchange,
                                        const SumsOf& sums_of) {
    if constexpr (!exchanges) {
      const float factor = Epilogue::out_factor(a.gemm);
      static_for<tiles_c>([&](auto j) TILEWAVE_INLINE_LAMBDA {
        write_product(a, tile, i, j, factor, [&](int half) TILEWAVE_INLINE_LAMBDA { return sums_of(j, half); });
      });
    } else {
      // The 128 columns of a scale are those of this many neighbouring waves.
      constexpr int scale_waves = scale_group / (tiles_c * side);
      Values values[tiles_c];
      float largest = 0.0f;
      static_for<tiles_c>([&](auto j) TILEWAVE_INLINE_LAMBDA {
        values[j] = values_of(a, tile, i, j, [&](int half) TILEWAVE_INLINE_LAMBDA { return sums_of(j, half); });
        TILEWAVE_UNROLL
        for (int e = 0; e < Map::sums; ++e)
          largest = Epilogue::amax(a.gemm, tile.first_column + column_of(j, e), largest, values[j][e]);
      });
      const int lane = B::lane_id(), wave = B::wave_id(), first = wave / scale_waves * scale_waves;
      float(&published)[waves][B::facts.wave_lanes] = exchange.largest[i % 2];
      published[wave][lane] = largest;
      B::lds_barrier();
      TILEWAVE_UNROLL
      for (int w = 0; w < scale_waves; ++w) {
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

  using Values = Vec<float, Map::sums>;
  /// Returns what becomes of the sums of product j of row i.
  template <class SumsOf>
  TILEWAVE_DEVICE static Values values_of(const Args& a, const GemmTile& tile, int i, int j, const SumsOf& sums_of) {
    Values values[halves];
    TILEWAVE_UNROLL
    for (int half = 0; half < halves; ++half) values[half] = as_floats(sums_of(half));
    struct InTile {
      int row, column;
    };
    Epilogue::apply(a.gemm, a.epilogue, tile, values, [&](int e) TILEWAVE_INLINE_LAMBDA {
      return InTile{row_of(i), column_of(j, e)};
    });
    return values[0];
  }

 private:
  using FourSums = Vec<Sum, 4>;

  TILEWAVE_DEVICE static void store(const Args& a, const GemmTile& tile, int i, int j, const Values& values,
                                    float factor) {
    const std::int32_t row = tile.first_row + row_of(i);
    if (row >= tile.row_end) return;
    TILEWAVE_UNROLL
    for (int from = 0; from < Map::sums; from += Map::run) {
      const std::int32_t column = tile.first_column + column_of(j, from);
      Vec<float, Map::run> run;
      TILEWAVE_UNROLL
      for (int e = 0; e < Map::run; ++e)
        run[e] = S.out_scale == Scaling::none ? values[from + e] : values[from + e] * factor;
      if (a.wide_rows && column + Map::run <= a.gemm.n) {
        Epilogue::store(a.gemm, tile, row, column, run);
      } else {
        TILEWAVE_UNROLL
        for (int e = 0; e < Map::run; ++e)
          if (column + e < a.gemm.n) Epilogue::store(a.gemm, tile, row, column + e, Vec<float, 1>{{run[e]}});
      }
    }
  }

  /// The address in the workspace of four sums of this lane: run `run` of product `product`. The lanes of a wave lie
  /// side by side there, so that a wave moves whole lines.
  TILEWAVE_DEVICE static float* partial_of(const Args& a, std::int32_t tile, std::int32_t split, int product, int run) {
    constexpr int runs = tiles_m * tiles_n * Map::sums / 4;
    const std::int64_t block = std::int64_t{tile} * a.gemm.splits + split;
    return a.partial + ((block * runs + product * (Map::sums / 4) + run) * block_threads + B::block_lane_id()) * 4;
  }
  TILEWAVE_DEVICE static void store_partial(const Args& a, const BlockWork& work, int product, const Sums& sums) {
    TILEWAVE_UNROLL
    for (int run = 0; run < Map::sums / 4; ++run) {
      const FourSums four{{sums[4 * run], sums[4 * run + 1], sums[4 * run + 2], sums[4 * run + 3]}};
      B::store(reinterpret_cast<Chunk*>(partial_of(a, work.tile_index, work.split, product, run)),
               __builtin_bit_cast(Chunk, four));
    }
  }
  /// Adds the partials of `count` splits from `first` on to the sums. All loads are issued before the first sum.
  template <int count>
  TILEWAVE_DEVICE static void add_partials(const Args& a, const BlockWork& work, std::int32_t first, int product,
                                           Sums& sums) {
    constexpr int runs = Map::sums / 4;
    FourSums partials[count * runs];
    TILEWAVE_UNROLL
    for (int i = 0; i < count * runs; ++i)
      partials[i] = __builtin_bit_cast(
          FourSums,
          B::load(reinterpret_cast<const Chunk*>(partial_of(a, work.tile_index, first + i / runs, product, i % runs))));
    TILEWAVE_UNROLL
    for (int i = 0; i < count * runs; ++i) {
      TILEWAVE_UNROLL
      for (int e = 0; e < 4; ++e) sums[4 * (i % runs) + e] += partials[i][e];
    }
  }
};

/// The second launch where blocks share K: it adds up their partials in the order of K and applies the epilogue. Grid:
/// `blocks` for each tile. A block has one product of all waves of its tile, or with `exchanges` a row of products,
/// which have scales in common.
template <class B, GemmSpec S, GemmPolicy P, class UserEpilogue>
struct GemmCombineKernel {
  using Room = B;
  using W = GemmWaveTile<B, S, P, UserEpilogue>;
  using Args = typename W::Args;
  using Shared = typename W::Exchange;
  static constexpr int block_threads = W::block_threads;
  static constexpr int waves_per_simd = 1;
  static constexpr int blocks_per_row = W::exchanges ? 1 : W::tiles_c, blocks = W::tiles_m * blocks_per_row;

  TILEWAVE_DEVICE static void run(const Args& a, Shared& shared) {
    const std::int32_t tiles = static_cast<std::int32_t>(a.tiles), in_tile = B::block_id() / tiles;
    const typename W::BlockWork work(a, B::block_id() - in_tile * tiles, false);
    if (!work.exists) return;
    const int i = in_tile / blocks_per_row;
    const auto sums_of = [&](int j, int half) TILEWAVE_INLINE_LAMBDA {
      return W::combine_partials(a, work, i * W::tiles_n + j + half * W::tiles_c);
    };
    if constexpr (W::exchanges) {
      W::write_row(a, work.tile, i, shared, sums_of);
    } else {
      const int j = in_tile % blocks_per_row;
      W::write_product(a, work.tile, i, j, W::Epilogue::out_factor(a.gemm),
                       [&](int half) TILEWAVE_INLINE_LAMBDA { return sums_of(j, half); });
    }
  }
};

}  // namespace tilewave
