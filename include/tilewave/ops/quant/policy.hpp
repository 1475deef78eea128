// SPDX-License-Identifier: MIT
// The policy says how a quantisation is computed. It changes the speed, never a code.
#pragma once

#include "tilewave/ops/quant/spec.hpp"
#include "tilewave/tile/row_check.hpp"

namespace tilewave {

/// Rows are held as in every row operation.
using QuantPolicy = RowPolicy;

/// Returns the policies that entries of a spec are built for: all of them where the largest value of a row is found
/// first. Otherwise a row need not be in one place: blocks of 256 lanes walk along what they do not hold. Hopper also
/// has blocks of 128 for rows that would leave half of those lanes idle.
constexpr RowPolicies quant_policies(ArchId arch, const QuantSpec& s) {
  const RowPolicies all = row_policies(arch, s.x, s.out, s.output().scale, 4);
  if (s.output().scale == Scaling::per_token) return all;
  const bool hopper = facts_of(arch).family == Family::hopper;
  RowPolicies some;
  for (RowPolicy p : all) {
    const bool vector = p.vec == 16, narrow_rows = size_of(s.x) == 1;
    if (narrow_rows && vector && hopper) {
      p.vec = 8;  // one store of 16 bytes for every load, so that neighbouring lanes write neighbouring bytes
    } else if (narrow_rows && vector && !p.held) {
      p.chunks = 2;  // 16 values each; more would not fit the registers
    }
    // Lanes of short rows compare addresses, and clang would wait between loads to save registers.
    if (s.scale == Scaling::mx && p.lanes < facts_of(arch).wave_lanes) p.waves_per_simd = 6;
    const bool some_chunks = vector ? p.chunks == p.span || p.chunks == 4 : p.lanes < 256;
    const bool half = p.block_threads() == 128 && (narrow_rows || (hopper && p.rows == 1));
    const bool some_lanes = p.block_threads() == 256 || half;
    if (some_lanes && p.blocks == 1 && (some_chunks || !p.held)) some.add(p);
  }
  return some;
}

}  // namespace tilewave
