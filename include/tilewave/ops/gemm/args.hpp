// SPDX-License-Identifier: MIT
// What every GEMM kernel takes, and which tile of which product a block works on.
#pragma once

#include "tilewave/core/math.hpp"
#include "tilewave/ops/gemm/policy.hpp"
#include "tilewave/ops/gemm/problem.hpp"

namespace tilewave {

/// In the order in which a block needs them: on sm90 the first 176 bytes of arguments come with the launch, the others
/// from memory.
struct GemmArgs {
  std::int32_t m, n, k;  // n: columns of C
  std::int32_t layers;   // batches or groups
  std::int32_t splits;   // of K
  // Of specs without groups, see GemmTiles: how many tiles a layer and a band have, and how many rows of tiles a band,
  // the last one too.
  FastDiv of_layer, of_band, height, last_height;
  std::int32_t gate_step, up_row;   // gated: rows of B from a gate to the next, and from a gate to its up
  std::int32_t b_layer_strips;      // preshuffled weights: sixteens of rows from a layer to the next
  const std::int32_t* group_table;  // offsets or rows, as the spec says
  const float *a_scale, *b_scale;
  const void* b_group_scale;
  const std::uint8_t *a_mx_scale, *b_mx_scale;
  const void *a, *b;
  std::int64_t a_stride, b_stride;
  std::int64_t a_layer_stride, b_layer_stride;
  std::int64_t a_scale_stride, a_scale_k_stride, b_scale_stride, b_scale_k_stride;
  std::int64_t a_scale_layer_stride, b_scale_layer_stride;
  float alpha, swiglu_alpha, swiglu_limit;
  const void *bias, *residual;
  void* out;
  float* out_scale;
  std::int64_t out_stride, residual_stride;
  std::int64_t out_layer_stride, residual_layer_stride, bias_layer_stride;
  std::int64_t out_scale_stride, out_scale_layer_stride;
};

/// Rows of tiles of a band.
constexpr std::int32_t gemm_band(const GemmPolicy& p) { return max_of(1, 2048 / (p.rows * p.cluster)); }

/// What kernels of a policy take; `splits`: blocks that share K of a tile.
inline GemmArgs gemm_args(const GemmProblem& p, const GemmPolicy& policy, std::int32_t splits) {
  const std::int32_t tiles_m = max_of(1, ceil_div(p.m, policy.rows * policy.cluster)), band = gemm_band(policy);
  const std::int32_t tiles_n = max_of(1, ceil_div(p.n, policy.columns)), rest = tiles_m % band;
  const auto tiles = static_cast<std::int32_t>(min_of<std::int64_t>(std::int64_t{tiles_m} * tiles_n, 0x7fffffff));
  return {.m = p.m,
          .n = gemm_out_columns(p),
          .k = p.k,
          .layers = gemm_layers(p),
          .splits = splits,
          .of_layer = FastDiv::by(tiles),
          .of_band = FastDiv::by(min_of(std::int64_t{band} * tiles_n, std::int64_t{0x7fffffff})),
          .height = FastDiv::by(band),
          .last_height = FastDiv::by(rest != 0 ? rest : band),
          .gate_step = p.interleaved ? 2 : 1,
          .up_row = p.interleaved ? 1 : p.n / 2,
          .b_layer_strips = p.spec.weights == GemmWeights::preshuffled && p.k > 0
                                ? static_cast<std::int32_t>(p.b_batch_stride / gemm_strip_elements(p))
                                : 0,
          .group_table = p.spec.groups == GemmGroups::masked ? p.group_rows : p.group_offsets,
          .a_scale = p.a_scale,
          .b_scale = p.b_scale,
          .b_group_scale = p.b_group_scale,
          .a_mx_scale = p.a_mx_scale,
          .b_mx_scale = p.b_mx_scale,
          .a = p.a,
          .b = p.b,
          .a_stride = p.a_stride,
          .b_stride = p.b_stride,
          .a_layer_stride = p.a_batch_stride,
          .b_layer_stride = p.b_batch_stride,
          .a_scale_stride = p.a_scale_stride,
          .a_scale_k_stride = p.a_scale_k_stride,
          .b_scale_stride = p.b_scale_stride,
          .b_scale_k_stride = p.b_scale_k_stride,
          .a_scale_layer_stride = p.a_scale_batch_stride,
          .b_scale_layer_stride = p.b_scale_batch_stride,
          .alpha = p.alpha,
          .swiglu_alpha = p.swiglu_alpha,
          .swiglu_limit = p.swiglu_limit,
          .bias = p.bias,
          .residual = p.residual,
          .out = p.out,
          .out_scale = p.out_scale,
          .out_stride = p.out_stride,
          .residual_stride = p.residual_stride,
          .out_layer_stride = p.out_batch_stride,
          .residual_layer_stride = p.residual_batch_stride,
          .bias_layer_stride = p.bias_batch_stride,
          .out_scale_stride = p.out_scale_stride,
          .out_scale_layer_stride = p.out_scale_batch_stride};
}

/// Columns of C of a tile; P.columns are rows of B.
constexpr std::int32_t gemm_tile_columns(const GemmSpec& s, const GemmPolicy& p) {
  return s.gated ? p.columns / 2 : p.columns;
}

/// Which rows of B a tile has, and where. Each column of C has one; of a gated spec gate and up, and each `part` of the
/// tile's rows is a run of gates, then their ups, so that whoever multiplies the part has both of a column.
template <GemmSpec S, int part>
struct GemmTileRows {
  static constexpr int halves = S.gated ? 2 : 1, run = part / halves;
  static_assert(part % halves == 0, "a part has as many gates as ups");

  /// Of row r of the tile: the tile's column of C, and which half.
  TILEWAVE_HOST_DEVICE static constexpr int column(int r) { return S.gated ? r / part * run + r % run : r; }
  TILEWAVE_HOST_DEVICE static constexpr int half(int r) { return S.gated ? r / run % 2 : 0; }
  /// Row of the tile of one of its columns of C.
  TILEWAVE_HOST_DEVICE static constexpr int row(int column, int half) {
    return S.gated ? column / run * part + half * run + column % run : column;
  }
};

/// The row of B of a column of C.
template <GemmSpec S>
TILEWAVE_HOST_DEVICE constexpr std::int32_t gemm_row_of_b(const GemmArgs& a, std::int32_t column, int half) {
  if constexpr (!S.gated) return column;
  return column * a.gate_step + half * a.up_row;
}

/// A tile of one product. Row r of it is row first_row + r of the layer's matrices; those from row_end on are not the
/// layer's. `a_layer`: where A and C of contiguous groups lie, all in layer 0.
struct GemmTile {
  std::int32_t layer, a_layer;
  std::int32_t first_row, row_end, first_column;
};

/// The tiles that a block works on, in order: number `first` and every `step`-th from there. Neighbours share operands:
/// tiles go down bands of gemm_band rows of tiles before the next column, so that those under way at a time form a
/// square (in L2, of all blocks together). A tile here is P.rows x P.columns of each block of a cluster, one below the
/// other.
template <class B, GemmSpec S, GemmPolicy P>
class GemmTiles {
 public:
  TILEWAVE_DEVICE GemmTiles(const GemmArgs& a, std::int32_t first, std::int32_t step, std::int32_t rank)
      : a_(a), number_(first), step_(step), rank_(rank), tiles_n_(ceil_div(a.n, columns)) {
    if constexpr (S.groups == GemmGroups::one) {
      tiles_m_ = ceil_div(a.m, rows);
    } else {
      if constexpr (S.groups == GemmGroups::contiguous) row_end_ = rows_before(0);
      enter(0);
    }
  }

  /// Whether there is one more, which `tile` then is.
  TILEWAVE_DEVICE bool next(GemmTile& tile) {
    std::int32_t first_m, rest, down, across;
    if constexpr (S.groups == GemmGroups::one) {
      layer_ = a_.of_layer.quotient(number_);
      if (layer_ >= a_.layers) return false;
      const std::int32_t in_layer = number_ - layer_ * a_.of_layer.divisor, band = a_.of_band.quotient(in_layer);
      first_m = band * rows_of_band;
      rest = in_layer - band * a_.of_band.divisor;
      const FastDiv& height = first_m + rows_of_band <= tiles_m_ ? a_.height : a_.last_height;
      across = height.quotient(rest);
      down = rest - across * height.divisor;
    } else {
      while (number_ - before_ >= tiles_m_ * tiles_n_) {
        if (layer_ + 1 >= a_.layers) return false;
        before_ += tiles_m_ * tiles_n_;
        enter(layer_ + 1);
      }
      const std::int32_t in_layer = number_ - before_;
      first_m = in_layer / (rows_of_band * tiles_n_) * rows_of_band;
      rest = in_layer - first_m * tiles_n_;
      const std::int32_t height = min_of(rows_of_band, tiles_m_ - first_m);
      across = rest / height;
      down = rest - across * height;
    }
    tile.layer = layer_;
    tile.a_layer = S.groups == GemmGroups::contiguous ? 0 : layer_;
    tile.first_row = first_row_ + (first_m + down) * rows + rank_ * P.rows;
    tile.row_end = S.groups == GemmGroups::one ? a_.m : row_end_;
    tile.first_column = across * columns;
    number_ += step_;
    return true;
  }
  /// Where the block stands among groups.
  struct State {
    std::int32_t number, layer, before, first_row, row_end, tiles_m;
  };
  TILEWAVE_DEVICE State state() const { return {number_, layer_, before_, first_row_, row_end_, tiles_m_}; }
  TILEWAVE_DEVICE void go_on_from(const State& s) {
    number_ = s.number, layer_ = s.layer, before_ = s.before;
    first_row_ = s.first_row, row_end_ = s.row_end, tiles_m_ = s.tiles_m;
  }
  /// Those from `number` on come next, of a spec without groups.
  TILEWAVE_DEVICE void go_on_from(std::int32_t number) {
    static_assert(S.groups == GemmGroups::one, "where a group's tiles begin is known on the device only");
    number_ = number;
    step_ = 1;
  }

 private:
  static constexpr int rows = P.rows * P.cluster, columns = gemm_tile_columns(S, P);
  static constexpr int rows_of_band = gemm_band(P);

  /// Whatever the table says, a group lies within the M rows and behind the groups before it. So no row is written
  /// twice, and all tiles together are no more than gemm_tiles.
  TILEWAVE_DEVICE void enter(std::int32_t layer) {
    layer_ = layer;
    if constexpr (S.groups == GemmGroups::contiguous) {
      first_row_ = row_end_;
      row_end_ = rows_before(layer + 1);
    } else {
      row_end_ = min_of(B::load(a_.group_table + layer), a_.m);
    }
    tiles_m_ = ceil_div(max_of(row_end_ - first_row_, 0), rows);
  }
  /// An offset of contiguous groups, from the one before it (row_end_) to M.
  TILEWAVE_DEVICE std::int32_t rows_before(std::int32_t layer) const {
    return min_of(max_of(B::load(a_.group_table + layer), row_end_), a_.m);
  }

  const GemmArgs& a_;
  std::int32_t number_, step_, rank_, tiles_n_, tiles_m_ = 0;
  std::int32_t layer_ = 0, before_ = 0, first_row_ = 0, row_end_ = 0;
};

/// How many tiles GemmTiles can find at most: the grid depends on capacities only. A group has at most one tile that is
/// not full.
inline std::int64_t gemm_tiles(const GemmSpec& s, const GemmArgs& a, const GemmPolicy& p) {
  const std::int64_t rows = p.rows * p.cluster, columns = ceil_div(a.n, gemm_tile_columns(s, p));
  if (s.groups == GemmGroups::contiguous) return (a.m / rows + min_of(a.layers, a.m)) * columns;
  return ceil_div<std::int64_t>(a.m, rows) * columns * a.layers;
}

}  // namespace tilewave
