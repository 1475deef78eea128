// SPDX-License-Identifier: MIT
// The lower rungs of the ladder of docs/reference/gemm.md. Each adds one idea to the one before. They serve 16-bit
// operands in layout nt, one product or a batch, in any room. The library has no entries of them; bench_gemm has, in a
// build with gemm_generated.hpp.
#pragma once

#include "tilewave/core/static_for.hpp"
#include "tilewave/ops/gemm/registry.hpp"

namespace tilewave::ladder {

struct Args {
  GemmArgs gemm;
  bool wide_rows;  // A lane may store neighbours of a row of out at once.
};

/// The parts that all rungs share: how rows of an operand are loaded, and how sums are written.
template <class B, GemmSpec S, GemmPolicy P>
struct Product {
  static_assert(size_of(S.a) == 2 && S.b == S.a && S.layout == GemmLayout::nt && S.groups == GemmGroups::one &&
                !S.gated && S.scale == Scaling::none && S.weights == GemmWeights::row_major);
  static constexpr int block_threads = P.waves() * B::facts.wave_lanes;
  static constexpr int unit = 16 / size_of(S.a);  // values in 16 bytes

  /// The rows of A or of B that a tile has.
  struct Rows {
    const std::uint16_t* first;
    std::int64_t stride;
    std::int32_t left, k;

    /// Returns the 16 bytes of a row of the tile from value `at` on. Values beyond the matrix are 0.
    TILEWAVE_DEVICE Chunk load(int row, std::int32_t at) const {
      Chunk c = {};
      if (row >= left || at >= k) return c;
      c = B::load(reinterpret_cast<const Chunk*>(first + row * stride + at));
      if (at + unit > k) {
        TILEWAVE_UNROLL
        for (int i = 0; i < unit; ++i)
          if (at + i >= k) c[i / 2] &= i % 2 == 0 ? 0xffff0000u : 0x0000ffffu;
      }
      return c;
    }
  };
  TILEWAVE_DEVICE static Rows rows_of_a(const GemmArgs& a, const GemmTile& t) {
    const auto* const base = static_cast<const std::uint16_t*>(a.a);
    return {base + t.a_layer * a.a_layer_stride + t.first_row * a.a_stride, a.a_stride, t.row_end - t.first_row, a.k};
  }
  TILEWAVE_DEVICE static Rows rows_of_b(const GemmArgs& a, const GemmTile& t) {
    const auto* const base = static_cast<const std::uint16_t*>(a.b);
    return {base + t.layer * a.b_layer_stride + t.first_column * a.b_stride, a.b_stride, a.n - t.first_column, a.k};
  }
  TILEWAVE_DEVICE static bool tile_of_block(const GemmArgs& a, GemmTile& tile) {
    return GemmTiles<B, S, P>(a, B::block_id(), 1, 0).next(tile);
  }

  TILEWAVE_DEVICE static float value(const Chunk& c, int i) {
    if constexpr (S.a == DType::f16) return B::widen_f16(c[i / 2])[i % 2];
    return bf16_to_f32(static_cast<std::uint16_t>(c[i / 2] >> 16 * (i % 2)));
  }

  /// Applies the epilogue to n neighbours of a row of the tile, and stores them.
  template <int n>
  TILEWAVE_DEVICE static void write(const Args& a, const GemmTile& t, int row, int column, const Vec<float, n>& sums) {
    using Epilogue = GemmEpilogue<B, S, GemmIdentity>;
    struct InTile {
      int row, column;
    };
    const std::int32_t r = t.first_row + row, c = t.first_column + column;
    if (r >= t.row_end || c >= a.gemm.n) return;
    Vec<float, n> values[1] = {sums};
    Epilogue::apply(a.gemm, GemmIdentity{}, t, values, [&](int i) TILEWAVE_INLINE_LAMBDA {
      return InTile{row, column + i};
    });
    if (a.wide_rows && c + n <= a.gemm.n) {
      Epilogue::store(a.gemm, t, r, c, values[0]);
    } else {
      TILEWAVE_UNROLL
      for (int i = 0; i < n; ++i)
        if (c + i < a.gemm.n) Epilogue::store(a.gemm, t, r, c + i, Vec<float, 1>{{values[0][i]}});
    }
  }
};

/// Rung 1, naive: a lane has one element of C and reads its rows of A and B, 16 bytes at a time. There is no shared
/// memory. Bound: lines of the first cache.
template <class B, GemmSpec S, GemmPolicy P>
struct NaiveKernel {
  using Room = B;
  using G = Product<B, S, P>;
  using Args = ladder::Args;
  struct Shared {};
  static constexpr int block_threads = G::block_threads, waves_per_simd = 4;
  static_assert(block_threads == P.rows * P.columns);

  TILEWAVE_DEVICE static void run(const Args& a, Shared&) {
    GemmTile tile;
    if (!G::tile_of_block(a.gemm, tile)) return;
    const int row = B::block_lane_id() / P.columns, column = B::block_lane_id() % P.columns;
    const auto rows_a = G::rows_of_a(a.gemm, tile), rows_b = G::rows_of_b(a.gemm, tile);
    Vec<float, 1> sum = {};
    for (std::int32_t k = 0; k < a.gemm.k; k += G::unit) {
      const Chunk x = rows_a.load(row, k), w = rows_b.load(column, k);
      TILEWAVE_UNROLL
      for (int i = 0; i < G::unit; ++i) sum[0] += G::value(x, i) * G::value(w, i);
    }
    G::write(a, tile, row, column, sum);
  }
};

/// Rung 2, tiled: a block's rows lie in shared memory as f32, k after k, and a lane multiplies 8 x 8 of them. A step is
/// copied, then multiplied. LDS plan: 32 bytes of K of both operands. Bound: f32 operations.
template <class B, GemmSpec S, GemmPolicy P>
struct TiledKernel {
  using Room = B;
  using G = Product<B, S, P>;
  using Args = ladder::Args;
  static constexpr int block_threads = G::block_threads,
                       waves_per_simd = P.waves_per_simd * P.waves() / B::facts.simds_per_cu;
  static constexpr int step_k = P.depth_bytes / size_of(S.a), side = 128, across = side / 8;
  static_assert(P.rows == side && P.columns == side && block_threads == across * across);
  struct Shared {
    alignas(16) float a[step_k][side + 4], b[step_k][side + 4];
  };

  TILEWAVE_DEVICE static void run(const Args& a, Shared& shared) {
    GemmTile tile;
    if (!G::tile_of_block(a.gemm, tile)) return;
    const int lane = B::block_lane_id(), down = 4 * (lane / across), right = 4 * (lane % across);
    const auto rows_a = G::rows_of_a(a.gemm, tile), rows_b = G::rows_of_b(a.gemm, tile);
    Vec<float, 8> sums[8] = {};
    for (std::int32_t k = 0; k < a.gemm.k; k += step_k) {
      B::barrier();  // All waves have multiplied the step before.
      copy_step(rows_a, k, shared.a);
      copy_step(rows_b, k, shared.b);
      B::barrier();
      for (int i = 0; i < step_k; ++i) {
        const Vec<float, 8> x = octet(shared.a[i], down), w = octet(shared.b[i], right);
        TILEWAVE_UNROLL
        for (int r = 0; r < 8; ++r) {
          TILEWAVE_UNROLL
          for (int c = 0; c < 8; ++c) sums[r][c] += x[r] * w[c];
        }
      }
    }
    static_for<16>([&](auto i) TILEWAVE_INLINE_LAMBDA {
      constexpr int r = i / 2, c = i % 2 * 4;
      const Vec<float, 4> four{{sums[r][c], sums[r][c + 1], sums[r][c + 2], sums[r][c + 3]}};
      G::write(a, tile, down + r % 4 + r / 4 * (side / 2), right + c / 4 * (side / 2), four);
    });
  }

 private:
  TILEWAVE_DEVICE static void copy_step(const typename G::Rows& rows, std::int32_t k, float (&to)[step_k][side + 4]) {
    constexpr int units = step_k / G::unit;
    for (int i = B::block_lane_id(); i < side * units; i += block_threads) {
      const int row = i / units, from = i % units * G::unit;
      const Chunk c = rows.load(row, k + from);
      TILEWAVE_UNROLL
      for (int e = 0; e < G::unit; ++e) to[from + e][row] = G::value(c, e);
    }
  }
  /// Returns four neighbours of each half of the tile.
  TILEWAVE_DEVICE static Vec<float, 8> octet(const float* row_of_k, int from) {
    using Four = Vec<float, 4>;
    const Four low = *reinterpret_cast<const Four*>(row_of_k + from),
               high = *reinterpret_cast<const Four*>(row_of_k + from + side / 2);
    return {{low[0], low[1], low[2], low[3], high[0], high[1], high[2], high[3]}};
  }
};

/// Rungs 3, 4 and 4b: products of the matrix unit, by the room's atom. Each wave has its part of the tile. Rows lie in
/// shared memory in units of 16 bytes, whose order in a row a mask permutes so that reads meet no bank twice. With one
/// stage a step is copied, then multiplied. With two, the next step is under way in registers while products run. LDS
/// plan: P.stages times P.depth_bytes bytes of K of both operands. Bound: memory latency; then LDS.
template <class B, GemmSpec S, GemmPolicy P>
struct MatrixKernel {
  using Room = B;
  using G = Product<B, S, P>;
  using Map = LaneMap<B>;
  using Args = ladder::Args;
  static constexpr int block_threads = G::block_threads,
                       waves_per_simd = P.waves_per_simd * P.waves() / B::facts.simds_per_cu;
  static constexpr int units = P.depth_bytes / 16, step_k = units * G::unit;  // of a row
  static constexpr int tiles_m = P.rows / P.waves_rows / B::atom.rows,
                       tiles_n = P.columns / P.waves_columns / B::atom.kv;
  static constexpr int run_columns = B::atom.kv_per_lane, rows_per_lane = B::atom.rows_per_lane;
  static constexpr int copies_a = P.rows * units / block_threads, copies_b = P.columns * units / block_threads;
  static_assert((units == 4 || units == 8) && (P.stages == 1 || P.stages == 2) &&
                copies_a * block_threads == P.rows * units && copies_b * block_threads == P.columns * units);
  struct Shared {
    alignas(16) Chunk a[P.stages][P.rows][units], b[P.stages][P.columns][units];
  };

  TILEWAVE_DEVICE static void run(const Args& a, Shared& shared) {
    GemmTile tile;
    if (!G::tile_of_block(a.gemm, tile)) return;
    const auto rows_a = G::rows_of_a(a.gemm, tile), rows_b = G::rows_of_b(a.gemm, tile);
    typename B::Accumulator sums[tiles_m][tiles_n] = {};
    Chunk a_loaded[copies_a], b_loaded[copies_b];  // of a step that is under way
    const auto load = [&](std::int32_t k) TILEWAVE_INLINE_LAMBDA {
      load_units(rows_a, k, a_loaded);
      load_units(rows_b, k, b_loaded);
    };
    const auto store = [&](int slot) TILEWAVE_INLINE_LAMBDA {
      store_units(a_loaded, shared.a[slot]);
      store_units(b_loaded, shared.b[slot]);
    };
    if constexpr (P.stages == 1) {
      for (std::int32_t k = 0; k < a.gemm.k; k += step_k) {
        B::barrier();  // All waves have multiplied the step before.
        load(k);
        store(0);
        B::barrier();
        multiply(shared.a[0], shared.b[0], sums);
      }
    } else {
      load(0);
      store(0);
      B::barrier();
      int slot = 0;
      for (std::int32_t k = 0; k < a.gemm.k; k += step_k, slot ^= 1) {
        load(k + step_k);
        multiply(shared.a[slot], shared.b[slot], sums);
        store(slot ^ 1);
        B::barrier();
      }
    }
    static_for<tiles_m * tiles_n>([&](auto i) TILEWAVE_INLINE_LAMBDA {
      constexpr int m = i / tiles_n, n = i % tiles_n;
      TILEWAVE_UNROLL
      for (int r = 0; r < rows_per_lane; ++r) {
        Vec<float, run_columns> run;
        TILEWAVE_UNROLL
        for (int c = 0; c < run_columns; ++c) run[c] = sums[m][n][r * run_columns + c];
        G::write(a, tile, first_row() + m * B::atom.rows + Map::row(B::lane_id(), r),
                 first_column() + n * B::atom.kv + run_columns * Map::group(B::lane_id()), run);
      }
    });
  }

 private:
  TILEWAVE_DEVICE static int first_row() { return B::wave_id() / P.waves_columns * (P.rows / P.waves_rows); }
  TILEWAVE_DEVICE static int first_column() { return B::wave_id() % P.waves_columns * (P.columns / P.waves_columns); }

  /// Unit u of a row lies at u ^ mask(row). Lanes that are served together read four units of two rows (sm90), or one
  /// unit of as many rows as the banks have room for.
  TILEWAVE_DEVICE static constexpr int mask(int row) {
    constexpr int rows_of_banks = B::facts.lds_banks / (4 * units);
    return B::facts.matrix == Matrix::mma ? row / rows_of_banks % (units / 4) * 4 : row / rows_of_banks % units;
  }
  template <int count>
  TILEWAVE_DEVICE static void load_units(const typename G::Rows& rows, std::int32_t k, Chunk (&loaded)[count]) {
    TILEWAVE_UNROLL
    for (int i = 0; i < count; ++i) {
      const int at = i * block_threads + B::block_lane_id();
      loaded[i] = rows.load(at / units, k + at % units * G::unit);
    }
  }
  template <int count, int rows>
  TILEWAVE_DEVICE static void store_units(const Chunk (&loaded)[count], Chunk (&slot)[rows][units]) {
    TILEWAVE_UNROLL
    for (int i = 0; i < count; ++i) {
      const int at = i * block_threads + B::block_lane_id(), row = at / units;
      slot[row][at % units ^ mask(row)] = loaded[i];
    }
  }

  /// A lane supplies a whole unit of its row, for one atom or two. The order of K is free, as long as both operands
  /// agree on it.
  TILEWAVE_DEVICE static void multiply(const Chunk (&a)[P.rows][units], const Chunk (&b)[P.columns][units],
                                       typename B::Accumulator (&sums)[tiles_m][tiles_n]) {
    constexpr int words = B::atom.k_per_lane / 2, atoms = 4 / words;
    const int lane = B::lane_id(), lane_group = Map::group(lane), position = Map::position(lane);
    static_for<units / 4>([&](auto quarter) TILEWAVE_INLINE_LAMBDA {
      const auto read = [&](const auto& slot, int row)
                            TILEWAVE_INLINE_LAMBDA { return slot[row][(4 * quarter + lane_group) ^ mask(row)]; };
      Chunk a_units[rows_per_lane], b_units[tiles_n];
      TILEWAVE_UNROLL
      for (int n = 0; n < tiles_n; ++n) b_units[n] = read(b, first_column() + n * B::atom.kv + position);
      static_for<tiles_m>([&](auto m) TILEWAVE_INLINE_LAMBDA {
        TILEWAVE_UNROLL
        for (int r = 0; r < rows_per_lane; ++r)
          a_units[r] = read(a, first_row() + m * B::atom.rows + Map::row(lane, r));
        static_for<atoms * tiles_n>([&](auto i) TILEWAVE_INLINE_LAMBDA {
          constexpr int first = i / tiles_n * words, n = i % tiles_n;
          typename B::KvOperand kv;
          typename B::RowsOperand rows;
          TILEWAVE_UNROLL
          for (int w = 0; w < words; ++w) {
            kv[w] = b_units[n][first + w];
            TILEWAVE_UNROLL
            for (int r = 0; r < rows_per_lane; ++r) rows[r * words + w] = a_units[r][first + w];
          }
          sums[m][n] = S.a == DType::bf16 ? B::mma(kv, rows, sums[m][n]) : B::mma_f16(kv, rows, sums[m][n]);
        });
      });
    });
  }
};

/// Launches a rung's kernel, as gemm_launch does those of the library.
template <class Kernel, class B, GemmSpec S, GemmPolicy P>
Status launch(const GemmProblem& p, int splits, hipStream_t stream) {
  if (!(p.spec == S)) return {StatusCode::no_matching_entry, "the entry was built for another spec"};
  if (Status s = gemm_check(p, B::facts); !s.ok()) return s;
  if (splits != 1) return {StatusCode::bad_value, "splits is not from 1 to the policy's"};
  if (p.m == 0 || p.n == 0) return {};
  const auto in_fours = [](std::int64_t elements) { return elements % 4 == 0; };
  const bool wide = reinterpret_cast<std::uintptr_t>(p.out) % (4 * size_of(S.out)) == 0 && in_fours(p.out_stride) &&
                    in_fours(p.out_batch_stride);
  const typename Kernel::Args args{gemm_args(p, P, splits), wide};
  return B::template launch<Kernel>({gemm_tiles(S, args.gemm, P), Kernel::block_threads}, args, stream);
}

template <template <class, GemmSpec, GemmPolicy> class Kernel, class B, GemmSpec S, GemmPolicy P>
constexpr GemmEntry entry() {
  using K = Kernel<B, S, P>;
  return {B::facts.id, B::emulated, S, P, &launch<K, B, S, P>, int{sizeof(typename K::Shared)}};
}

/// Returns the entries of rungs 1 to 4b. Their blocks have 256 lanes.
template <class B, GemmSpec S>
constexpr auto entries() {
  constexpr int waves = 256 / B::facts.wave_lanes;
  constexpr GemmPolicy naive{.rows = 16,
                             .columns = 16,
                             .depth_bytes = 16,
                             .stages = 0,
                             .waves_rows = waves,
                             .path = GemmPath::weights_in_registers};
  constexpr GemmPolicy tiled{
      .rows = 128, .columns = 128, .depth_bytes = 32, .stages = 1, .waves_rows = waves, .path = GemmPath::staged};
  constexpr GemmPolicy matrix{
      .rows = 128, .columns = 128, .stages = 1, .waves_rows = 2, .waves_columns = waves / 2, .path = GemmPath::staged};
  constexpr GemmPolicy prefetched{
      .rows = 128, .columns = 128, .stages = 2, .waves_rows = 2, .waves_columns = waves / 2, .path = GemmPath::staged};
  constexpr GemmPolicy two_blocks = [&] {
    GemmPolicy p = prefetched;
    p.depth_bytes = 64, p.waves_per_simd = 2;
    return p;
  }();
  return std::array{entry<NaiveKernel, B, S, naive>(), entry<TiledKernel, B, S, tiled>(),
                    entry<MatrixKernel, B, S, matrix>(), entry<MatrixKernel, B, S, prefetched>(),
                    entry<MatrixKernel, B, S, two_blocks>()};
}

}  // namespace tilewave::ladder
