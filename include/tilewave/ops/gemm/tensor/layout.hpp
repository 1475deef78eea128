// SPDX-License-Identifier: MIT
// The layout of GemmTensorKernel: shared memory, arguments, the ring, and which part of a tile each wave group has.
#pragma once

#include "tilewave/arch/backend.hpp"
#include "tilewave/ops/gemm/epilogue.hpp"
#include "tilewave/ops/gemm/policy_status.hpp"
#include "tilewave/ops/gemm/stream.hpp"
#include "tilewave/ops/gemm/tensor/block_scales.hpp"
#include "tilewave/ops/gemm/tensor/cache_output.hpp"
#include "tilewave/ops/gemm/tensor/fp4_fragments.hpp"
#include "tilewave/ops/gemm/tensor/gathered_rows.hpp"
#include "tilewave/ops/gemm/tensor/row_norm.hpp"
#include "tilewave/tile/ring.hpp"

namespace tilewave {

template <class B, GemmSpec S, GemmPolicy P, class Epilogue>
class GemmTensorOutput;
template <class B, GemmSpec S, GemmPolicy P, class Epilogue>
class GemmLateOutput;

template <class B, GemmSpec S, GemmPolicy P, class UserEpilogue>
struct GemmTensorLayout {
  static_assert(gemm_policy_status(B::facts.id, S, P).ok(),
                "a law of policies is broken: gemm_policy_status(arch, spec, policy).reason says which");
  using Backend = B;
  static constexpr int wave_group_waves = 4, wave_group_lanes = wave_group_waves * B::facts.wave_lanes;
  static constexpr int stage_groups = P.pingpong ? 1 : P.waves();             // wave groups that multiply a stage
  static constexpr int wave_groups = P.wave_groups(), sharers = P.sharers();  // sharers: of boxes, in a cluster
  static constexpr int tall_rows = P.swapped ? P.columns : P.rows, wide_rows = P.swapped ? P.rows : P.columns;
  static constexpr int wave_group_tall = tall_rows / P.waves_rows, wave_group_wide = wide_rows / P.waves_columns;
  static constexpr int tiles = wave_group_tall / 64;
  using TileRows = GemmTileRows<S, P.swapped ? wave_group_tall : wave_group_wide>;  // rows of B
  static constexpr int halves = TileRows::halves;
  /// Gated: a lane's two rows of a tall tile are a gate and its up. Otherwise gates and ups are tiles of their own.
  static constexpr bool pairs = detail::gemm_pairs_halves(S, P);
  /// The sums that a lane has of `wide` rows of the wide side by the columns of C of a tall tile.
  TILEWAVE_HOST_DEVICE static constexpr int sums_of(int wide) { return wide / (pairs ? 4 : 2); }
  static constexpr int b_box = halves == 1 ? P.columns / P.cluster : TileRows::run;  // rows of B that one copy brings
  static constexpr int depth_k = P.depth_bytes / size_of(S.a);                       // elements of K in a stage
  static constexpr bool packed = S.four_bit();                                       // the tall side is int4 codes
  static constexpr bool shuffled = S.weights == GemmWeights::preshuffled && !packed;
  static constexpr bool row_scales = S.scale == Scaling::per_row || (packed && is_fp8(S.a));
  static constexpr bool fragments = S.weights == GemmWeights::fragments;
  using Codes = std::conditional_t<fragments, GemmFp4Fragments<B, S, P, TileRows>, GemmInt4Rows<B, S, P, TileRows>>;
  using GatheredRows = GemmGatheredRows<B, S, P>;
  /// Rows of A that are gathered come by copies of lanes, and all others by the copy engine.
  static constexpr bool gathered = S.gathered;
  static constexpr int copies_arrivals = gathered ? B::copies_arrivals : 0;
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
  /// weights. Where A's rows are the tall side, a lane needs two scales a tile and loads them itself, but for gates and
  /// ups of groups: pointers to their scales and two stages of scales would spill beside the sums in 128 x 256.
  static constexpr bool shared_scales = detail::gemm_shares_block_scales(S, P) || packed;
  /// Waves of the fetching wave group that fetch scales in turns; another copies boxes. A wave comes to a slot only
  /// when all rounds of it but the last are over, since the parity of a barrier does not tell more. Three waves know it
  /// from the slot before, where all groups take all stages. Groups that share K release stages out of order, and each
  /// wave follows whole groups.
  static constexpr int scale_waves = P.waves_k > 1 ? 2 : 3;
  /// Rows of the wide side whose sums of one stage fit the registers beside the sums of all stages.
  static constexpr int part_wide = detail::gemm_part_wide(wave_group_wide);
  /// True if registers hold the sums of all stages and those of two single stages.
  static constexpr bool scaled_ahead =
      wave_groups <= 2 && wave_group_wide <= 128 && (promoted ? tiles * wave_group_wide <= 128 : tiles == 1);

  /// Sums come a part of a stage at a time, lanes load block scales themselves, and they know the next tile by a few
  /// operations: see GemmScaledTiles. In groups the search for it made the loop longer, by more than it saved
  /// (docs/notebook/2026-11-28-gemm-scales-ahead.md).
  static constexpr bool scales_of_next_tile = block_scales && !shared_scales && !scaled_ahead && !P.swapped &&
                                              S.groups == GemmGroups::one && !S.gated && P.splits == 1;

  /// Tiles of groups are as high as the rows that they have ask for.
  static constexpr detail::GemmHeights heights = detail::gemm_heights(S, P);
  /// Rows of A may be divided by their root mean squares, which a wave of its own finds.
  static constexpr bool norms = detail::gemm_serves_norm(S, P);
  static constexpr bool writes_squares = detail::gemm_writes_squares(S, P), writes_cache = writes_squares;
  using RowNorm = GemmRowNorm<GemmTensorLayout, S, P>;

  /// A wave group's sums of one 64-row tile. Element 4 j + 2 h + e of lane l of wave w is tall row 16 w + l / 4 + 8 h,
  /// wide row 8 j + 2 (l % 4) + e.
  using Sum = ProductSum<S.a>;
  using Sums = Vec<Sum, wave_group_wide / 2>;

  /// A box of output is 128 bytes of a row of C by 64 rows (swapped: by all rows of the wave group). A wave group fills
  /// it together. Where a group ends within it, lanes write its rows, not the copy engine. Swapped tiles write f32
  /// without boxes.
  static constexpr bool out_in_boxes = S.out != DType::f32 || !P.swapped;
  static constexpr int out_size = min_of(size_of(S.out), 2);
  static constexpr int box_columns = 128 / (P.swapped ? out_size : size_of(S.out));
  static constexpr int out_rows = P.swapped ? wave_group_wide : 64;
  /// There are boxes for a whole tile (f32: for half of it), so the copy engine writes them during the next tile. Under
  /// pingpong fewer are enough, because the other wave group multiplies meanwhile, and P.late writes box by box.
  static constexpr int tile_boxes = tiles * ceil_div(wave_group_wide / halves, 128 / out_size);
  static constexpr int out_boxes = P.swapped    ? 1
                                   : P.pingpong ? detail::gemm_pingpong_boxes(S, P)
                                   : P.late     ? min_of(gemm_late_boxes, tile_boxes)
                                                : tile_boxes;
  /// The lanes that send boxes: the first of a wave group with one box, else the first of each wave. Waves take turns.
  static constexpr int senders = P.swapped ? 1 : wave_group_waves;
  TILEWAVE_DEVICE static bool may_send() {
    return B::block_lane_id() % (P.swapped ? wave_group_lanes : B::facts.wave_lanes) == 0;
  }
  TILEWAVE_DEVICE static int first_sent() { return senders > 1 ? wave_in_wave_group() : 0; }

  struct Args {
    std::int32_t blocks, clusters;
    FastDiv cluster;  // blocks in a cluster
    std::int32_t k_steps;
    std::int32_t split_steps, longer_splits;  // steps of a split; the first ones have one more
    bool wide_stores;                         // the base and strides of out suit the copy engine
    bool normalises;                          // GemmProblem::rms_norm
    bool b_once;                              // see streams_b
    std::int32_t a_box_bytes;                 // in a stage
    GemmArgs gemm;
    UserEpilogue epilogue;
    GemmStream stream;
    Sum* partial;  // stream-K: [partials][P.rows][P.columns]
    float norm_eps, inverse_k;
    const float* a_squares;  // GemmProblem: [m, k / 64], or null
    float* out_squares;      // [m, n / 64], or null
    [[no_unique_address]] std::conditional_t<writes_cache, GemmCacheArgs, GemmNoCacheArgs> cache;

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
    TILEWAVE_DEVICE bool blocks_share_k() const { return P.splits > 1 && gemm.splits > 1; }
    TILEWAVE_DEVICE bool merges() const { return P.waves_k > 1 || blocks_share_k(); }  // sums of those who share K
    TILEWAVE_DEVICE bool clustered() const { return sharers > 1 || blocks_share_k(); }
  };

  struct Maps {
    typename B::TensorMap a, b[halves], out;
  };

  struct Barriers : RingBarriers<B, P.stages, sharers> {
    /// One wave calls this.
    TILEWAVE_DEVICE void begin() {
      RingBarriers<B, P.stages, sharers>::begin((gathered || shared_scales ? 2 : 1) + copies_arrivals,
                                                stage_groups * wave_group_waves);
    }
  };

  /// True if two wave groups beside each other share the 128 columns of an output scale. Each tells the other the
  /// largest magnitude that it has of every row.
  static constexpr bool shares_out_groups =
      S.out_scale == Scaling::per_group && wave_group_wide / halves < scale_group && !P.swapped;

  static constexpr int shared_b_scales = packed ? Codes::scales_per_stage * P.columns * (Codes::rescaled ? 2 : 1)
                                         : shared_scales ? P.columns / 64
                                                         : 1;
  static constexpr bool has_row_pairs = packed && Codes::row_pairs;
  static constexpr bool float_b_scales = shared_scales && !(packed && (Codes::scales_in_exponents || Codes::rounded));
  static constexpr bool merges_all = P.waves_k > 1;  // nothing leaves by boxes
  static constexpr int tall_chunks = tall_rows * (packed ? depth_k / 2 : P.depth_bytes) / 16;
  static constexpr int wide_chunks = wide_rows * boxes * row_chunks;
  struct Shared {
    alignas(1024) Chunk tall[P.stages][tall_chunks];
    alignas(1024) Chunk wide[P.stages][wide_chunks];
    alignas(1024) Chunk out[merges_all ? 1 : wave_groups][out_boxes][merges_all ? 64 : (P.swapped ? out_rows : 64) * 8];
    Barriers ring;
    float wide_scale[row_scales ? wave_groups : 1][row_scales ? wave_group_wide : 1];
    [[no_unique_address]] std::conditional_t<norms, typename RowNorm::Shared, typename RowNorm::NoShared> norm;
    // The scales of each stage. Block scales are one for each row of A in the tile and one for each 64 rows of B.
    float a_scale[shared_scales && !packed ? P.stages : 1][shared_scales && !packed ? P.rows : 1];
    alignas(16) float b_scale[float_b_scales ? P.stages : 1][float_b_scales ? shared_b_scales : 1];
    // Fragments have a flag behind those of a stage, see GemmFp4Fragments.
    alignas(16) std::uint32_t
        row_pairs[has_row_pairs ? P.stages : 1][has_row_pairs ? shared_b_scales + (fragments ? 4 : 0) : 1];
  };

  /// In grouped GEMM with scaled or promoted sums one wave finds the tiles: registers of the others are full.
  static constexpr bool posts_tiles = detail::gemm_posts_tiles(S, P);
  static constexpr int readers_of_tiles =
      wave_groups * wave_group_waves + (gathered || shared_scales ? scale_waves : 0);

  /// Groups end anywhere, so wave groups below each other may have no row of the last tile. One that multiplies alone
  /// takes longer where it reads scales between its products, and of two wave groups also where K is long
  /// (docs/notebook/2026-11-28-groups.md).
  static constexpr bool leaves_rows_out =
      S.groups != GemmGroups::one && !P.swapped && P.waves_rows > 1 && !(block_scales && shared_scales);
  static constexpr int most_steps_left_out = P.waves_rows > 2 ? 0x7fffffff : 4096 / depth_k;

  using Ring = RingSlot<P.stages>;

  /// These do not use wave_id(), which all lanes of a wave must call together.
  TILEWAVE_DEVICE static int lane_in_wave_group() { return B::block_lane_id() % wave_group_lanes; }
  TILEWAVE_DEVICE static int wave_in_wave_group() { return lane_in_wave_group() / B::facts.wave_lanes; }

  TILEWAVE_DEVICE static int tall_row(int wave_group) {
    const int of_stage = P.waves_k > 1 ? wave_group % stage_groups : wave_group;
    return P.pingpong ? 0 : of_stage / P.waves_columns * wave_group_tall;
  }
  TILEWAVE_DEVICE static int wide_row(int wave_group) {
    return P.pingpong ? 0 : wave_group % P.waves_columns * wave_group_wide;
  }

  /// Waits for a stage. Those who multiply show the unit what lanes copied: who fetches would wait for all its copies.
  TILEWAVE_DEVICE static void wait_full(Shared& shared, const Ring& ring) {
    B::mbarrier_wait(&shared.ring.full[ring.slot], ring.round);
    if constexpr (gathered) B::shared_written();
  }

  /// Stages whose copies begin together. Groups of few rows read all of their weights from memory, 128 bytes of each
  /// row a stage, and 256 bytes of a row at a time take up to 1 % less. A ring of few stages would run empty meanwhile
  /// (docs/notebook/2026-11-28-moe-stages-in-pairs.md).
  static constexpr int stages_at_once =
      S.groups == GemmGroups::contiguous && P.swapped && !packed && P.stages >= 9 ? 2 : 1;

  static constexpr bool copies_b_early = !gathered && S.groups == GemmGroups::one;
  /// Weights of 16 bits in a chain of products, where all rows of A are one tile: they are read once, and what the next
  /// kernels read stays in L2 (docs/notebook/2026-11-28-step-boxes.md).
  static constexpr bool streams_b = copies_b_early && plain && size_of(S.a) == 2 && P.rows <= 64 && P.cluster == 1;
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
      if constexpr (of != Operands::only_b) copy_boxes_of_a(maps, tile, step, rank, shared, slot);
      if constexpr (of != Operands::only_a) copy_boxes_of_b(a, maps, tile, step, rank, shared, slot);
    }
  }
  /// Fills a stage with zeros. All lanes of the fetching wave call this.
  TILEWAVE_DEVICE static void clear_stage(Shared& shared, int slot) {
    TILEWAVE_ROLL
    for (int i = B::lane_id(); i < tall_chunks; i += B::facts.wave_lanes) shared.tall[slot][i] = {};
    TILEWAVE_ROLL
    for (int i = B::lane_id(); i < wide_chunks; i += B::facts.wave_lanes) shared.wide[slot][i] = {};
    B::shared_written();
    B::mbarrier_arrive(&shared.ring.full[slot]);
  }
  TILEWAVE_DEVICE static void copy_boxes_of_a(const Maps& maps, const GemmTile& tile, std::int32_t step, int rank,
                                              Shared& shared, int slot) {
    const std::int32_t k = step * depth_k;
    auto* const full = &shared.ring.full[slot];
    Chunk* const of_a = P.swapped ? shared.wide[slot] : shared.tall[slot];
    if constexpr (transposed_a(S.layout)) {
      copy_transposed<P.rows>(of_a, maps.a, k, tile.first_row, tile.a_layer, full);
    } else if constexpr (P.cluster_columns > 1) {
      constexpr int part = P.rows / P.cluster_columns;
      B::copy_tensor(of_a + rank * part * row_chunks, maps.a, k, tile.first_row + rank * part, tile.a_layer, full,
                     (1u << P.cluster_columns) - 1);
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
        const auto& map = maps.b[TileRows::half(row)];
        const std::int32_t column = tile.first_column + TileRows::column(row);
        if (streams_b && a.b_once) {
          B::copy_tensor_once(of_b + row * row_chunks, map, k, column, tile.layer, full);
        } else {
          B::copy_tensor(of_b + row * row_chunks, map, k, column, tile.layer, full);
        }
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

  using BlockScales = GemmBlockScales<GemmTensorLayout, S, P>;
  using FetchedScales =
      std::conditional_t<packed, typename Codes::FetchedScales, GemmFetchedBlockScales<GemmTensorLayout, P>>;
  using NoScaleReader = GemmNoScaleReader;
  using StageScales = std::conditional_t<promoted, GemmNoScales, BlockScales>;
  using StageScaleReader = std::conditional_t<promoted, NoScaleReader, GemmScaleReader<GemmTensorLayout, S>>;

  using Output =
      std::conditional_t<P.late, GemmLateOutput<B, S, P, UserEpilogue>, GemmTensorOutput<B, S, P, UserEpilogue>>;
};

}  // namespace tilewave
