// SPDX-License-Identifier: MIT
// Output of a kernel through LDS. A lane's sums of a product lie in one row of C, four neighbours here and four there,
// so that a store of a wave would have 8 bytes at 64 places. Where a tile ends within C's columns and nothing is added
// to the products, as in most tiles of most calls, a product goes through LDS instead, after which neighbouring lanes
// have neighbours of a row. Addresses are worked out once for a tile.
#pragma once

#include "tilewave/ops/gemm/wave_tile/wave_tile.hpp"

namespace tilewave {

/// `lds_bytes`: what the rings of a block had.
template <class W, int lds_bytes>
struct GemmWideOutput {
  using B = typename W::Backend;
  using Map = typename W::Map;
  using Args = typename W::Args;
  static constexpr GemmSpec spec = W::spec;
  static constexpr DType out = spec.out;
  static constexpr int run = Map::run, runs = Map::sums / run;                  // of a lane for a product
  static constexpr int row_runs = Map::columns / run, rows = Map::rows / runs;  // that a wave stores at once
  using Run = Packed<out, run>;
  struct Product {
    Run runs[Map::rows][row_runs + 1];  // one more: rows that are written together begin at different banks
  };
  /// With two, a product's sums are rounded while the one before comes back.
  static constexpr int buffers = lds_bytes >= 2 * W::waves * static_cast<int>(sizeof(Product)) ? 2 : 1;
  union Shared {
    typename W::Exchange exchange;
    Product products[W::waves][buffers];
  };
  static_assert(sizeof(Shared) <= lds_bytes, "products of C go through what the rings had");

  const Args& args;
  const GemmTile& tile;
  Shared& shared;
  bool wide;
  int lane_row, lane_run;
  std::int32_t first_row;   // of C that this lane stores
  std::int64_t row_stride;  // of C
  Storage<out>* columns;    // of row 0 of C, from this lane's first on

  TILEWAVE_DEVICE GemmWideOutput(const Args& a, const GemmTile& of, Shared& in)
      : args(a),
        tile(of),
        shared(in),
        wide(serves(a, of)),
        lane_row(B::lane_id() / row_runs),
        lane_run(B::lane_id() % row_runs),
        first_row(of.first_row + W::first_row() + lane_row) {
    const std::int32_t column = of.first_column + W::first_column() / W::halves + lane_run * run;
    columns = static_cast<Storage<out>*>(a.gemm.out) + of.a_layer * a.gemm.out_layer_stride + column;
    // LLVM would load the stride again for each store.
    std::int32_t low = static_cast<std::int32_t>(a.gemm.out_stride),
                 high = static_cast<std::int32_t>(a.gemm.out_stride >> 32);
    B::keep_uniform(low), B::keep_uniform(high);
    row_stride = std::int64_t{high} << 32 | static_cast<std::uint32_t>(low);
  }

  /// Says of a tile whether its products go through LDS. Scales that are found for 128 columns are exchanged there.
  TILEWAVE_DEVICE static bool serves(const Args& a, const GemmTile& tile) {
    const GemmArgs& g = a.gemm;
    return !W::exchanges && g.splits == 1 && a.wide_rows && tile.first_column + W::tile_columns <= g.n &&
           g.bias == nullptr && g.residual == nullptr && g.row_weights == nullptr;
  }

  TILEWAVE_DEVICE void finish(const typename W::BlockWork& work, typename W::WaveSums& sums) {
    W::finish_rows(args, work, sums, [&](int i) TILEWAVE_INLINE_LAMBDA {
      const auto sums_of = [&](int j, int half) TILEWAVE_INLINE_LAMBDA { return sums[0][j + half * W::tiles_c]; };
      if constexpr (!W::exchanges) {
        if (wide) return write_row(i, sums_of);
      }
      W::write_row(args, tile, i, shared.exchange, sums_of);
    });
  }

 private:
  /// Writes row i of products.
  template <class SumsOf>
  TILEWAVE_DEVICE void write_row(int i, const SumsOf& sums_of) {
    Product(&own)[buffers] = shared.products[W::wave()];
    put<0>(i, own[0], sums_of);
    B::wave_barrier();
    static_for<W::tiles_c>([&](auto j) TILEWAVE_INLINE_LAMBDA {
      Run taken[runs];
      TILEWAVE_UNROLL
      for (int r = 0; r < runs; ++r) taken[r] = own[j % buffers].runs[lane_row + r * rows][lane_run];
      if constexpr (j + 1 < W::tiles_c) {
        if constexpr (buffers == 1) B::wave_barrier();
        put<j + 1>(i, own[(j + 1) % buffers], sums_of);
      }
      TILEWAVE_UNROLL
      for (int r = 0; r < runs; ++r) {
        const std::int32_t row = first_row + i * Map::rows + r * rows;
        if (row >= tile.row_end) continue;
        const std::int32_t of_out = gemm_row_of_out<B, spec>(args.gemm, row);
        if (spec.scattered && of_out < 0) continue;
        B::store(reinterpret_cast<Run*>(columns + of_out * row_stride + j * Map::columns), taken[r]);
      }
      B::wave_barrier();
    });
  }
  /// Rounds what becomes of this lane's sums of product j of a row, and puts it into LDS.
  template <int j, class SumsOf>
  TILEWAVE_DEVICE void put(int i, Product& product, const SumsOf& sums_of) const {
    Args plain = args;  // as `serves` says; so the compiler leaves out what would look
    plain.gemm.bias = plain.gemm.residual = nullptr;
    plain.gemm.row_weights = nullptr;
    const float factor = W::Epilogue::out_factor(args.gemm);
    const auto values =
        W::values_of(plain, tile, i, j, [&](int half) TILEWAVE_INLINE_LAMBDA { return sums_of(j, half); });
    const int lane = B::lane_id();
    TILEWAVE_UNROLL
    for (int r = 0; r < runs; ++r) {
      Vec<float, run> rounded;
      TILEWAVE_UNROLL
      for (int e = 0; e < run; ++e)
        rounded[e] = spec.out_scale == Scaling::none ? values[r * run + e] : values[r * run + e] * factor;
      product.runs[Map::row(lane)][Map::kv_row(lane, r * run) / run] = narrow<B, out, run>(rounded);
    }
  }
};

}  // namespace tilewave
