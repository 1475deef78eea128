// SPDX-License-Identifier: MIT
// The arguments that all GEMM kernels take, and the walk of a block over the tiles of C.
#pragma once

#include "tilewave/core/math.hpp"
#include "tilewave/ops/gemm/policy.hpp"
#include "tilewave/ops/gemm/problem.hpp"

namespace tilewave {

/// The arguments stand in the order in which a block needs them. On sm90 the first 176 bytes come with the launch, and
/// a block reads the others from memory.
struct GemmArgs {
  std::int32_t m, n, k;  // n: columns of C
  std::int32_t layers;   // batches or groups
  std::int32_t splits;   // of K
  // For specs without groups, see GemmTiles: tiles of a layer, tiles of a band, and rows of tiles of a band and of the
  // last band.
  FastDiv layer_tiles, band_tiles, band_rows, last_band_rows;
  std::int32_t gate_stride, up_row;  // gated: rows of B from a gate to the next, and from a gate to its up
  std::int32_t b_layer_strips;       // preshuffled weights: strips of sixteen rows from a layer to the next
  const std::int32_t* group_table;   // GemmProblem::group_offsets or group_rows, as the spec says
  const float *a_scale, *b_scale;
  const void* b_group_scale;
  const std::uint8_t *a_mx_scale, *b_mx_scale;  // b_mx_scale: or zero points, which no spec has beside MX scales
  const void *a, *b;
  std::int64_t a_stride, b_stride;
  std::int64_t a_layer_stride, b_layer_stride;
  std::int64_t a_scale_stride, a_scale_k_stride, b_scale_stride, b_scale_k_stride;
  std::int64_t a_scale_layer_stride, b_scale_layer_stride;
  float alpha, swiglu_alpha, swiglu_limit;
  // Here, where pointers leave room: 8 bytes more of arguments cost a few rows 3 % on gfx942.
  bool shared_a, b_ready, in_place;  // in_place: the residual is out itself
  const void *bias, *residual;
  void* out;
  float* out_scale;
  std::int64_t out_stride, residual_stride;
  std::int64_t out_layer_stride, residual_layer_stride, bias_layer_stride;
  std::int64_t out_scale_stride, out_scale_layer_stride;
  const std::int32_t* row_ids;
  const float* row_weights;
  std::int32_t tokens, topk;
};

/// Returns how many rows of tiles a band has: 2048 rows of C, as groups and CDNA have it.
constexpr std::int32_t gemm_band(const GemmPolicy& p) { return max_of(1, 2048 / (p.rows * p.cluster)); }
/// The same of a problem. On sm90 a band without groups has the rows of which A takes 16 MB, but 2048 at least: with
/// little K all of A stays in L2, and each column of B is read from memory once
/// (docs/notebook/2026-11-28-gemm-boxes-in-turn.md). Bands are equally high.
inline std::int32_t gemm_band(const GemmProblem& p, const GemmPolicy& policy) {
  std::int32_t most = gemm_band(policy);
  if (policy.path != GemmPath::tensor || p.spec.groups != GemmGroups::one) return most;
  const std::int64_t row_bytes = max_of<std::int64_t>(std::int64_t{p.k} * size_of(p.spec.a), 1);
  most = max_of(most, static_cast<std::int32_t>((std::int64_t{16} << 20) / row_bytes / (policy.rows * policy.cluster)));
  const std::int32_t tiles_m = max_of(1, ceil_div(p.m, policy.rows * policy.cluster));
  return ceil_div(tiles_m, ceil_div(tiles_m, most));
}

/// Returns the arguments for kernels of a policy. `splits`: blocks that share the K of a tile.
inline GemmArgs gemm_args(const GemmProblem& p, const GemmPolicy& policy, std::int32_t splits) {
  const std::int32_t tiles_m = max_of(1, ceil_div(p.m, policy.rows * policy.cluster)), band = gemm_band(p, policy);
  const std::int32_t tiles_n = max_of(1, ceil_div(p.n, policy.columns * policy.cluster_columns)), rest = tiles_m % band;
  const auto tiles = static_cast<std::int32_t>(min_of<std::int64_t>(std::int64_t{tiles_m} * tiles_n, 0x7fffffff));
  return {.m = p.m,
          .n = gemm_out_columns(p),
          .k = p.k,
          .layers = gemm_layers(p),
          .splits = splits,
          .layer_tiles = FastDiv::by(tiles),
          .band_tiles = FastDiv::by(min_of(std::int64_t{band} * tiles_n, std::int64_t{0x7fffffff})),
          .band_rows = FastDiv::by(band),
          .last_band_rows = FastDiv::by(rest != 0 ? rest : band),
          .gate_stride = p.interleaved ? 2 : 1,
          .up_row = p.interleaved ? 1 : p.n / 2,
          .b_layer_strips =
              p.spec.in_strips() && p.k > 0 ? static_cast<std::int32_t>(p.b_batch_stride / gemm_strip_elements(p)) : 0,
          .group_table = p.spec.groups == GemmGroups::masked ? p.group_rows : p.group_offsets,
          .a_scale = p.a_scale,
          .b_scale = p.b_scale,
          .b_group_scale = p.b_group_scale,
          .a_mx_scale = p.a_mx_scale,
          .b_mx_scale = p.spec.zero_points ? reinterpret_cast<const std::uint8_t*>(p.b_zero) : p.b_mx_scale,
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
          .shared_a = p.shared_a,
          .b_ready = p.b_ready,
          .in_place = p.residual != nullptr && p.residual == p.out,
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
          .out_scale_layer_stride = p.out_scale_batch_stride,
          .row_ids = p.row_ids,
          .row_weights = p.row_weights,
          .tokens = p.tokens,
          .topk = p.topk};
}

/// Returns the columns of C of a tile. A policy's columns count rows of B.
constexpr std::int32_t gemm_tile_columns(const GemmSpec& s, const GemmPolicy& p) {
  return s.gated ? p.columns / 2 : p.columns;
}

/// The rows of B that a tile has. A column of C has one row, or in a gated spec two: a gate and an up. Each `part` of
/// the tile's rows is a run of gates and then the run of their ups, so who multiplies the part has both of a column.
template <GemmSpec S, int part>
struct GemmTileRows {
  static constexpr int halves = S.gated ? 2 : 1, run = part / halves;
  static_assert(part % halves == 0, "a part has as many gates as ups");

  /// Returns the tile's column of C that row r of the tile has, and whether it is the gate (0) or the up (1).
  TILEWAVE_HOST_DEVICE static constexpr int column(int r) { return S.gated ? r / part * run + r % run : r; }
  TILEWAVE_HOST_DEVICE static constexpr int half(int r) { return S.gated ? r / run % 2 : 0; }
  /// Returns the row of the tile that a column of C has in a half.
  TILEWAVE_HOST_DEVICE static constexpr int row(int column, int half) {
    return S.gated ? column / run * part + half * run + column % run : column;
  }
};

/// Returns the row of B that a column of C has in a half.
template <GemmSpec S>
TILEWAVE_HOST_DEVICE constexpr std::int32_t gemm_row_of_b(const GemmArgs& a, std::int32_t column, int half) {
  if constexpr (!S.gated) return column;
  return column * a.gate_stride + half * a.up_row;
}

/// Returns the row of A of a row of the groups, which is one of A's whatever its id is.
template <class B, GemmSpec S>
TILEWAVE_DEVICE std::int32_t gemm_row_of_a(const GemmArgs& a, std::int32_t row) {
  if constexpr (!S.gathered) return row;
  return min_of(B::load(a.row_ids + row) & ((1 << gemm_token_bits) - 1), a.tokens - 1);
}
/// Returns the row of out of a row of the groups, or -1 if it has none.
template <class B, GemmSpec S>
TILEWAVE_DEVICE std::int32_t gemm_row_of_out(const GemmArgs& a, std::int32_t row) {
  if constexpr (!S.scattered) return row;
  const std::int32_t id = B::load(a.row_ids + row), token = id & ((1 << gemm_token_bits) - 1);
  const std::int32_t slot = static_cast<std::int32_t>(static_cast<std::uint32_t>(id) >> gemm_token_bits);
  return token < a.tokens && slot < a.topk ? token * a.topk + slot : -1;
}

/// A tile of one product. Its row r is row first_row + r of the layer's matrices. Rows from row_end on do not belong to
/// the layer. `a_layer`: the layer of A and C, which is 0 for all contiguous groups.
struct GemmTile {
  std::int32_t layer, a_layer;
  std::int32_t first_row, row_end, first_column;
};

/// The tiles that a block works on, in order: tile number `first`, and from there every `stride`-th. Neighbouring tiles
/// share operands. Their numbers go down a band of gemm_band rows of tiles before they go to the next column. So the
/// tiles that all blocks have at a time form a square, whose operands stay in L2. Masked groups that share A lie side
/// by side in it. With clusters, a tile here is P.rows x P.columns of each block of the cluster, one below the other;
/// `rank` is the block's number in it. Where blocks go through `walk` tiles side by side, these count as one here.
template <class B, GemmSpec S, GemmPolicy P>
class GemmTiles {
 public:
  TILEWAVE_DEVICE GemmTiles(const GemmArgs& a, std::int32_t first, std::int32_t stride, std::int32_t rank,
                            std::int32_t walk = 1)
      : a_(a),
        number_(first),
        stride_(stride),
        rank_(rank),
        walk_(walks ? walk : 1),
        tiles_n_(ceil_div(a.n, columns * walk_)) {
    if constexpr (S.groups == GemmGroups::one) {
      tiles_m_ = ceil_div(a.m, rows);
    } else {
      if constexpr (S.groups == GemmGroups::contiguous) row_end_ = rows_before(0);
      enter(0);
    }
  }

  /// Returns true and sets `tile` if there is another tile.
  TILEWAVE_DEVICE bool next(GemmTile& tile) {
    std::int32_t first_m, rest, down, across;
    if constexpr (S.groups == GemmGroups::one) {
      layer_ = a_.layer_tiles.quotient(number_);
      if (layer_ >= a_.layers) return false;
      const std::int32_t in_layer = number_ - layer_ * a_.layer_tiles.divisor, band = a_.band_tiles.quotient(in_layer);
      const std::int32_t band_rows = P.path == GemmPath::tensor ? a_.band_rows.divisor : rows_of_band;
      first_m = band * band_rows;
      rest = in_layer - band * a_.band_tiles.divisor;
      const FastDiv& height = first_m + band_rows <= tiles_m_ ? a_.band_rows : a_.last_band_rows;
      across = height.quotient(rest);
      down = rest - across * height.divisor;
    } else if (S.groups == GemmGroups::masked &&
               a_.shared_a) {  // groups of as many rows: the parts of one wide product
      const std::int32_t wide = tiles_n_ * a_.layers;
      if (number_ >= tiles_m_ * wide) return false;
      first_m = number_ / (rows_of_band * wide) * rows_of_band;
      rest = number_ - first_m * wide;
      const std::int32_t height = min_of(rows_of_band, tiles_m_ - first_m);
      across = rest / height;
      down = rest - across * height;
      layer_ = across / tiles_n_;
      across -= layer_ * tiles_n_;
    } else {
      while (number_ - tiles_before_ >= tiles_m_ * tiles_n_) {
        if (layer_ + 1 >= a_.layers) return false;
        tiles_before_ += tiles_m_ * tiles_n_;
        pass_groups();
      }
      const std::int32_t in_layer = number_ - tiles_before_;
      first_m = in_layer / (rows_of_band * tiles_n_) * rows_of_band;
      rest = in_layer - first_m * tiles_n_;
      const std::int32_t height = min_of(rows_of_band, tiles_m_ - first_m);
      across = rest / height;
      down = rest - across * height;
    }
    tile.layer = layer_;
    tile.a_layer = S.groups == GemmGroups::contiguous ? 0 : layer_;
    std::int32_t row = (first_m + down) * rows, column = across * columns;
    if constexpr (walks) column *= walk_;
    if constexpr (ends_whole) {
      if (!a_.in_place) {
        row = min_of(row, max_of(a_.m - rows, 0));
        if (ends_whole_columns && a_.n % 16 == 0) column = min_of(column, max_of(a_.n - columns, 0));
      }
    }
    tile.first_row = first_row_ + row + (P.cluster > 1 ? rank_ * P.rows : 0);
    tile.row_end = S.groups == GemmGroups::one ? a_.m : row_end_;
    tile.first_column = column + (P.cluster_columns > 1 ? rank_ * block_columns : 0);
    number_ += stride_;
    return true;
  }
  /// The state of the walk over groups, which a kernel may save and resume from.
  struct State {
    std::int32_t number, layer, tiles_before, first_row, row_end, tiles_m;
  };
  TILEWAVE_DEVICE State state() const { return {number_, layer_, tiles_before_, first_row_, row_end_, tiles_m_}; }
  TILEWAVE_DEVICE void resume(const State& s) {
    number_ = s.number, layer_ = s.layer, tiles_before_ = s.tiles_before;
    first_row_ = s.first_row, row_end_ = s.row_end, tiles_m_ = s.tiles_m;
  }
  /// Makes the tiles from `number` on the next ones, for a spec without groups.
  TILEWAVE_DEVICE void resume(std::int32_t number) {
    static_assert(S.groups == GemmGroups::one, "where a group's tiles begin is known on the device only");
    number_ = number;
    stride_ = 1;
  }

 private:
  static constexpr int rows = P.rows * P.cluster, block_columns = gemm_tile_columns(S, P);
  static constexpr int columns = block_columns * P.cluster_columns;
  static constexpr int rows_of_band = gemm_band(P);
  static constexpr bool contiguous = S.groups == GemmGroups::contiguous, walks = detail::gemm_walks(S, P);
  /// On sm90 the last tiles of a product are whole: they begin where they end with M and N, and what two tiles have is
  /// written twice with the same bits. Copies of rows that are not there took all blocks longer
  /// (docs/notebook/2026-11-28-gemm-unseen-shapes.md). Columns stay where scales belong to 128 of them.
  static constexpr bool ends_whole =
      P.path == GemmPath::tensor && S.groups == GemmGroups::one && S.layout == GemmLayout::nt;
  static constexpr bool ends_whole_columns = S.scale != Scaling::per_block && S.out_scale != Scaling::per_group &&
                                             !S.gated && S.weights == GemmWeights::row_major;

  /// Passes groups whose tiles all come before the next tile, as many at once as the wave has lanes: a layer of experts
  /// has hundreds, most with few tiles or none. It begins the first group that has the next tile, or is beyond those
  /// that the wave looked at. The table's values for `runs` waves of groups are asked for together, since a wait for
  /// memory takes five times as long as what is done with a value. All lanes call this.
  TILEWAVE_DEVICE void pass_groups() {
    constexpr int runs = 4, lanes = B::facts.wave_lanes;
    const std::int32_t next = layer_ + 1;
    std::int32_t begin[runs], end[runs];
    TILEWAVE_UNROLL
    for (int run = 0; run < runs; ++run) {
      const std::int32_t group = min_of(next + run * lanes + B::lane_id(), a_.layers - 1);
      begin[run] = contiguous ? B::load(a_.group_table + group) : 0;
      end[run] = B::load(a_.group_table + group + contiguous);
    }
    TILEWAVE_UNROLL
    for (int run = 0; run < runs; ++run)
      if (next + run * lanes >= a_.layers || !pass_run(begin[run], end[run])) return;
  }
  /// Passes groups of which each lane has one, from the group behind layer_ on. Returns whether it passed all of them.
  TILEWAVE_DEVICE bool pass_run(std::int32_t begin, std::int32_t end) {
    const std::int32_t looked_at = min_of(a_.layers - layer_ - 1, B::facts.wave_lanes);
    bool regular = true;  // a table whose values are no offsets in order is taken group by group
    if constexpr (contiguous) {
      regular = begin >= row_end_ && end >= begin && end <= a_.m && (B::lane_id() > 0 || begin == row_end_);
    } else {
      end = min_of(max_of(end, 0), a_.m);
    }
    if (B::any(!regular)) {
      enter(layer_ + 1);
      return false;
    }
    const std::int32_t tiles = B::lane_id() < looked_at ? ceil_div(end - begin, rows) : 0;
    const std::int32_t before = B::sum_up_to(tiles);  // with the group's own
    const bool passed = B::lane_id() < looked_at && before * tiles_n_ <= number_ - tiles_before_;
    const std::int32_t count = B::uniform(static_cast<std::int32_t>(B::total(passed ? 1u : 0u)));
    const std::int32_t at = min_of(count, looked_at - 1);
    const auto of_lane = [](std::int32_t value, int lane)
                             TILEWAVE_INLINE_LAMBDA { return B::uniform(B::shuffle(value, lane)); };
    if (count > 0) tiles_before_ += of_lane(before, count - 1) * tiles_n_;
    layer_ += at + 1;
    first_row_ = of_lane(begin, at), row_end_ = of_lane(end, at);
    tiles_m_ = count < looked_at ? of_lane(tiles, at) : 0;  // 0: all of them are passed
    return count == looked_at;
  }

  /// Begins a group. Whatever the table says, the group lies within the M rows and behind the groups before it. So no
  /// row is written twice, and there are at most gemm_tiles tiles.
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
  /// Returns an offset of contiguous groups, kept between the one before it (row_end_) and M.
  TILEWAVE_DEVICE std::int32_t rows_before(std::int32_t layer) const {
    return min_of(max_of(B::load(a_.group_table + layer), row_end_), a_.m);
  }

  const GemmArgs& a_;
  std::int32_t number_, stride_, rank_, walk_, tiles_n_, tiles_m_ = 0;
  std::int32_t layer_ = 0, tiles_before_ = 0, first_row_ = 0, row_end_ = 0;
};

/// Returns how many tiles, or walks of `walk` tiles, GemmTiles finds at most. The grid depends on capacities only. A
/// group has at most one tile that is not full.
inline std::int64_t gemm_tiles(const GemmSpec& s, const GemmArgs& a, const GemmPolicy& p, std::int32_t walk = 1) {
  const std::int64_t rows = p.rows * p.cluster;
  const std::int64_t columns = ceil_div(a.n, gemm_tile_columns(s, p) * p.cluster_columns * walk);
  if (s.groups == GemmGroups::contiguous) return (a.m / rows + min_of(a.layers, a.m)) * columns;
  return ceil_div<std::int64_t>(a.m, rows) * columns * a.layers;
}

}  // namespace tilewave
