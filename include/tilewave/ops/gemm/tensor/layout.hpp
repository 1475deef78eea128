// SPDX-License-Identifier: MIT
// What a block of GemmTensorKernel keeps where: shared memory, arguments, the ring, and which part is whose.
#pragma once

#include "tilewave/arch/backend.hpp"
#include "tilewave/ops/gemm/epilogue.hpp"
#include "tilewave/ops/gemm/policy_status.hpp"
#include "tilewave/ops/gemm/stream.hpp"
#include "tilewave/ops/gemm/tensor/int4_rows.hpp"
#include "tilewave/tile/ring.hpp"

namespace tilewave {

template <class B, GemmSpec S, GemmPolicy P, class Epilogue>
class GemmTensorOutput;

template <class B, GemmSpec S, GemmPolicy P, class UserEpilogue>
struct GemmTensorLayout {
  static_assert(gemm_policy_status(B::facts.id, S, P).ok(),
                "a law of policies is broken: gemm_policy_status(arch, spec, policy).reason says which");
  using Backend = B;
  static constexpr int group_waves = 4, group_lanes = group_waves * B::facts.wave_lanes;
  static constexpr int groups = P.waves();
  static constexpr int tall_rows = P.swapped ? P.columns : P.rows, wide_rows = P.swapped ? P.rows : P.columns;
  static constexpr int group_tall = tall_rows / P.waves_rows, group_wide = wide_rows / P.waves_columns;
  static constexpr int tiles = group_tall / 64;
  using TileRows = GemmTileRows<S, P.swapped ? group_tall : group_wide>;  // of B
  static constexpr int halves = TileRows::halves;
  static constexpr int b_box = halves == 1 ? P.columns / P.cluster : TileRows::run;  // rows of B of a copy
  static constexpr int depth_k = P.depth_bytes / size_of(S.a);                       // elements of K of a stage
  static constexpr bool packed = S.int4();                                           // the tall side is codes
  static constexpr bool shuffled = S.weights == GemmWeights::preshuffled && !packed;
  static constexpr bool row_scales = S.scale == Scaling::per_row || (packed && is_fp8(S.a));
  using Codes = GemmInt4Rows<B, S, P, TileRows>;
  static constexpr int stage_bytes = (tall_rows * !packed + wide_rows) * P.depth_bytes;  // without codes
  static constexpr int boxes = P.depth_bytes / 128, row_chunks = 8;  // boxes of a stage's k, of 128 bytes
  static constexpr int box_chunks = 8 * depth_k;                     // of 64 rows side by side by a stage's k
  /// Of preshuffled B units of a box, sixteen rows by 16 bytes of k, lie as products read them without swizzle: all of
  /// its rows, then those of the next 16 bytes.
  static constexpr int box_unit = 16 * b_box, strip_bytes = 256;
  static constexpr bool tall_transposed = P.swapped ? transposed_b(S.layout) : transposed_a(S.layout);
  static constexpr bool wide_transposed = P.swapped ? transposed_a(S.layout) : transposed_b(S.layout);
  static constexpr bool block_scales = S.scale == Scaling::per_block;
  /// Sums of a stage, which is 128 k, are added to those of all in f32: the unit's own of fp8 keep fewer bits.
  static constexpr bool promoted = S.has_sums_to_choose() && S.sums == GemmSums::promoted;
  /// Waves that bring block scales through shared memory, beside the one that copies. Where A's rows are the tall side,
  /// a lane needs two of them only and loads them itself. Codes' scales, too.
  static constexpr bool shared_scales = (block_scales && P.swapped) || packed;
  static constexpr int scale_waves = 3;  // of the fetching group, beside the one that copies
  /// With block scales: columns of the wide side whose sums of a stage registers hold beside those of all stages.
  static constexpr int part_wide = group_wide > 128 ? group_wide / 2 : group_wide;
  /// Registers hold the sums of all stages and of two more.
  static constexpr bool scaled_ahead =
      groups <= 2 && part_wide == group_wide && (promoted ? tiles * group_wide <= 128 : tiles == 1);

  /// A group's sums of one 64-row tile: element 4 j + 2 h + e of lane l of wave w is tall row 16 w + l / 4 + 8 h, wide
  /// row 8 j + 2 (l % 4) + e.
  using Sum = ProductSum<S.a>;
  using Sums = Vec<Sum, group_wide / 2>;

  /// Boxes of output: 128 bytes of a row of C by the rows of a wave's tile, or (swapped, where f32 has none) of a
  /// group's.
  static constexpr bool out_in_boxes = S.out != DType::f32 || !P.swapped;
  static constexpr int out_size = min_of(size_of(S.out), 2);
  static constexpr int box_columns = 128 / (P.swapped ? out_size : size_of(S.out));
  static constexpr int out_rows = P.swapped ? group_wide : 16;
  /// A whole tile's, of f32 half of it: the engine writes them while the next tile's products are under way.
  static constexpr int out_boxes = P.swapped ? 1 : tiles * ceil_div(group_wide / halves, 128 / out_size);
  /// Who fills a box together: a group, or a wave alone.
  static constexpr int team_lanes = P.swapped ? group_lanes : B::facts.wave_lanes;
  TILEWAVE_DEVICE static int team_lane() { return B::block_lane_id() % team_lanes; }
  TILEWAVE_DEVICE static void team_barrier() {
    if constexpr (P.swapped) {
      B::group_barrier();
    } else {
      B::wave_barrier();
    }
  }

  struct Args {
    std::int32_t blocks, clusters;
    FastDiv cluster;  // blocks of one
    std::int32_t k_steps;
    bool wide_stores;  // out's rows are such that the engine can write them
    GemmArgs gemm;
    typename B::TensorMap a, b[halves], out;
    UserEpilogue epilogue;
    GemmStream stream;
    Sum* partial;  // sums of those that share a tile's K

    struct Steps {
      std::int32_t first, end;
      std::int32_t aside = -1;  // which of the partial sums they are, if others have other steps
    };
    TILEWAVE_DEVICE Steps steps(int rank) const {
      if (gemm.splits == 1) return {0, k_steps};
      const auto from = [&](int r) { return std::int32_t(std::int64_t{k_steps} * r / gemm.splits); };
      return {from(rank), from(rank + 1)};
    }
    TILEWAVE_DEVICE bool clustered() const { return P.cluster > 1 || (P.splits > 1 && gemm.splits > 1); }
  };

  struct Barriers : RingBarriers<B, P.stages, P.cluster> {
    /// By one wave.
    TILEWAVE_DEVICE void begin() {
      RingBarriers<B, P.stages, P.cluster>::begin(shared_scales ? 2 : 1, groups * group_waves);
    }
  };

  static constexpr int shared_b_scales = packed ? Codes::groups * P.columns : shared_scales ? P.columns / 64 : 1;
  static constexpr int tall_chunks = tall_rows * (packed ? depth_k / 2 : P.depth_bytes) / 16;
  struct Shared {
    alignas(1024) Chunk tall[P.stages][tall_chunks];
    alignas(1024) Chunk wide[P.stages][wide_rows * boxes * row_chunks];
    alignas(1024) Chunk out[groups][out_boxes][out_rows * (P.swapped ? 1 : group_waves) * 8];
    Barriers ring;
    float wide_scale[row_scales ? groups : 1][row_scales ? group_wide : 1];
    // Scales of a stage. Block scales: of the tile's rows of A, and of B for each 64 columns.
    float a_scale[shared_scales && !packed ? P.stages : 1][shared_scales && !packed ? P.rows : 1];
    alignas(16) float b_scale[shared_scales ? P.stages : 1][shared_b_scales];
  };

  /// A wave's tile and its place among groups do not fit beside sums, parts and two sets of scales.
  static constexpr bool places_in_shared =
      (block_scales || (promoted && !P.swapped)) && !shared_scales && S.groups != GemmGroups::one;

  using Ring = RingSlot<P.stages>;

  /// This lane's in its group, and its wave's: not by wave_id(), which all lanes of a wave would have to call.
  TILEWAVE_DEVICE static int group_lane() { return B::block_lane_id() % group_lanes; }
  TILEWAVE_DEVICE static int group_wave() { return group_lane() / B::facts.wave_lanes; }

  TILEWAVE_DEVICE static int tall_row(int group) { return group / P.waves_columns * group_tall; }
  TILEWAVE_DEVICE static int wide_row(int group) { return group % P.waves_columns * group_wide; }

  /// By a wave.
  TILEWAVE_DEVICE static void copy_stage(const Args& a, const GemmTile& tile, std::int32_t step, int rank,
                                         Shared& shared, int slot) {
    auto* const full = &shared.ring.full[slot];
    if constexpr (packed) {
      B::mbarrier_expect(full, stage_bytes + Codes::strips * Codes::strip_chunks * 16);
      Codes::copy(a.gemm, a.b[0], tile, step, shared.tall[slot], full);
      if (B::lane_id() < boxes) {
        Chunk* const box = shared.wide[slot] + B::lane_id() * (wide_rows * row_chunks);
        B::copy_tensor(box, a.a, step * depth_k + B::lane_id() * (depth_k / boxes), tile.first_row, tile.a_layer, full);
      }
    } else {
      B::mbarrier_expect(full, stage_bytes);
      if (B::lane_id() == 0) copy_boxes(a, tile, step, rank, shared, slot);
    }
  }
  TILEWAVE_DEVICE static void copy_boxes(const Args& a, const GemmTile& tile, std::int32_t step, int rank,
                                         Shared& shared, int slot) {
    const std::int32_t k = step * depth_k;
    auto* const full = &shared.ring.full[slot];
    Chunk* const of_a = P.swapped ? shared.wide[slot] : shared.tall[slot];
    Chunk* const of_b = P.swapped ? shared.tall[slot] : shared.wide[slot];
    if constexpr (transposed_a(S.layout)) {
      copy_transposed<P.rows>(of_a, a.a, k, tile.first_row, tile.a_layer, full);
    } else {
      B::copy_tensor(of_a, a.a, k, tile.first_row, tile.a_layer, full);
    }
    if constexpr (shuffled) {
      TILEWAVE_UNROLL
      for (int row = 0; row < P.columns; row += b_box) {
        const std::int32_t column = tile.first_column + TileRows::column(row);
        const std::int32_t strip =
            tile.layer * a.gemm.b_layer_strips + gemm_row_of_b<S>(a.gemm, column, TileRows::half(row)) / 16;
        B::copy_tensor(of_b + row * row_chunks, a.b[0], 0, strip, step * (P.depth_bytes / 16), full);
      }
    } else if constexpr (transposed_b(S.layout)) {
      copy_transposed<P.columns>(of_b, a.b[0], k, tile.first_column, tile.layer, full);
    } else if constexpr (P.cluster == 1) {
      TILEWAVE_UNROLL
      for (int row = 0; row < P.columns; row += b_box) {
        B::copy_tensor(of_b + row * row_chunks, a.b[TileRows::half(row)], k, tile.first_column + TileRows::column(row),
                       tile.layer, full);
      }
    } else {
      B::copy_tensor(of_b + rank * b_box * row_chunks, a.b[0], k, tile.first_column + rank * b_box, tile.layer, full,
                     (1u << P.cluster) - 1);
    }
  }

  template <int rows>
  TILEWAVE_DEVICE static void copy_transposed(Chunk* to, const typename B::TensorMap& map, std::int32_t k,
                                              std::int32_t first_row, std::int32_t layer, typename B::Mbarrier* full) {
    TILEWAVE_UNROLL
    for (int i = 0; i < rows / 64; ++i) B::copy_tensor(to + i * box_chunks, map, first_row + 64 * i, k, layer, full);
  }

  /// Strips of sixteen rows of all layers, each of 256 bytes for 16 of k.
  static TensorShape shuffled_shape(const void* b, std::int64_t k_bytes, std::int64_t strips_of_all) {
    return {b,           DType::i8,  strip_bytes,        strips_of_all, k_bytes / 16, 16 * k_bytes,
            strip_bytes, b_box / 16, P.depth_bytes / 16, true};
  }

  /// An operand of a stage from a row on: 32 bytes of k, number `piece`.
  template <bool tall>
  TILEWAVE_DEVICE static auto operand(const Chunk* stage, int row, int piece) {
    if constexpr (shuffled && tall == P.swapped) {
      const int offset = row / b_box * (b_box * P.depth_bytes) + row % b_box * 16 + piece * 2 * box_unit;
      return GroupOperand{stage, 128, box_unit, offset};
    } else if constexpr (tall ? tall_transposed : wide_transposed) {
      return TransposedOperand{stage, depth_k, row, piece};
    } else {
      return SwizzledOperand{stage, row, piece};
    }
  }

  TILEWAVE_DEVICE static void clear(Sums (&sums)[tiles]) {
    TILEWAVE_UNROLL
    for (int t = 0; t < tiles; ++t) sums[t] = {};
  }

  /// Where the scales of 64 rows of B are, from row r of the tile on.
  TILEWAVE_DEVICE static const float* scales_of_b(const GemmArgs& a, const GemmTile& tile, int r) {
    const std::int32_t column = min_of(tile.first_column + TileRows::column(r), a.n - 1);
    const std::int32_t row = gemm_row_of_b<S>(a, column, TileRows::half(r));
    return a.b_scale + tile.layer * a.b_scale_layer_stride + B::divergent(row / gemm_scale_block) * a.b_scale_stride;
  }

  /// Block scales of one stage in a wave's registers, on their way from device to shared memory.
  struct FetchedBlockScales {
    static constexpr int lanes = B::facts.wave_lanes, rows = ceil_div(P.rows, lanes);
    Vec<float, rows> of_a;
    float of_b;

    TILEWAVE_DEVICE void load(const GemmArgs& a, const GemmTile& tile, std::int32_t step) {
      const float* const from = a.a_scale + tile.a_layer * a.a_scale_layer_stride + step * a.a_scale_k_stride;
      TILEWAVE_UNROLL
      for (int i = 0; i < rows; ++i) {
        const std::int32_t row =
            min_of(tile.first_row + min_of(i * lanes + B::lane_id(), P.rows - 1), tile.row_end - 1);
        of_a[i] = B::load(from + max_of(row, 0) * a.a_scale_stride);
      }
      const int row = 64 * min_of(B::lane_id(), P.columns / 64 - 1);
      of_b = B::load(scales_of_b(a, tile, row) + step * a.b_scale_k_stride);
    }
    TILEWAVE_DEVICE void store(Shared& shared, int slot) const {
      TILEWAVE_UNROLL
      for (int i = 0; i < rows; ++i)
        if (i * lanes + B::lane_id() < P.rows) shared.a_scale[slot][i * lanes + B::lane_id()] = of_a[i];
      if (B::lane_id() < P.columns / 64) shared.b_scale[slot][B::lane_id()] = of_b;
    }
  };

  using FetchedScales = std::conditional_t<packed, typename Codes::FetchedScales, FetchedBlockScales>;

  /// Those of a lane's elements, of one stage.
  struct BlockScales {
    // Of A: for its two tall rows of each tile, or (swapped) for its columns, pair after pair. Of B: for each 64 rows,
    // where a tile may begin in the middle of a block.
    static constexpr int of_a = P.swapped ? group_wide / 4 : 2 * tiles;
    static constexpr bool of_blocks = !P.swapped && !S.gated && group_wide % gemm_scale_block == 0;
    static constexpr int b_columns = of_blocks ? gemm_scale_block : 64;
    static constexpr int of_b = ceil_div(P.swapped ? group_tall : group_wide, b_columns);
    Vec<float, of_a> a_scale;
    Vec<float, of_b> b_scale;

    TILEWAVE_DEVICE void read(const Shared& shared, int slot, int group) {
      const int row = wide_row(group) + 2 * (B::lane_id() % 4);
      TILEWAVE_UNROLL
      for (int i = 0; i < of_a; ++i) a_scale[i] = shared.a_scale[slot][row + 8 * (i / 2) + i % 2];
      TILEWAVE_UNROLL
      for (int i = 0; i < of_b; ++i) b_scale[i] = shared.b_scale[slot][tall_row(group) / 64 + i];
    }
    /// Of element i of tile t.
    TILEWAVE_DEVICE float of(int t, int i) const {
      if constexpr (P.swapped) return a_scale[i / 4 * 2 + i % 2] * b_scale[t];
      return a_scale[2 * t + i / 2 % 2] * b_scale[i / 4 * 8 / b_columns];
    }

    /// The same, worked out.
    struct Products {
      Vec<float, of_a * of_b> of_all;
      TILEWAVE_DEVICE float of(int t, int i) const {
        return of_all[2 * t + i / 2 % 2 + of_a * (i / 4 * 8 / b_columns)];
      }
    };
    TILEWAVE_DEVICE Products products() const {
      static_assert(!P.swapped, "swapped tiles scale by pairs of columns, not by products of scales");
      Products all;
      TILEWAVE_UNROLL
      for (int i = 0; i < of_a * of_b; ++i) all.of_all[i] = a_scale[i % of_a] * b_scale[i / of_a];
      return all;
    }
  };

  /// Scales of a lane's two rows of each tile, and of its columns, from device memory, a stage after the other.
  struct ScaleReader {
    Vec<const float*, 2 * tiles> of_a;
    Vec<const float*, BlockScales::of_b> of_b;
    std::int64_t a_step, b_step;
    std::int32_t left;

    TILEWAVE_DEVICE ScaleReader(const GemmArgs& a, const GemmTile& tile, int group, typename Args::Steps steps)
        : a_step(a.a_scale_k_stride), b_step(a.b_scale_k_stride), left(steps.end - steps.first) {
      const float* const first_a = a.a_scale + tile.a_layer * a.a_scale_layer_stride + steps.first * a_step;
      TILEWAVE_UNROLL
      for (int i = 0; i < 2 * tiles; ++i) {
        const std::int32_t row =
            tile.first_row + tall_row(group) + 64 * (i / 2) + 16 * group_wave() + B::lane_id() / 4 + 8 * (i % 2);
        of_a[i] = first_a + min_of(row, tile.row_end - 1) * a.a_scale_stride;
      }
      TILEWAVE_UNROLL
      for (int i = 0; i < BlockScales::of_b; ++i) {
        of_b[i] = scales_of_b(a, tile, wide_row(group) + BlockScales::b_columns * i) + steps.first * b_step;
      }
    }
    /// Those of the next stage, where there is one.
    TILEWAVE_DEVICE void next(BlockScales& s) {
      if (--left < 0) return;
      TILEWAVE_UNROLL
      for (int i = 0; i < 2 * tiles; ++i) {
        s.a_scale[i] = B::load(of_a[i]);
        of_a[i] += a_step;
      }
      TILEWAVE_UNROLL
      for (int i = 0; i < BlockScales::of_b; ++i) {
        s.b_scale[i] = B::load(of_b[i]);
        of_b[i] += b_step;
      }
    }
  };

  /// Of sums that nothing scales.
  struct NoScales {
    struct Products {
      TILEWAVE_DEVICE static constexpr float of(int, int) { return 1.0f; }
    };
    TILEWAVE_DEVICE static constexpr float of(int, int) { return 1.0f; }
    TILEWAVE_DEVICE static Products products() { return {}; }
  };
  struct NoScaleReader {
    TILEWAVE_DEVICE NoScaleReader(const GemmArgs&, const GemmTile&, int, typename Args::Steps) {}
    TILEWAVE_DEVICE void next(NoScales&) const {}
  };
  using StageScales = std::conditional_t<promoted, NoScales, BlockScales>;
  using StageScaleReader = std::conditional_t<promoted, NoScaleReader, ScaleReader>;

  using Output = GemmTensorOutput<B, S, P, UserEpilogue>;
};

}  // namespace tilewave
