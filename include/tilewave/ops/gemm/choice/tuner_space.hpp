// SPDX-License-Identifier: MIT
// Which policies a tuner may try.
#pragma once

#include "tilewave/arch/facts.hpp"
#include "tilewave/core/math.hpp"
#include "tilewave/ops/gemm/policy.hpp"

namespace tilewave {

/// Whether CDNA's kernels of the path compile for a policy: what lds_kernel.hpp and what lies beside it assert, for
/// rows of K (layout nt) and one matrix of C; those of i4 weights and mx scales are not tried. Registers are not looked
/// at beyond the sums: a policy that spills is legal, and slow.
constexpr bool gemm_policy_fits(ArchId arch, const GemmSpec& s, const GemmPolicy& p) {
  const ArchFacts& facts = facts_of(arch);
  const auto power_of_two = [](int n) { return n > 0 && (n & (n - 1)) == 0; };
  const bool direct = p.path == GemmPath::direct, by_registers = p.path == GemmPath::weights_in_registers;
  if (facts.matrix != Matrix::mfma || (direct && !facts.direct_copies) || p.path == GemmPath::tensor) return false;
  if (s.layout != GemmLayout::nt || s.gated || s.out_scale == ScaleMode::per_group) return false;
  if (s.scale == GemmScale::block || s.groups != GemmGroups::one || s.int4() || s.mx() || p.waves_k != 1) return false;
  if (p.swapped || p.stream || p.cluster != 1 || p.depth_bytes != 128 || p.splits < 1 || p.splits > 16) return false;
  if (!power_of_two(p.waves_rows) || !power_of_two(p.waves_columns) || p.waves() > 16) return false;
  const int waves = p.waves(), wave_rows = p.rows / p.waves_rows, wave_columns = p.columns / p.waves_columns;
  if (wave_rows < 16 || wave_columns < 16 || wave_rows % 16 != 0 || wave_columns % 16 != 0) return false;
  if (wave_rows * p.waves_rows != p.rows || wave_columns * p.waves_columns != p.columns) return false;
  if (p.waves_per_simd < 1 || p.waves_per_simd > 4 || p.rows * p.columns / waves / 64 > 256) return false;
  if (by_registers) return p.stages >= 1 && p.stages <= 8;
  // A step has an even number of pieces: products of 16 rows take all of it at once where they take 64 bytes or more.
  const bool small_sides = wave_rows % 32 != 0 || wave_columns % 32 != 0;
  if (small_sides && size_of(s.a) == 1) return false;
  if (waves % facts.simds_per_cu != 0 || p.rows % (8 * waves) != 0 || p.columns % (8 * waves) != 0) return false;
  if (direct ? p.stages < 2 || p.stages > 8 : p.stages < 1 || p.stages > 2) return false;
  return p.stages * (p.rows + p.columns) * 128 <= facts.lds_bytes / p.waves_per_simd;
}

}  // namespace tilewave
