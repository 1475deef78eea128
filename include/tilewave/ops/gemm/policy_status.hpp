// SPDX-License-Identifier: MIT
// The laws of a GEMM policy: gemm_policy_status says whether a chip's kernels can be built for it, and if not, why.
#pragma once

#include "tilewave/arch/facts.hpp"
#include "tilewave/core/math.hpp"
#include "tilewave/core/status.hpp"
#include "tilewave/ops/gemm/args.hpp"
#include "tilewave/ops/gemm/check_spec.hpp"
#include "tilewave/ops/gemm/few_rows/policy_status.hpp"
#include "tilewave/ops/gemm/heights.hpp"
#include "tilewave/ops/gemm/late_status.hpp"
#include "tilewave/ops/gemm/norm_status.hpp"
#include "tilewave/ops/gemm/shared_k_status.hpp"
#include "tilewave/tile/element.hpp"

namespace tilewave {

namespace detail {

/// The laws of every policy.
constexpr Status gemm_policy_numbers(const GemmPolicy& p) {
  if (!in_range(p.path, GemmPath::weights_in_registers)) return illegal_policy("path is none of GemmPath");
  if (p.rows < 1 || p.columns < 1) return illegal_policy("a tile has at least one row and one column");
  if (p.depth_bytes < 1 || p.stages < 1) return illegal_policy("depth_bytes and stages must be positive");
  if (p.waves_rows < 1 || p.waves_columns < 1 || p.waves_k < 1)
    return illegal_policy("waves_rows, waves_columns and waves_k must be positive");
  if (p.cluster < 1 || p.cluster_columns < 1 || p.splits < 1)
    return illegal_policy("cluster, cluster_columns and splits must be positive");
  if (p.waves_per_simd < 1) return illegal_policy("waves_per_simd must be positive");
  if (p.rows > 1024 || p.columns > 1024 || p.stages > 32 || p.depth_bytes > 1024)
    return illegal_policy("rows and columns go up to 1024, depth_bytes to 1024, stages to 32");
  for (const int number :
       {p.waves_rows, p.waves_columns, p.waves_k, p.cluster, p.cluster_columns, p.splits, p.waves_per_simd}) {
    if (number > 1024) return illegal_policy("waves, clusters and splits go up to 1024");  // so products do not wrap
  }
  return {};
}

/// The boxes of output of a wave group under pingpong: those of its tile, as far as the ring leaves room.
constexpr int gemm_pingpong_boxes(const GemmSpec& s, const GemmPolicy& p) {
  const int tile_boxes = p.rows / 64 * ceil_div(p.columns / (s.gated ? 2 : 1), 128 / min_of(size_of(s.out), 2));
  const int ring = p.stages * (p.rows + p.columns) * p.depth_bytes, box = 64 * 128, small = 4096;
  return max_of(1, min_of(tile_boxes, (sm90_facts.lds_bytes - ring - small) / (p.wave_groups() * box)));
}

/// Returns the rows of the wide side whose sums of one stage a wave group keeps beside its sums of all stages: all of
/// its part, or half of it where registers do not hold both.
constexpr int gemm_part_wide(int group_wide) { return group_wide > 192 ? group_wide / 2 : group_wide; }

/// Says whether block scales come through shared memory, see GemmTensorLayout::shared_scales.
constexpr bool gemm_shares_block_scales(const GemmSpec& s, const GemmPolicy& p) {
  return s.scale == Scaling::per_block && (p.swapped || (s.gated && s.groups != GemmGroups::one));
}

/// Says whether an entry keeps a row's bits whatever rows are beside it, as batch-invariant calls ask. Errors:
/// bad_value with the reason.
constexpr Status gemm_batch_invariance(const GemmSpec& s, const GemmPolicy& p) {
  if (p.stream) return illegal_policy("a batch-invariant product is not cut by stream-K");
  if (gemm_height_changes_bits(s, p))
    return illegal_policy("a batch-invariant product has the same instructions for groups of few rows and of many");
  return {};
}

/// Says whether one wave finds the tiles for all others, see GemmTensorLayout::posts_tiles.
constexpr bool gemm_posts_tiles(const GemmSpec& s, const GemmPolicy& p) {
  const bool promoted = s.has_sums_to_choose() && s.sums == GemmSums::promoted;
  return (s.scale == Scaling::per_block || promoted) && !p.swapped && s.groups != GemmGroups::one;
}

/// Returns the bytes of shared memory that GemmTensorLayout takes. A test compares it with those of all entries.
constexpr int gemm_tensor_shared_bytes(const GemmSpec& s, const GemmPolicy& p) {
  const bool int4 = s.four_bit();
  const int tall = p.swapped ? p.columns : p.rows, wide = p.swapped ? p.rows : p.columns;
  const int group_wide = wide / p.waves_columns, wave_groups = p.wave_groups(), halves = s.gated ? 2 : 1;
  const bool row_scales = s.scale == Scaling::per_row || (int4 && is_fp8(s.a)),
             shared_scales = gemm_shares_block_scales(s, p) || int4;
  const int depth_k = p.depth_bytes / size_of(s.a), out_size = min_of(size_of(s.out), 2);
  const auto aligned = [](int bytes) { return align_up(bytes, 1024); };
  const int tile_boxes = tall / p.waves_rows / 64 * ceil_div(group_wide / halves, 128 / out_size);
  const int boxes = p.swapped    ? 1
                    : p.pingpong ? gemm_pingpong_boxes(s, p)
                    : p.late     ? min_of(gemm_late_boxes, tile_boxes)
                                 : tile_boxes;
  const int out = p.waves_k > 1 ? 1024 : wave_groups * boxes * (p.swapped ? group_wide : 16 * 4) * 128;
  const bool rescaled = gemm_rescales_sums(s, p);
  const int b_scales = int4            ? max_of(1, depth_k / s.scale_k) * p.columns * (rescaled ? 2 : 1)
                       : shared_scales ? p.columns / 64
                                       : 1;
  int small = 2 * 8 * p.stages + 4 * (row_scales ? wave_groups * group_wide : 1);
  if (gemm_serves_norm(s, p)) small = align_up(small, 8) + 4 * p.rows + 16;
  small += 4 * (shared_scales && !int4 ? p.stages * p.rows : 1);
  const bool fragments = s.weights == GemmWeights::fragments;
  small = align_up(small, 16) + 4 * (shared_scales && !s.scales_in_weights() ? p.stages * b_scales : 1);
  small = align_up(small, 16) +
          4 * (s.zero_points || s.scales_in_weights() || rescaled ? p.stages * (b_scales + (fragments ? 4 : 0)) : 1);
  const int tall_bytes = tall * (int4 ? depth_k / 2 : p.depth_bytes);
  small += p.pingpong ? align_up(small, 8) - small + 2 * 8 : 0;                              // GemmTensorKernel::Turns
  if (s.out_scale == Scaling::per_group && !p.swapped && group_wide / halves < scale_group)  // L::OutGroups
    small = align_up(small, 8) + 8 + 2 * wave_groups * 64 * 4;
  if (gemm_posts_tiles(s, p)) small = align_up(small, 8) + 2 * 2 * 8 + 2 * 20;  // GemmTileBoard
  return aligned(aligned(p.stages * tall_bytes) + aligned(p.stages * wide * p.depth_bytes) + out + small);
}

/// The laws of how wave groups share a tile in GemmTensorLayout.
constexpr Status gemm_tensor_tile(const GemmSpec& s, const GemmPolicy& p) {
  const int tall = p.swapped ? p.columns : p.rows, wide = p.swapped ? p.rows : p.columns;
  if (tall % (64 * p.waves_rows) != 0)
    return illegal_policy(p.swapped ? "swapped: columns are a multiple of 64 for each wave group along waves_rows"
                                    : "rows are a multiple of 64 for each wave group along waves_rows");
  if (wide % (8 * p.waves_columns) != 0)
    return illegal_policy(p.swapped ? "swapped: rows are a multiple of 8 for each wave group along waves_columns"
                                    : "columns are a multiple of 8 for each wave group along waves_columns");
  if (tall > 256 || wide > 256) return illegal_policy("a tensor copy brings at most 256 rows of an operand");
  const bool promoted = s.has_sums_to_choose() && s.sums == GemmSums::promoted;
  if (p.pingpong && (s.scale == Scaling::per_block || promoted))
    return illegal_policy("pingpong: sums stay in the matrix unit, since only one wave group multiplies at a time");
  if (p.pingpong && (p.waves() != 1 || p.waves_per_simd != 1 || p.swapped || p.splits > 1 || p.stream || s.four_bit()))
    return illegal_policy(
        "pingpong: a wave group has a whole tile, not swapped, and K is not shared; weights are not int4");
  if (const Status status = gemm_late_status(s, p); !status.ok()) return status;
  if (p.waves() > 4 || p.wave_groups() > 4)
    return illegal_policy("the registers of an SM suffice for at most four wave groups of a block");
  if ((p.wave_groups() + 1) * 128 * p.waves_per_simd > 2048)
    return illegal_policy("an SM holds at most 2048 lanes: fewer wave groups, or fewer blocks (waves_per_simd)");
  const int group_wide = wide / p.waves_columns, tiles = tall / p.waves_rows / 64;
  const int registers = p.waves_per_simd > 1 || p.wave_groups() == 1 || p.pingpong ? 240
                        : p.wave_groups() == 2                                     ? 232
                        : p.wave_groups() == 3                                     ? 160
                                                                                   : 112;
  const int waiting = p.late ? tiles * group_wide / 4 / (s.gated ? 2 : 1) : 0;
  if (tiles * group_wide / 2 + waiting >= registers)
    return illegal_policy("a lane's sums of its wave group's part of the tile must fit its registers");
  const bool rescaled = gemm_rescales_sums(s, p), rounded = s.rounds_weights();
  const bool half_stage = p.depth_bytes == 128 && (s.scales_in_weights() || rescaled);
  if (s.four_bit() ? !half_stage && p.depth_bytes != 128 * size_of(s.a) : p.depth_bytes != 128)
    return illegal_policy(s.four_bit()
                              ? "a stage of int4 weights is 128 values of k: depth_bytes is 128 times A's element"
                              : "a stage is one box of the tensor copy engine: depth_bytes is 128");
  if ((rescaled || rounded) && (tiles != 1 || (half_stage && p.splits > 1) || s.scale_k < 64))
    return illegal_policy("int4 sums in the unit: 64 columns a wave group, scale_k from 64, K not shared by 64 k");
  if (p.stages < 3 && (s.four_bit() || gemm_shares_block_scales(s, p)))
    return illegal_policy("three waves fetch scales in turns, each for a stage: at least 3 stages");
  return {};
}

/// The laws of the width of a product instruction.
constexpr Status gemm_tensor_product(const GemmSpec& s, const GemmPolicy& p) {
  const int group_wide = (p.swapped ? p.rows : p.columns) / p.waves_columns;
  const bool promoted = s.has_sums_to_choose() && s.sums == GemmSums::promoted;
  const bool sums_by_stage = s.scale == Scaling::per_block || promoted;  // are scaled or promoted after each stage
  const int n = sums_by_stage ? gemm_part_wide(group_wide) : group_wide;
  const bool narrow = n == 8 || n == 16 || n == 32 || n == 64 || n == 128 || (sums_by_stage && n == 192);
  const bool in_unit = s.scales_in_weights() || gemm_rescales_sums(s, p);  // sums stay in the matrix unit
  if (s.four_bit() && !narrow && !(in_unit && (n == 80 || n == 160 || n == 256)))
    return illegal_policy("products of int4 weights have 8, 16, 32, 64 or 128 rows of A for a wave group");
  if (s.a == DType::i8 && n != 16 && n != 64 && n != 128 && n != 256)
    return illegal_policy("products of i8 are 16, 64, 128 or 256 wide for a wave group");
  if (!narrow && n != 256 && (sums_by_stage || n % 16 != 0))
    return illegal_policy(
        sums_by_stage ? "sums that are scaled or promoted by stages are 8, 16, 32, 64, 128, 192 or 256 wide for a group"
                      : "products are 8 or a multiple of 16 wide for a wave group");
  return {};
}

/// The laws of the boxes of operands that the copy engine copies.
constexpr Status gemm_tensor_boxes(const GemmSpec& s, const GemmPolicy& p) {
  const int group_tall = (p.swapped ? p.columns : p.rows) / p.waves_rows;
  const int group_wide = (p.swapped ? p.rows : p.columns) / p.waves_columns;
  const bool shuffled = s.weights == GemmWeights::preshuffled && !s.four_bit(), transposed = s.layout != GemmLayout::nt;
  if (p.sharers() > 1 && (s.gated || shuffled || transposed || s.four_bit()))
    return illegal_policy(
        "clusters share boxes of plain nt products only: cluster and cluster_columns are 1 for others");
  if (p.columns % (8 * p.cluster) != 0)
    return illegal_policy("each block of a cluster fetches a multiple of 8 columns of the tile");
  if (p.rows % (8 * p.cluster_columns) != 0)
    return illegal_policy("each block of a cluster along N fetches a multiple of 8 rows of the tile");
  if (s.four_bit() && !p.swapped) return illegal_policy("int4 weights are the products' 64-row side: swapped");
  const int run = s.gated ? (p.swapped ? group_tall : group_wide) / 2 : p.columns;
  const bool pairs = gemm_pairs_halves(s, p);
  if (pairs && (group_wide % 32 != 0 || size_of(s.out) == 1))
    return illegal_policy(
        "gates beside their ups in a lane: a multiple of 32 rows of A for a wave group, out not quantised");
  if (s.gated && !pairs && run % (p.swapped || s.scale == Scaling::per_block ? 64 : 16) != 0)
    return illegal_policy(
        "a wave group's gates, and as many ups, are a multiple of 16 columns (swapped or block scales: 64)");
  if (s.four_bit() && run % 16 != 0) return illegal_policy("int4 weights come in strips of 16 rows");
  if (shuffled && run % (p.swapped ? 64 : 16) != 0)
    return illegal_policy("preshuffled weights come in strips of 16 rows; swapped, in 64 rows");
  if (shuffled && s.gated && !p.swapped)
    return illegal_policy("gates and ups of preshuffled weights are the products' 64-row side: swapped");
  if (transposed_a(s.layout) && p.rows % 64 != 0)
    return illegal_policy("a transposed A comes in boxes of 64 rows of the tile");
  if (transposed_b(s.layout) && p.columns % 64 != 0)
    return illegal_policy("a transposed B comes in boxes of 64 columns of the tile");
  if ((p.swapped ? transposed_a(s.layout) : transposed_b(s.layout)) && group_wide % 64 != 0)
    return illegal_policy("a transposed operand of the wide side has a multiple of 64 rows for each wave group");
  return {};
}

/// The laws of output, and of merging the sums of blocks that share K.
constexpr Status gemm_tensor_output(const GemmSpec& s, const GemmPolicy& p) {
  const int wide_columns =
      p.columns / p.waves_columns / (s.gated ? 2 : 1);  // of C, for a wave group that is not swapped
  if (!p.swapped && s.out != DType::f32 && wide_columns % 16 != 0)
    return illegal_policy("boxes of output take a multiple of 16 columns of C from each wave group");
  if (s.out_scale == Scaling::per_group && p.swapped)
    return illegal_policy("per_group: a lane finds the largest of whole columns' groups, so rows are not swapped");
  const bool halves_of_groups =
      p.waves_rows == 1 && p.waves_columns == 2 && p.rows == 64 && p.splits == 1 && 2 * wide_columns == scale_group;
  if (s.out_scale == Scaling::per_group && wide_columns % scale_group != 0 && !halves_of_groups)
    return illegal_policy(
        "per_group: each wave group has a multiple of 128 columns of C, or in 64 rows each of two half");
  if (p.stream && (p.sharers() > 1 || p.splits > 1))
    return illegal_policy("stream-K shares K already: cluster and splits are 1");
  if (p.stream && s.groups != GemmGroups::one)
    return illegal_policy("stream-K counts tiles when it is launched, and groups are known on the device only");
  if (p.stream && p.rows * gemm_tile_columns(s, p) % 2048 != 0)
    return illegal_policy("stream-K adds a tile up 2048 values a block: rows times columns of C are a multiple");
  if ((p.cluster > 1) + (p.cluster_columns > 1) + (p.splits > 1) > 1)
    return illegal_policy(
        "blocks of a cluster share boxes of B, those of A or the K of a tile: of cluster, cluster_columns and splits "
        "two are 1");
  if (p.sharers() > sm90_facts.max_cluster_blocks || p.splits > sm90_facts.max_cluster_blocks)
    return illegal_policy("a cluster has at most 16 blocks: cluster, cluster_columns and splits");
  return gemm_shared_k_status(s, p);
}

/// The laws of GemmTensorKernel on sm90.
constexpr Status gemm_tensor_policy(const GemmSpec& s, const GemmPolicy& p) {
  if (s.gathered && p.sharers() != 1)
    return illegal_policy("gathered rows: each block fetches its own, so cluster and cluster_columns are 1");
  for (const auto law : {gemm_tensor_tile, gemm_tensor_boxes, gemm_tensor_product, gemm_tensor_output}) {
    if (const Status status = law(s, p); !status.ok()) return status;
  }
  if (gemm_tensor_shared_bytes(s, p) > (sm90_facts.lds_bytes + 1024) / p.waves_per_simd - 1024)
    return illegal_policy(
        "stages and boxes of output exceed shared memory, of which waves_per_simd blocks have a part");
  return {};
}

/// The laws of GemmWaveTile: a wave's part of a tile on CDNA.
constexpr Status gemm_wave_tile_policy(const ArchFacts& facts, const GemmSpec& s, const GemmPolicy& p) {
  if (p.sharers() != 1 || p.swapped || p.stream)
    return illegal_policy("this architecture has no clusters, no swapped products and no stream-K");
  if (p.pingpong || p.late) return illegal_policy("pingpong and late are for wave groups, which sm90 has");
  if (p.splits > 16) return illegal_policy("at most 16 blocks share the K of a tile");
  if (p.waves() * p.waves_k > 16) return illegal_policy("a block has at most 16 waves");
  if (p.waves_k > 1 && !s.four_bit()) return illegal_policy("waves_k is for int4 weights");
  if (p.rows % (16 * p.waves_rows) != 0 || p.columns % (16 * p.waves_columns) != 0)
    return illegal_policy("each wave has a multiple of 16 rows and of 16 columns of the tile");
  const int wave_rows = p.rows / p.waves_rows, wave_columns = p.columns / p.waves_columns;
  const bool atoms = s.four_bit() && p.path == GemmPath::weights_in_registers;
  const int side = !atoms && wave_rows % 32 == 0 && wave_columns % 32 == 0 ? 32 : 16, halves = s.gated ? 2 : 1;
  if (wave_columns / side % halves != 0)
    return illegal_policy(
        "gated: a wave has as many products of gates as of ups: its columns are an even number of them");
  if (wave_rows * wave_columns / facts.wave_lanes > 256)
    return illegal_policy("a lane holds at most 256 sums of its wave's part of the tile");
  if (p.waves_per_simd * ceil_div(p.waves() * p.waves_k, facts.simds_per_cu) > facts.max_waves_per_simd)
    return illegal_policy("a SIMD holds at most 8 waves, of waves_per_simd blocks together");
  if (p.stages > 8) return illegal_policy("the main loop is unrolled over stages, of which there are at most 8");
  const int depth = atoms ? 128 * size_of(s.a) : s.mx() ? bytes_of(s.a, 128) : 128;
  if (p.depth_bytes != depth)
    return illegal_policy(
        "a step is 128 bytes of A's k; with mx scales, or int4 weights in registers, it is 128 values of k");
  if (s.scale == Scaling::per_block && (gemm_scale_block % wave_columns != 0 || p.columns % gemm_scale_block != 0))
    return illegal_policy("block scales: a wave's columns lie in one block of 128, and a tile has whole blocks");
  const bool per_group = s.out_scale == Scaling::per_group;
  if (per_group && (gemm_tile_columns(s, p) % scale_group != 0 || scale_group % (wave_columns / halves) != 0))
    return illegal_policy("per_group: a tile has whole groups of 128 columns of C, and a wave's lie in one group");
  return {};
}

/// Returns how many k slices a step has in LDS. Returns 0 if a lane's 16-byte units of a row are no whole number of
/// them.
constexpr int gemm_lds_k_slices(ArchId arch, DType type, int step_k, int side) {
  const int row_units = bytes_of(type, step_k) / 16, units = 64 / side;
  if (row_units % units != 0) return 0;
  if (is_fp6(type)) return row_units / units == 3 ? 2 : 0;
  const int chunks = facts_of(arch).mx && is_fp8(type) ? 2 : 1;  // 16-byte units of a product
  return row_units / units % chunks == 0 ? row_units / units / chunks : 0;
}

/// The laws of GemmTransposedRows and GemmTransposedLines: operands whose rows are columns in memory.
constexpr Status gemm_transposed_policy(const GemmPolicy& p, int rows, int side) {
  if (p.path == GemmPath::staged) {
    if (rows != 32 * p.waves())
      return illegal_policy("staged: a lane transposes squares of eight, so a transposed operand has 32 rows a wave");
    return rows % 64 == 0 ? Status{} : illegal_policy("staged: a transposed operand has a multiple of 64 rows");
  }
  if (side != 32)
    return illegal_policy("direct: transposed operands want products of 32 x 32: parts of waves likewise");
  if (rows != 128 && rows != 256 && rows != 512)
    return illegal_policy("direct: lines of a transposed operand are 128, 256 or 512 rows, which no bank meets twice");
  return {};
}

/// Says whether a tile's rows of A have MX scales anywhere: they begin in the middle of 32 rows, or are gathered.
constexpr bool gemm_mx_rows_anywhere(const GemmSpec& s) { return s.mx() && s.groups == GemmGroups::contiguous; }

/// The laws of GemmLdsKernel: operands through LDS on CDNA.
constexpr Status gemm_lds_policy(const ArchFacts& facts, const GemmSpec& s, const GemmPolicy& p) {
  const bool direct = p.path == GemmPath::direct;
  const int least_scale_k = 128 / size_of(s.a);  // a step
  if (s.four_bit() && (direct || (s.mxfp4() ? s.a != DType::bf16 : s.scale_k < least_scale_k) || p.waves_k > 1))
    return illegal_policy(
        "weights of four bits through LDS: path staged, one of waves_k; mxfp4 under bf16, or int4 whose scale_k is a "
        "step or more: 64 under bf16 or f16, 128 under fp8");
  if (direct && !facts.direct_copies)
    return illegal_policy("path direct needs copies of 16 bytes a lane into LDS, which gfx950 has");
  if (direct ? p.stages < 2 : p.stages > 2)
    return illegal_policy(direct ? "direct: a step is copied while another is read: at least 2 stages"
                                 : "staged: registers hold the step that is under way: at most 2 stages");
  const int waves = p.waves(), wave_rows = p.rows / p.waves_rows, wave_columns = p.columns / p.waves_columns;
  if (waves % facts.simds_per_cu != 0) return illegal_policy("waves are a multiple of 4, as many for each SIMD");
  const int side = wave_rows % 32 == 0 && wave_columns % 32 == 0 ? 32 : 16;
  const int step_k = p.depth_bytes * packing_of(s.a) / size_of(s.a);
  const int k_slices = gemm_lds_k_slices(facts.id, s.a, step_k, side);
  if (k_slices == 0 || k_slices % 2 != 0 || k_slices != gemm_lds_k_slices(facts.id, s.product_b(), step_k, side))
    return illegal_policy(
        "a step is an even number of products, alike of A and B: parts of waves are multiples of 32 x 32 here");
  const int a_row = bytes_of(s.a, step_k), b_row = bytes_of(s.product_b(), step_k), lanes = waves * facts.wave_lanes;
  if (p.rows * a_row / 16 % lanes != 0) return illegal_policy("all lanes copy equally many 16 bytes of A's rows");
  if (p.columns * b_row / 16 % lanes != 0) return illegal_policy("all lanes copy equally many 16 bytes of B's rows");
  const int b_copies = p.columns * b_row / 16 / lanes;
  if (s.four_bit() && p.columns * step_k / 16 % lanes != 0)
    return illegal_policy("int4 weights through LDS: all lanes widen equally many 16 values");
  if (s.weights == GemmWeights::preshuffled && !s.four_bit() && !s.gated && b_copies != 1 &&
      b_copies * facts.wave_lanes % b_row != 0)  // A strip of sixteen rows has b_row units.
    return illegal_policy("preshuffled: a wave copies whole strips of 16 rows, or once only");
  if (transposed_a(s.layout)) {
    if (const Status status = gemm_transposed_policy(p, p.rows, side); !status.ok()) return status;
  }
  if (transposed_b(s.layout)) {
    if (const Status status = gemm_transposed_policy(p, p.columns, side); !status.ok()) return status;
  }
  const bool block = s.scale == Scaling::per_block;
  if (direct && block && wave_rows != facts.wave_lanes)
    return illegal_policy("direct, block scales: a wave has 64 rows, whose scales its lanes copy");
  if (direct && s.mx() && (p.rows != 32 * waves || p.columns > p.rows))
    return illegal_policy("direct, mx scales: each wave copies the scales of 32 rows of A, and of 32 columns or none");
  if (direct && s.mx() && wave_columns / (s.gated ? 2 : 1) % 32 != 0)
    return illegal_policy("direct, mx scales: a wave's columns of C are whole tiles of scales, 32 each");
  const int scales = direct && (block || s.mx()) ? (gemm_mx_rows_anywhere(s) ? 768 : 512) * waves : 0;
  if (p.stages * (p.rows * a_row + p.columns * b_row + scales) > facts.lds_bytes / p.waves_per_simd)
    return illegal_policy("stages times a step's bytes exceed LDS, of which waves_per_simd blocks have a part each");
  return {};
}

/// The laws of GemmRegisterKernel and GemmInt4Kernel: operands straight to registers on CDNA.
constexpr Status gemm_register_policy(const ArchFacts& facts, const GemmSpec& s, const GemmPolicy& p) {
  if (s.layout != GemmLayout::nt)
    return illegal_policy("operands come straight to registers where k lies side by side");
  if (p.waves_k > 1 && (p.waves_k - 1) * p.rows * p.columns * static_cast<int>(sizeof(float)) > facts.lds_bytes)
    return illegal_policy("waves that share K merge sums in LDS, which must hold a tile of all of them but one");
  return {};
}

}  // namespace detail

/// Checks whether kernels of an architecture can be built for a policy of a spec. Kernels assert it, tests hold all
/// lists against it, and tuners ask it about candidates. Of registers it counts the sums alone: a policy that spills is
/// legal, and slow. Errors: those of gemm_check_spec; bad_value with the law that is broken.
constexpr Status gemm_policy_status(ArchId arch, const GemmSpec& s, const GemmPolicy& p) {
  const ArchFacts& facts = facts_of(arch);
  if (const Status status = gemm_check_spec(s, facts); !status.ok()) return status;
  if (const Status status = detail::gemm_policy_numbers(p); !status.ok()) return status;
  const bool tensors = facts.tensor_copies, registers = p.path == GemmPath::weights_in_registers;
  if (tensors && registers)
    return s.four_bit() ? detail::gemm_few_rows_policy(s, p) : detail::gemm_dense_few_rows_policy(s, p);
  if (tensors) {
    if (p.path == GemmPath::tensor) return detail::gemm_tensor_policy(s, p);
    return detail::illegal_policy("this architecture has the paths tensor and weights_in_registers");
  }
  if (p.path == GemmPath::tensor)
    return detail::illegal_policy("path tensor needs a tensor copy engine, which this architecture has not");
  if (const Status status = detail::gemm_wave_tile_policy(facts, s, p); !status.ok()) return status;
  return registers ? detail::gemm_register_policy(facts, s, p) : detail::gemm_lds_policy(facts, s, p);
}

}  // namespace tilewave
