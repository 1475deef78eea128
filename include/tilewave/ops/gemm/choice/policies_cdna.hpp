// SPDX-License-Identifier: MIT
// The policies for which CDNA's entries are built.
#pragma once

#include "tilewave/core/math.hpp"
#include "tilewave/ops/gemm/choice/policies.hpp"

namespace tilewave {

/// Returns the policies for int4 weights. They are for few rows, for some rows, and for many, with tiles as large as
/// registers allow. For few rows there are many waves on few columns, or many columns, which read A less often from L2.
constexpr GemmPolicies gemm_int4_cdna_policies(const ArchFacts& facts, const GemmSpec& s) {
  GemmPolicies all;
  const auto add = [&](int rows, int columns, int waves_rows, int waves_columns, int waves_k, int splits) {
    GemmPolicy p{.rows = rows, .columns = columns, .depth_bytes = 128 * size_of(s.a), .stages = 2};
    p.waves_rows = waves_rows, p.waves_columns = waves_columns, p.waves_k = waves_k;
    p.path = GemmPath::weights_in_registers;
    p.splits = splits;
    all.add(p);
  };
  add(16, 32, 1, 1, 8, 8);
  if (s.scale_k < 64) {  // Scales take registers as well.
    add(32, 64, 1, 2, 4, 8);
  } else {
    add(16, 128, 1, 4, 1, 8);
    add(32, 128, 1, 4, 2, 8);
    if (is_fp8(s.a) && s.scale_k < 128) add(64, 128, 2, 4, 1, 1);
  }
  if (s.mxfp4() ? s.a == DType::bf16 : s.scale_k >= 128 / size_of(s.a)) {
    // Codes are widened once for all rows, on their way into LDS.
    GemmPolicy p{.rows = 128, .columns = 128, .depth_bytes = 128, .stages = 2};
    p.waves_rows = 2, p.waves_columns = 2;
    p.path = GemmPath::staged;
    // With two blocks a CU, gfx950's products of fp8 spilled 57 registers: 72 us for 41, modelled.
    const int blocks = facts.lds_bytes / (p.stages * (p.rows + p.columns) * p.depth_bytes);
    p.splits = 8, p.waves_per_simd = is_fp8(s.a) ? 1 : blocks;
    all.add(p);
  }
  return all;
}

/// Returns the policies for MX scales. Tiles have three or four steps of 128 k in LDS, with their scales. Few rows have
/// both operands in registers, as with other scales.
constexpr GemmPolicies gemm_scaled_policies(const ArchFacts& facts, const GemmSpec& s) {
  GemmPolicies all;
  const int depth = 128 * size_of(s.a) / packing_of(s.a), depth_b = 128 * size_of(s.b) / packing_of(s.b);
  const bool fp8_weights = packing_of(s.b) == 1, contiguous = s.groups == GemmGroups::contiguous;
  const auto tile = [&](int rows, int columns, int waves_rows, int waves_columns, int splits, int waves_per_simd) {
    const int waves = waves_rows * waves_columns, scales = contiguous ? 768 : 512;
    const int step_bytes = rows * depth + columns * depth_b + waves * scales;
    GemmPolicy p{.rows = rows, .columns = columns, .depth_bytes = depth};
    p.stages = min_of(fp8_weights ? 3 : 4, facts.lds_bytes / waves_per_simd / step_bytes);
    p.waves_rows = waves_rows, p.waves_columns = waves_columns;
    p.path = GemmPath::direct;
    p.splits = splits, p.waves_per_simd = waves_per_simd;
    all.add(p);
  };
  const auto few_rows = [&](int rows, int columns, int stages) {
    GemmPolicy p{.rows = rows, .columns = columns, .depth_bytes = depth, .stages = stages};
    p.waves_rows = 1, p.waves_columns = 4;
    p.path = GemmPath::weights_in_registers;
    p.splits = 16;
    all.add(p);
  };
  // Contiguous groups have more scales in LDS, beside which a third stage of 256 x 256 does not fit.
  fp8_weights || contiguous ? tile(256, 128, 4, 2, 1, 1) : tile(256, 256, 2, 4, 1, 1);
  tile(128, 128, 2, 2, 16, fp8_weights ? 1 : 2);
  few_rows(16, s.gated ? 128 : 64, fp8_weights ? 4 : 8);
  if (s.weights == GemmWeights::preshuffled && !s.gated) few_rows(32, 128, 4);
  return all;
}

/// Returns the policies for all other specs.
constexpr GemmPolicies gemm_cdna_policies(ArchId arch, const GemmSpec& s) {
  GemmPolicies all;
  const bool direct = facts_of(arch).direct_copies, blocks = s.scale == Scaling::per_block;
  const bool transposed = s.layout != GemmLayout::nt;
  const GemmPath path = direct ? GemmPath::direct : GemmPath::staged;
  const bool wide = s.gated && s.out_scale == Scaling::per_group;  // A scale needs 128 columns of C.
  const bool preshuffled = s.weights == GemmWeights::preshuffled;
  const auto tile = [&](int rows, int columns, int stages, int waves_rows, int waves_columns) {
    GemmPolicy p{.rows = rows, .columns = columns, .stages = stages, .waves_rows = waves_rows};
    p.waves_columns = waves_columns;
    p.path = path;
    return p;
  };
  const int stages = direct ? 2 : 1;
  const auto add_shared_k = [&](GemmPolicy p) {
    p.splits = 16;
    p.waves_per_simd = 2;
    all.add(p);
  };
  if (!blocks) all.add(tile(256, 256, stages, 2, 4));
  if (wide) {
    all.add(tile(128, 256, direct && blocks ? 3 : stages, 2, 4));
  } else if (direct && blocks) {
    all.add(tile(256, 128, 3, 4, 2));
  } else {
    add_shared_k(tile(128, 128, stages, 2, 2));
  }
  // For 64 to 512 rows, small tiles give every compute unit one before K is shared (docs/notebook/campaigns;
  // docs/notebook/2026-11-23-clock-choices.md).
  const bool one = s.groups == GemmGroups::one && !s.gated && s.out_scale == Scaling::none;
  if (one && !transposed && !blocks && !preshuffled) {
    add_shared_k(direct ? tile(64, 64, 4, 2, 2) : tile(64, 64, 2, 2, 2));
    if (direct && size_of(s.a) == 2) {
      add_shared_k(tile(64, 128, 3, 2, 2));
      add_shared_k(tile(64, 32, 6, 2, 2));
    }
  }
  if (transposed) return all;
  // Groups of experts have some 16 to 64 rows (docs/notebook/2026-11-28-moe-cdna-tiles.md).
  const bool low_groups = direct && blocks && s.groups == GemmGroups::contiguous && (wide || !s.gated);
  if (low_groups) {
    all.add(tile(64, wide ? 256 : 128, 3, 1, 4));
    all.back().waves_per_simd = wide ? 1 : 2;
  }
  // For few rows, a wave has 16 columns, and so 2 KiB of B under way in each step.
  const auto few_rows = [&](int rows, int columns, int stages) {
    GemmPolicy p{.rows = rows, .columns = columns, .stages = stages, .waves_rows = 1, .waves_columns = 4};
    p.path = GemmPath::weights_in_registers;
    p.splits = 16;
    all.add(p);
  };
  const bool narrow = !blocks && !s.gated && s.out_scale != Scaling::per_group;
  few_rows(16, wide ? 256 : narrow ? 64 : 128, 4);
  // Where 256 rows of one product by blocks would not fill the chip, 64 do, and they read B once where 16 or 32 rows
  // read it again (docs/notebook/2026-11-28-gemm-cdna-beside-peers.md).
  const bool low_blocks = direct && blocks && one;
  // On gfx942 64 x 64 of i8 takes less than 32 x 128 at 256 and 1024 rows, and 16 x 64 does at 17 and 32
  // (docs/notebook/2026-11-28-gemm-cdna-output.md).
  const bool low_i8 = !direct && preshuffled && one && s.a == DType::i8;
  if (preshuffled && !s.gated && !low_blocks && !low_groups && !low_i8) few_rows(32, 128, 4);
  if (low_blocks) add_shared_k(tile(64, 128, 3, 1, 4));
  if (low_i8) add_shared_k(tile(64, 64, 2, 2, 2));
  return all;
}

}  // namespace tilewave
