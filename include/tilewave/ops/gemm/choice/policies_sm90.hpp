// SPDX-License-Identifier: MIT
// The policies that entries of sm90 are built for: one list for each kind of spec, and gemm_sm90_policies to choose it.
// A list names tiles, wave groups and how blocks share work. gemm_stages adds the depth of the ring.
#pragma once

#include "tilewave/core/math.hpp"
#include "tilewave/ops/gemm/args.hpp"
#include "tilewave/ops/gemm/choice/policies.hpp"

namespace tilewave {

namespace detail {

/// As many stages as shared memory holds beside the boxes of output, scales and barriers. Narrow tiles that stream
/// weights have no more than ten: with sixteen they took up to 4 % longer (docs/notebook/2026-11-22-gemm-dense.md).
constexpr int gemm_stages(const GemmSpec& s, const GemmPolicy& p) {
  const int out = p.waves_k > 1 ? 1024
                  : p.swapped   ? p.waves() * p.rows * 128
                  : p.pingpong  ? p.wave_groups() * 2 * 64 * 128  // one is filled while another is sent
                  : p.late      ? p.wave_groups() * gemm_late_boxes * 64 * 128
                                : p.rows * align_up(gemm_tile_columns(s, p) * min_of(size_of(s.out), 2), 128);
  const bool block = s.scale == Scaling::per_block;
  const int depth_k = p.depth_bytes / size_of(s.a), scale_bytes = gemm_rescales_sums(s, p) ? 16 : s.zero_points ? 8 : 4;
  const int b_bytes =
      s.four_bit() ? depth_k / 2 + scale_bytes * max_of(1, depth_k / s.scale_k) : p.depth_bytes;  // of a row of B
  const int stage = p.rows * p.depth_bytes + p.columns * b_bytes + (block ? 4 * p.rows + p.columns / 16 : 0) +
                    (s.weights == GemmWeights::fragments ? 40 : 24);
  const int most = p.swapped && p.waves() == 1 && !s.four_bit() ? 10 : 16;
  const int fit = (sm90_facts.lds_bytes - out - (s.scale == Scaling::per_row || s.four_bit() ? 2048 : 0)) / stage;
  return min_of(most, fit) / p.waves_k * p.waves_k;
}

/// The list of one spec as it grows.
struct Sm90Policies {
  const GemmSpec& spec;
  GemmPolicies all{};

  /// Blocks that may share the K of a tile: none in grouped GEMM, whose tiles are known on the device only.
  constexpr int splits(int most) const { return spec.groups == GemmGroups::one ? most : 1; }

  constexpr void add(GemmPolicy p) {
    p.stages = gemm_stages(spec, p);
    all.add(p);
  }
  /// Two blocks an SM: one streams while the other begins or ends a tile, and the first blocks of the next kernel find
  /// room beside the last ones of this (docs/notebook/2026-11-28-engine-steps.md).
  constexpr void add_two_blocks(int rows, int stages, int columns = 64, int most_splits = 1, int blocks = 2) {
    GemmPolicy p{.rows = rows, .columns = columns, .stages = stages, .waves_rows = 1, .swapped = true};
    p.splits = most_splits, p.waves_per_simd = blocks;
    all.add(p);
  }
  /// Three blocks an SM, of which a launch of few rows has one or two: those of the next launch find room beside them.
  /// They take longer alone (docs/notebook/2026-11-28-step-norm-factor.md).
  constexpr void add_three_blocks(int rows, int stages, int columns, int most_splits) {
    add_two_blocks(rows, stages, columns, most_splits, 3);
  }
  /// Up to 8 rows straight to registers. `waves` share K, and each asks for `steps` of 64 bytes of its rows at a time.
  constexpr void add_few_rows(int steps, int waves, int blocks) {
    GemmPolicy p{.rows = 8, .columns = 16, .depth_bytes = 64, .stages = steps, .waves_rows = 1};
    p.path = GemmPath::weights_in_registers, p.waves_k = waves, p.waves_per_simd = blocks;
    all.add(p);
  }
};

/// MXFP4 that lies as fragments. Two blocks an SM hide each other's waits where rows are few, and waves multiply for
/// themselves (docs/notebook/2026-11-28-moe-fragments.md).
constexpr GemmPolicies gemm_sm90_fragments(const GemmSpec& s) {
  Sm90Policies list{s};
  const auto codes = [&](int rows, int columns, int blocks, int wave_groups = 2) {
    GemmPolicy p{.rows = rows, .columns = columns, .depth_bytes = 256, .waves_rows = wave_groups};
    p.swapped = true, p.splits = list.splits(8), p.waves_per_simd = blocks;
    p.stages = min_of(16, gemm_stages(s, p) / blocks);
    list.all.add(p);
  };
  const int columns = s.gated ? 256 : 128;
  codes(8, columns, 2);
  if (s.groups != GemmGroups::one) {  // as high as a group's rows ask for
    if (s.gated) {
      codes(16, columns, 2);
    } else {  // waves that multiply three tiles of 64 rows read A's rows a third as often
      codes(16, 192, 2, 1);
    }
    codes(80, columns, 1);
    codes(s.gated ? 128 : 160, columns, 1);
    return list.all;
  }
  codes(16, columns, 2);
  codes(64, columns, 1);
  if (s.gated) return list.all;
  codes(128, columns, 1);
  codes(32, columns, 1);
  list.add({.rows = 256, .columns = 128, .swapped = true});
  return list.all;
}

/// Int4 weights are the 64-row side, in steps of 128 k.
constexpr GemmPolicies gemm_sm90_int4(const GemmSpec& s) {
  Sm90Policies list{s};
  const auto codes = [&](int rows, int columns, int wave_groups, int splits) {
    GemmPolicy p{.rows = rows, .columns = columns, .depth_bytes = 128 * size_of(s.a), .waves_rows = wave_groups};
    p.swapped = true, p.splits = splits;
    p.waves_per_simd = wave_groups == 1 ? 2 : 1;  // blocks an SM
    p.stages = min_of(16, gemm_stages(s, p) / p.waves_per_simd);
    list.all.add(p);
  };
  // A group of `waves` has `strips` of each pass of a block. `blocks`: an SM.
  const auto few_rows = [&](int rows, int strips, int groups, int waves, int blocks = 1) {
    if (s.scale_k != 128 || s.groups != GemmGroups::one) return;
    GemmPolicy p{.rows = rows, .columns = 16 * strips * groups, .depth_bytes = 128 * size_of(s.a), .stages = 2};
    p.path = GemmPath::weights_in_registers;
    p.waves_rows = 1, p.waves_columns = groups, p.waves_k = waves, p.waves_per_simd = blocks;
    list.all.add(p);
  };
  const int splits = list.splits(8);
  if (s.rounds_weights()) {
    codes(64, 128, 2, splits);
    codes(128, 128, 2, splits);
    list.add({.rows = 256, .columns = 128, .swapped = true});
    if (!s.gated) {  // groups share K (docs/notebook/2026-11-28-gemm-int4-shared-k.md)
      list.add({.rows = 128, .columns = 64, .depth_bytes = 256, .waves_rows = 1, .swapped = true, .waves_k = 3});
    }
    return list.all;
  }
  // Sums in the matrix unit leave room for 256 rows.
  const bool in_unit = !is_fp8(s.a) && (s.b == DType::i4 ? s.scale_k >= 64 : s.a == DType::bf16);
  if (s.gated) {
    codes(16, 256, 2, splits);
    codes(64, 256, 2, splits);
    if (s.groups == GemmGroups::one && size_of(s.out) > 1) {
      codes(128, 128, 2, splits);
      if (in_unit) list.add({.rows = 256, .columns = 128, .swapped = true});
    }
    few_rows(8, 4, 1, 8, 2);
    few_rows(16, 4, 1, 12);
    return list.all;
  }
  codes(16, 64, 1, splits);
  codes(64, 128, 2, splits);
  if (s.groups != GemmGroups::one) return list.all;
  if (s.mxfp4() || s.scale_k != 128) codes(16, 256, 4, 4);  // others have the kernel of few rows
  codes(32, 128, 2, splits);
  codes(64, 192, 3, splits);
  codes(128, 128, 2, splits);
  if (in_unit) list.add({.rows = 256, .columns = 128, .swapped = true});
  few_rows(8, 2, 1, 16);
  for (const int groups : {1, 2, 4})
    if (groups == 4 || !s.zero_points) few_rows(8, 4, groups, 16 / groups);
  few_rows(16, 4, 1, 12);
  few_rows(16, 8, 2, 4);
  return list.all;
}

/// Transposed operands come in boxes of 64 rows or columns.
constexpr GemmPolicies gemm_sm90_transposed(const GemmSpec& s) {
  Sm90Policies list{s};
  if (s.out_scale == Scaling::per_group) {
    list.add({.rows = 128, .columns = 128});
    return list.all;
  }
  list.add({.rows = 128, .columns = 256});
  list.add({.rows = 64, .columns = 128, .swapped = true, .splits = list.splits(8)});
  return list.all;
}

/// Outputs with a scale for each 128 columns: four lanes have a row of 128 columns of C.
constexpr GemmPolicies gemm_sm90_group_scaled_out(const GemmSpec& s) {
  Sm90Policies list{s};
  const int columns = s.gated ? 256 : 128;
  if (s.gated && s.weights == GemmWeights::preshuffled) return list.all;
  if (!s.gated && s.a != DType::i8) list.add({.rows = 128, .columns = 256});
  list.add({.rows = 128, .columns = columns});
  if (s.gated && s.groups != GemmGroups::one && s.scale == Scaling::per_block) {  // one adds while the other multiplies
    list.add({.rows = 64, .columns = columns, .waves_rows = 1, .waves_columns = 2});
    return list.all;
  }
  list.add({.rows = 64, .columns = columns, .waves_rows = 1, .splits = list.splits(8)});
  return list.all;
}

/// Gate x up: a wave group has the gates and the ups of its columns.
constexpr GemmPolicies gemm_sm90_gated(const GemmSpec& s) {
  Sm90Policies list{s};
  if (s.scale == Scaling::per_block && s.out == DType::f32 && s.gathered) {  // h of few rows, see MoeH::f32
    list.add({.rows = 16, .columns = 128, .waves_rows = 1, .swapped = true});
    return list.all;
  }
  if (s.weights != GemmWeights::preshuffled) {
    list.add({.rows = 128, .columns = 256});
    list.add({.rows = 128, .columns = 128, .splits = list.splits(4)});
  }
  if (s.groups == GemmGroups::one && s.weights == GemmWeights::row_major) {
    list.add_two_blocks(16, 5, 128, 8);
    if (s.a == DType::bf16 && s.activation == ActivationKind::silu) list.add_three_blocks(16, 4, 128, 8);
  } else {
    list.add({.rows = 16, .columns = 128, .waves_rows = 1, .swapped = true, .splits = list.splits(8)});
  }
  list.add({.rows = 64, .columns = 128, .waves_rows = 1, .swapped = true, .splits = list.splits(8)});
  // 28672 rows of B are 128 tiles of 224, one for each of 132 SMs: 58 us at 64 rows, 62 by 224 tiles of 128.
  if (s.groups == GemmGroups::one && s.a == DType::bf16 && s.weights == GemmWeights::row_major)
    list.add({.rows = 64, .columns = 224, .waves_rows = 1});
  return list.all;
}

/// Grouped GEMM.
constexpr GemmPolicies gemm_sm90_grouped(const GemmSpec& s) {
  Sm90Policies list{s};
  list.add({.rows = 128, .columns = 256});
  if (s.scale == Scaling::per_block) {  // each wave group multiplies while it adds (docs/notebook/2026-11-28-moe.md)
    list.add({.rows = 64, .columns = 256, .waves_rows = 1, .waves_columns = 2});
    list.add({.rows = 192, .columns = 128, .waves_rows = 3});  // all rows of a group of some 128
  } else {
    list.add({.rows = 128, .columns = 128});
  }
  list.add({.rows = 64, .columns = 128, .swapped = true});
  if (s.scale == Scaling::per_block && s.groups == GemmGroups::contiguous) {
    list.add({.rows = 16, .columns = 128, .waves_rows = 1, .swapped = true});
  } else if (s.a != DType::i8) {
    list.add({.rows = 32, .columns = 128, .swapped = true});
  }
  return list.all;
}

/// Types and layouts that fewer widths of products or no clusters serve: i8, and preshuffled weights.
constexpr GemmPolicies gemm_sm90_i8_or_preshuffled(const GemmSpec& s) {
  Sm90Policies list{s};
  list.add({.rows = 128, .columns = 256});
  list.add({.rows = 128, .columns = 128, .splits = 4});
  list.add({.rows = 16, .columns = 64, .waves_rows = 1, .swapped = true, .splits = 8});
  list.add({.rows = 64, .columns = 128, .swapped = true, .splits = 8});
  if (s.weights == GemmWeights::preshuffled && s.a != DType::i8) list.add_two_blocks(16, 8);
  return list.all;
}

/// Up to 128 columns under many rows: blocks beside each other share rows of A.
inline constexpr GemmPolicy sm90_few_columns{
    .rows = 64, .columns = 64, .stages = 13, .waves_rows = 1, .swapped = true, .cluster_columns = 2};

/// Dense products of bf16, f16 and fp8: tiles of many widths, so that some fill the rounds of whatever M and N there
/// are. Which of them pay was found on shapes of many models (docs/notebook/2026-11-27-gemm-choice.md).
constexpr GemmPolicies gemm_sm90_dense(const GemmSpec& s) {
  Sm90Policies list{s};
  const bool block = s.scale == Scaling::per_block;
  const bool promoted = s.has_sums_to_choose() && s.sums == GemmSums::promoted;
  const bool in_unit = !block && !promoted;  // sums stay in the matrix unit, so pingpong can alternate
  const bool more = in_unit && (s.a == DType::bf16 || s.scale == Scaling::per_row || s.scale == Scaling::per_tensor);
  const bool late = in_unit && size_of(s.out) == 2 && s.out_scale == Scaling::none;
  const bool fast_fp8 = more && s.a != DType::bf16;
  list.add({.rows = 128, .columns = 256, .late = late});
  if (promoted) list.add({.rows = 128, .columns = 256, .cluster = 2});
  if (!in_unit || fast_fp8) list.add({.rows = 192, .columns = 128, .waves_rows = 3});
  if (s.a != DType::bf16) list.add({.rows = 128, .columns = 128, .splits = 4});
  for (const int rows : {16, 32, 64})
    if (rows > 16 || s.a != DType::bf16)
      list.add({.rows = rows, .columns = 64, .waves_rows = 1, .swapped = true, .splits = 8});
  list.add({.rows = 64, .columns = 128, .swapped = true, .splits = 8});
  if (!block) list.add({.rows = 128, .columns = 128, .swapped = true, .splits = 8});
  if (size_of(s.a) == 2) {
    list.add_few_rows(2, 16, 2);
    list.add_few_rows(2, 8, 4);
    list.add_few_rows(4, 16, 1);
  }
  if (s.a == DType::f16) list.add({.rows = 128, .columns = 176, .waves_rows = 1, .pingpong = true});
  if (in_unit && s.a != DType::f16) {
    if (s.a != DType::bf16) list.add({.rows = 128, .columns = 128, .waves_rows = 1, .pingpong = true});
    for (const int columns : {176, 192}) list.add({.rows = 128, .columns = columns, .waves_rows = 1, .pingpong = true});
    if (more)
      for (const int columns : {144, 160})
        list.add({.rows = 128, .columns = columns, .waves_rows = 1, .pingpong = true});
    list.add({.rows = 128, .columns = 144, .late = late});
    if (!late || (s.a != DType::bf16 && !fast_fp8)) list.add({.rows = 128, .columns = 176, .late = late});
    if (late && s.a == DType::bf16) list.add({.rows = 128, .columns = 224, .late = true});
    if (s == GemmSpec{}) list.add({.rows = 128, .columns = 240, .late = true});
  }
  if (s.scale == Scaling::per_row && promoted) list.add({.rows = 128, .columns = 128, .stream = true});
  if (s.a == DType::bf16 || s.scale == Scaling::per_row || (in_unit && s.scale == Scaling::per_tensor))
    list.add_two_blocks(16, 8, 64, 8);
  if (s == GemmSpec{}) list.add_three_blocks(16, 7, 64, 8);
  if (!more) return list.all;
  if (s.a != DType::bf16) list.add({.rows = 64, .columns = 192, .waves_rows = 1, .pingpong = true});
  list.add({.rows = 128, .columns = 112, .splits = 8});
  list.add({.rows = 64, .columns = 96, .waves_rows = 1});
  list.add({.rows = 64, .columns = 160, .waves_rows = 1, .splits = 4});
  list.add({.rows = 64, .columns = 224, .waves_rows = 1});
  list.add({.rows = 128, .columns = 64, .waves_rows = 1, .swapped = true, .splits = 8});
  list.add({.rows = 96, .columns = 128, .swapped = true, .splits = 8});
  // Rows a little above 128 under many columns, whose weights two bands would read (2026-11-28-gemm-choice-anew.md).
  list.add({.rows = 160, .columns = 128, .swapped = true, .splits = 4});
  list.add({.rows = 144, .columns = 192, .waves_rows = 3, .swapped = true});
  list.add_two_blocks(64, 6);
  if (s.a != DType::bf16) {
    list.add({.rows = 32, .columns = 128, .swapped = true, .splits = 8});
    list.add({.rows = 64, .columns = 128, .waves_rows = 1, .cluster_columns = 2});
    list.all.add(sm90_few_columns);
    list.add({.rows = 96, .columns = 64, .waves_rows = 1, .swapped = true, .cluster_columns = 4});
    return list.all;
  }
  for (const int rows : {80, 96})
    list.add({.rows = rows, .columns = 64, .waves_rows = 1, .swapped = true, .splits = 8});
  list.add({.rows = 80, .columns = 128, .swapped = true, .splits = 8});
  list.add({.rows = 192, .columns = 112, .waves_rows = 3, .splits = 3});
  // Few columns under many rows: blocks that read the same rows of A share them.
  for (const int columns : {96, 128}) list.add({.rows = 64, .columns = columns, .waves_rows = 1, .cluster_columns = 2});
  list.add({.rows = 128, .columns = 96, .cluster_columns = 2});
  list.all.add(sm90_few_columns);
  // So do those of few rows: of 96, blocks read as many bytes of A as of B and half as many again.
  for (const int rows : {64, 96})
    list.add({.rows = rows, .columns = 64, .waves_rows = 1, .swapped = true, .cluster_columns = 4});
  // Few rows of tiles likewise with rows of B.
  for (const int columns : {96, 112}) list.add({.rows = 64, .columns = columns, .waves_rows = 1, .cluster = 2});
  list.add({.rows = 128, .columns = 128, .cluster = 2});
  return list.all;
}

}  // namespace detail

constexpr GemmPolicies gemm_sm90_policies(const GemmSpec& s) {
  if (s.weights == GemmWeights::fragments) return detail::gemm_sm90_fragments(s);
  if (s.four_bit()) return detail::gemm_sm90_int4(s);
  if (s.layout != GemmLayout::nt) return detail::gemm_sm90_transposed(s);
  if (s.out_scale == Scaling::per_group) return detail::gemm_sm90_group_scaled_out(s);
  if (s.gated) return detail::gemm_sm90_gated(s);
  if (s.groups != GemmGroups::one) return detail::gemm_sm90_grouped(s);
  if (s.a == DType::i8 || s.weights == GemmWeights::preshuffled) return detail::gemm_sm90_i8_or_preshuffled(s);
  return detail::gemm_sm90_dense(s);
}

}  // namespace tilewave
