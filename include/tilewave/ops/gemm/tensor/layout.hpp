// SPDX-License-Identifier: MIT
// The layout of GemmTensorKernel: shared memory, arguments, the ring, and which part of a tile each wave group has.
#pragma once

#include "tilewave/arch/backend.hpp"
#include "tilewave/ops/gemm/epilogue.hpp"
#include "tilewave/ops/gemm/policy_status.hpp"
#include "tilewave/ops/gemm/stream.hpp"
#include "tilewave/ops/gemm/tensor/gathered_rows.hpp"
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
  static constexpr int wave_group_waves = 4, wave_group_lanes = wave_group_waves * B::facts.wave_lanes;
  static constexpr int wave_groups = P.wave_groups();
  static constexpr int tall_rows = P.swapped ? P.columns : P.rows, wide_rows = P.swapped ? P.rows : P.columns;
  static constexpr int wave_group_tall = tall_rows / P.waves_rows, wave_group_wide = wide_rows / P.waves_columns;
  static constexpr int tiles = wave_group_tall / 64;
  using TileRows = GemmTileRows<S, P.swapped ? wave_group_tall : wave_group_wide>;  // rows of B
  static constexpr int halves = TileRows::halves;
  static constexpr int b_box = halves == 1 ? P.columns / P.cluster : TileRows::run;  // rows of B that one copy brings
  static constexpr int depth_k = P.depth_bytes / size_of(S.a);                       // elements of K in a stage
  static constexpr bool packed = S.four_bit();                                       // the tall side is int4 codes
  static constexpr bool shuffled = S.weights == GemmWeights::preshuffled && !packed;
  static constexpr bool row_scales = S.scale == Scaling::per_row || (packed && is_fp8(S.a));
  using Codes = GemmInt4Rows<B, S, P, TileRows>;
  using GatheredRows = GemmGatheredRows<B, S, P>;
  /// Rows of A that are gathered come by copies of lanes, and all others by the copy engine.
  static constexpr bool gathered = S.gathered;
  static constexpr int b_box_bytes = packed ? 0 : P.columns * P.depth_bytes;  // in a stage; int4 codes come besides
  static constexpr int boxes = P.depth_bytes / 128, row_chunks = 8;           // boxes of 128 bytes of K in a stage
  static constexpr int box_chunks = 8 * depth_k;  // chunks of a transposed box: 64 contiguous rows by a stage's k
  /// A box of preshuffled B is [16 bytes of k][rows]. Its units are sixteen rows by 16 bytes of k, which products read
  /// as they lie, without a swizzle.
  static constexpr int box_unit = 16 * b_box, strip_bytes = 256;
  static constexpr bool tall_transposed = P.swapped ? transposed_b(S.layout) : transposed_a(S.layout);
  static constexpr bool wide_transposed = P.swapped ? transposed_a(S.layout) : transposed_b(S.layout);
  static constexpr bool block_scales = S.scale == Scaling::per_block;
  /// After each stage of 128 k its sums are added in f32, because the matrix unit keeps fewer bits of fp8 sums.
  static constexpr bool promoted = S.has_sums_to_choose() && S.sums == GemmSums::promoted;
  /// Sums stay in the matrix unit over all of K.
  static constexpr bool plain = !packed && !block_scales && !promoted;
  /// Scales come through shared memory where a lane needs many: block scales of swapped tiles, and scales of int4
  /// weights. Where A's rows are the tall side, a lane needs two scales a tile and loads them itself.
  static constexpr bool shared_scales = (block_scales && P.swapped) || packed;
  static constexpr int scale_waves = 3;  // waves of the fetching wave group that fetch scales; the fourth copies boxes
  /// Rows of the wide side whose sums of one stage fit the registers beside the sums of all stages.
  static constexpr int part_wide = wave_group_wide > 128 ? wave_group_wide / 2 : wave_group_wide;
  /// True if registers hold the sums of all stages and those of two single stages.
  static constexpr bool scaled_ahead =
      wave_groups <= 2 && part_wide == wave_group_wide && (promoted ? tiles * wave_group_wide <= 128 : tiles == 1);

  /// A wave group's sums of one 64-row tile. Element 4 j + 2 h + e of lane l of wave w is tall row 16 w + l / 4 + 8 h,
  /// wide row 8 j + 2 (l % 4) + e.
  using Sum = ProductSum<S.a>;
  using Sums = Vec<Sum, wave_group_wide / 2>;

  /// A box of output is 128 bytes of a row of C by 64 rows (swapped: by all rows of the wave group). A wave group fills
  /// it together. In grouped GEMM, whose groups end anywhere, a wave fills a box of 16 rows alone. Swapped tiles write
  /// f32 without boxes.
  static constexpr bool out_in_boxes = S.out != DType::f32 || !P.swapped;
  static constexpr bool shared_boxes = P.swapped || S.groups == GemmGroups::one;
  static constexpr int out_size = min_of(size_of(S.out), 2);
  static constexpr int box_columns = 128 / (P.swapped ? out_size : size_of(S.out));
  static constexpr int out_rows = P.swapped ? wave_group_wide : shared_boxes ? 64 : 16;
  /// There are boxes for a whole tile (f32: for half of it), so the copy engine writes them during the next tile. Under
  /// pingpong fewer are enough, because the other wave group multiplies meanwhile.
  static constexpr int tile_boxes = tiles * ceil_div(wave_group_wide / halves, 128 / out_size);
  static constexpr int out_boxes = P.swapped ? 1 : P.pingpong ? detail::gemm_pingpong_boxes(S, P) : tile_boxes;
  /// The lanes that fill a box together: those of a wave group, or of one wave.
  static constexpr int box_lanes = shared_boxes ? wave_group_lanes : B::facts.wave_lanes;
  TILEWAVE_DEVICE static int lane_of_box() { return B::block_lane_id() % box_lanes; }
  TILEWAVE_DEVICE static void box_barrier() {
    if constexpr (shared_boxes) {
      B::group_barrier();
    } else {
      B::wave_barrier();
    }
  }
  /// The lanes that send boxes: the first of a wave group with one box, else the first of each wave. Waves that share
  /// boxes take turns.
  static constexpr int senders = shared_boxes && !P.swapped ? wave_group_waves : 1;
  TILEWAVE_DEVICE static bool may_send() { return (!P.swapped || wave_in_wave_group() == 0) && B::elected(); }
  TILEWAVE_DEVICE static int first_sent() { return senders > 1 ? wave_in_wave_group() : 0; }

  struct Args {
    std::int32_t blocks, clusters;
    FastDiv cluster;  // blocks in a cluster
    std::int32_t k_steps;
    std::int32_t split_steps, longer_splits;  // steps of a split; the first ones have one more
    bool wide_stores;                         // the base and strides of out suit the copy engine
    std::int32_t a_box_bytes;                 // in a stage
    GemmArgs gemm;
    UserEpilogue epilogue;
    GemmStream stream;
    Sum* partial;  // stream-K: [partials][P.rows][P.columns]

    /// The steps of a tile's K that a block takes.
    struct Steps {
      std::int32_t first, end;
      std::int32_t partial = -1;  // the number of their partial, where other blocks take other steps
    };
    TILEWAVE_DEVICE Steps steps(int rank) const {
      if (gemm.splits == 1) return {0, k_steps};
      const std::int32_t first = rank * split_steps + min_of(rank, longer_splits);
      return {first, first + split_steps + (rank < longer_splits)};
    }
    TILEWAVE_DEVICE bool clustered() const { return P.cluster > 1 || (P.splits > 1 && gemm.splits > 1); }
  };

  struct Maps {
    typename B::TensorMap a, b[halves], out;
  };

  struct Barriers : RingBarriers<B, P.stages, P.cluster> {
    /// One wave calls this.
    TILEWAVE_DEVICE void begin() {
      RingBarriers<B, P.stages, P.cluster>::begin(gathered || shared_scales ? 2 : 1,
                                                  (P.pingpong ? 1 : wave_groups) * wave_group_waves);
    }
  };

  static constexpr int shared_b_scales = packed          ? Codes::scales_per_stage * P.columns
                                         : shared_scales ? P.columns / 64
                                                         : 1;
  static constexpr bool has_row_pairs = packed && Codes::row_pairs;
  static constexpr bool float_b_scales = shared_scales && !(packed && Codes::scales_in_exponents);
  static constexpr int tall_chunks = tall_rows * (packed ? depth_k / 2 : P.depth_bytes) / 16;
  static constexpr int wide_chunks = wide_rows * boxes * row_chunks;
  struct Shared {
    alignas(1024) Chunk tall[P.stages][tall_chunks];
    alignas(1024) Chunk wide[P.stages][wide_chunks];
    alignas(1024) Chunk out[wave_groups][out_boxes][(P.swapped ? out_rows : 64) * 8];
    Barriers ring;
    float wide_scale[row_scales ? wave_groups : 1][row_scales ? wave_group_wide : 1];
    // The scales of each stage. Block scales are one for each row of A in the tile and one for each 64 rows of B.
    float a_scale[shared_scales && !packed ? P.stages : 1][shared_scales && !packed ? P.rows : 1];
    alignas(16) float b_scale[float_b_scales ? P.stages : 1][float_b_scales ? shared_b_scales : 1];
    alignas(16) std::uint32_t row_pairs[has_row_pairs ? P.stages : 1][has_row_pairs ? shared_b_scales : 1];
  };

  /// During the products of grouped GEMM a wave keeps its tile and the state of its queue in shared memory: registers
  /// are full of sums and scales.
  static constexpr bool saves_tile =
      (block_scales || (promoted && !P.swapped)) && !shared_scales && S.groups != GemmGroups::one;

  using Ring = RingSlot<P.stages>;

  /// These do not use wave_id(), which all lanes of a wave must call together.
  TILEWAVE_DEVICE static int lane_in_wave_group() { return B::block_lane_id() % wave_group_lanes; }
  TILEWAVE_DEVICE static int wave_in_wave_group() { return lane_in_wave_group() / B::facts.wave_lanes; }

  TILEWAVE_DEVICE static int tall_row(int wave_group) {
    return P.pingpong ? 0 : wave_group / P.waves_columns * wave_group_tall;
  }
  TILEWAVE_DEVICE static int wide_row(int wave_group) {
    return P.pingpong ? 0 : wave_group % P.waves_columns * wave_group_wide;
  }

  static constexpr bool copies_b_early = !gathered && S.groups == GemmGroups::one;
  enum class Operands { both, only_a, only_b };
  /// Starts a stage's copies into a slot, of both operands or of one. All lanes of the fetching wave call this.
  template <Operands of = Operands::both>
  TILEWAVE_DEVICE static void copy_stage(const Args& a, const Maps& maps, const GemmTile& tile, std::int32_t step,
                                         int rank, Shared& shared, int slot) {
    auto* const full = &shared.ring.full[slot];
    if constexpr (packed) {
      if constexpr (of != Operands::only_a) {
        B::mbarrier_expect(full, b_box_bytes + a.a_box_bytes + Codes::strips * Codes::strip_chunks * 16);
        Codes::copy(a.gemm, maps.b[0], tile, step, shared.tall[slot], full);
      }
      if (of != Operands::only_b && !gathered && B::lane_id() < boxes) {
        Chunk* const box = shared.wide[slot] + B::lane_id() * (wide_rows * row_chunks);
        const std::int32_t k = step * depth_k + B::lane_id() * (depth_k / boxes);
        B::copy_tensor(box, maps.a, k, tile.first_row, tile.a_layer, full);
      }
    } else {
      if constexpr (of != Operands::only_a) B::mbarrier_expect(full, b_box_bytes + a.a_box_bytes);
      if (!B::elected()) return;
      if constexpr (of != Operands::only_b) copy_boxes_of_a(maps, tile, step, shared, slot);
      if constexpr (of != Operands::only_a) copy_boxes_of_b(a, maps, tile, step, rank, shared, slot);
    }
  }
  /// Fills a stage with zeros. All lanes of the fetching wave call this.
  TILEWAVE_DEVICE static void clear_stage(Shared& shared, int slot) {
    for (int i = B::lane_id(); i < tall_chunks; i += B::facts.wave_lanes) shared.tall[slot][i] = {};
    for (int i = B::lane_id(); i < wide_chunks; i += B::facts.wave_lanes) shared.wide[slot][i] = {};
    B::shared_written();
    B::mbarrier_arrive(&shared.ring.full[slot]);
  }
  TILEWAVE_DEVICE static void copy_boxes_of_a(const Maps& maps, const GemmTile& tile, std::int32_t step, Shared& shared,
                                              int slot) {
    const std::int32_t k = step * depth_k;
    auto* const full = &shared.ring.full[slot];
    Chunk* const of_a = P.swapped ? shared.wide[slot] : shared.tall[slot];
    if constexpr (transposed_a(S.layout)) {
      copy_transposed<P.rows>(of_a, maps.a, k, tile.first_row, tile.a_layer, full);
    } else if constexpr (!gathered) {
      B::copy_tensor(of_a, maps.a, k, tile.first_row, tile.a_layer, full);
    }
  }
  TILEWAVE_DEVICE static void copy_boxes_of_b(const Args& a, const Maps& maps, const GemmTile& tile, std::int32_t step,
                                              int rank, Shared& shared, int slot) {
    const std::int32_t k = step * depth_k;
    auto* const full = &shared.ring.full[slot];
    Chunk* const of_b = P.swapped ? shared.tall[slot] : shared.wide[slot];
    if constexpr (shuffled) {
      TILEWAVE_UNROLL
      for (int row = 0; row < P.columns; row += b_box) {
        const std::int32_t column = tile.first_column + TileRows::column(row);
        const std::int32_t strip =
            tile.layer * a.gemm.b_layer_strips + gemm_row_of_b<S>(a.gemm, column, TileRows::half(row)) / 16;
        B::copy_tensor(of_b + row * row_chunks, maps.b[0], 0, strip, step * (P.depth_bytes / 16), full);
      }
    } else if constexpr (transposed_b(S.layout)) {
      copy_transposed<P.columns>(of_b, maps.b[0], k, tile.first_column, tile.layer, full);
    } else if constexpr (P.cluster == 1) {
      TILEWAVE_UNROLL
      for (int row = 0; row < P.columns; row += b_box) {
        B::copy_tensor(of_b + row * row_chunks, maps.b[TileRows::half(row)], k,
                       tile.first_column + TileRows::column(row), tile.layer, full);
      }
    } else {
      B::copy_tensor(of_b + rank * b_box * row_chunks, maps.b[0], k, tile.first_column + rank * b_box, tile.layer, full,
                     (1u << P.cluster) - 1);
    }
  }

  template <int rows>
  TILEWAVE_DEVICE static void copy_transposed(Chunk* to, const typename B::TensorMap& map, std::int32_t k,
                                              std::int32_t first_row, std::int32_t layer, typename B::Mbarrier* full) {
    TILEWAVE_UNROLL
    for (int i = 0; i < rows / 64; ++i) B::copy_tensor(to + i * box_chunks, map, first_row + 64 * i, k, layer, full);
  }

  /// Preshuffled B as the tensor map sees it: the strips of all layers, each 256 bytes for 16 bytes of k.
  static TensorShape shuffled_shape(const void* b, std::int64_t k_bytes, std::int64_t strips_of_all) {
    return {b,           DType::i8,  strip_bytes,        strips_of_all, k_bytes / 16, 16 * k_bytes,
            strip_bytes, b_box / 16, P.depth_bytes / 16, true};
  }

  /// An operand of a product: rows of a stage from `row` on, by k slice `k_slice` of 32 bytes.
  template <bool tall>
  TILEWAVE_DEVICE static auto operand(const Chunk* stage, int row, int k_slice) {
    if constexpr (shuffled && tall == P.swapped) {
      const int offset = row / b_box * (b_box * P.depth_bytes) + row % b_box * 16 + k_slice * 2 * box_unit;
      return GroupOperand{stage, 128, box_unit, offset};
    } else if constexpr (tall ? tall_transposed : wide_transposed) {
      return TransposedOperand{stage, depth_k, row, k_slice};
    } else {
      return SwizzledOperand{stage, row, k_slice};
    }
  }

  TILEWAVE_DEVICE static void clear(Sums (&sums)[tiles]) {
    TILEWAVE_UNROLL
    for (int t = 0; t < tiles; ++t) sums[t] = {};
  }

  /// The scales of 64 rows of B, from row r of the tile on, for the first 128 k.
  TILEWAVE_DEVICE static const float* scales_of_b(const GemmArgs& a, const GemmTile& tile, int r) {
    const std::int32_t column = min_of(tile.first_column + TileRows::column(r), a.n - 1);
    const std::int32_t row = gemm_row_of_b<S>(a, column, TileRows::half(r));
    return a.b_scale + tile.layer * a.b_scale_layer_stride + B::divergent(row / gemm_scale_block) * a.b_scale_stride;
  }

  /// A wave's registers for the block scales of one stage, between device and shared memory.
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
        of_a[i] = B::load(from + gemm_row_of_a<B, S>(a, max_of(row, 0)) * a.a_scale_stride);
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

  /// The block scales of a lane's sums of one stage.
  struct BlockScales {
    // A has one scale for each of the lane's two rows of a tile, or (swapped) for each of its columns, in pairs. B has
    // one for each 64 rows where a tile may begin in the middle of a block of 128.
    static constexpr int of_a = P.swapped ? wave_group_wide / 4 : 2 * tiles;
    static constexpr bool of_blocks = !P.swapped && !S.gated && wave_group_wide % gemm_scale_block == 0;
    static constexpr int b_columns = of_blocks ? gemm_scale_block : 64;
    static constexpr int of_b = ceil_div(P.swapped ? wave_group_tall : wave_group_wide, b_columns);
    Vec<float, of_a> a_scale;
    Vec<float, of_b> b_scale;

    TILEWAVE_DEVICE void read(const Shared& shared, int slot, int wave_group) {
      const int row = wide_row(wave_group) + 2 * (B::lane_id() % 4);
      TILEWAVE_UNROLL
      for (int i = 0; i < of_a; ++i) a_scale[i] = shared.a_scale[slot][row + 8 * (i / 2) + i % 2];
      TILEWAVE_UNROLL
      for (int i = 0; i < of_b; ++i) b_scale[i] = shared.b_scale[slot][tall_row(wave_group) / 64 + i];
    }
    /// The scale of element i of tile t.
    TILEWAVE_DEVICE float of(int t, int i) const {
      if constexpr (P.swapped) return a_scale[i / 4 * 2 + i % 2] * b_scale[t];
      return a_scale[2 * t + i / 2 % 2] * b_scale[i / 4 * 8 / b_columns];
    }

    /// The products of A's and B's scales.
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

  /// Reads the scales of a lane's two rows of each tile, and of its columns, from device memory, stage by stage.
  struct ScaleReader {
    Vec<const float*, 2 * tiles> of_a;
    Vec<const float*, BlockScales::of_b> of_b;
    std::int64_t a_step, b_step;
    std::int32_t left;

    TILEWAVE_DEVICE ScaleReader(const GemmArgs& a, const GemmTile& tile, int wave_group, typename Args::Steps steps)
        : a_step(a.a_scale_k_stride), b_step(a.b_scale_k_stride), left(steps.end - steps.first) {
      const float* const first_a = a.a_scale + tile.a_layer * a.a_scale_layer_stride + steps.first * a_step;
      TILEWAVE_UNROLL
      for (int i = 0; i < 2 * tiles; ++i) {
        const std::int32_t row = tile.first_row + tall_row(wave_group) + 64 * (i / 2) + 16 * wave_in_wave_group() +
                                 B::lane_id() / 4 + 8 * (i % 2);
        of_a[i] = first_a + gemm_row_of_a<B, S>(a, min_of(row, tile.row_end - 1)) * a.a_scale_stride;
      }
      TILEWAVE_UNROLL
      for (int i = 0; i < BlockScales::of_b; ++i) {
        of_b[i] = scales_of_b(a, tile, wide_row(wave_group) + BlockScales::b_columns * i) + steps.first * b_step;
      }
    }
    /// Loads the scales of the next stage, where there is one.
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

  /// The scales of sums that are promoted without a scale.
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
