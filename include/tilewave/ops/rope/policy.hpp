// SPDX-License-Identifier: MIT
// The policy says how a rotary position embedding is computed. It changes only the speed.
#pragma once

#include "tilewave/ops/rope/spec.hpp"
#include "tilewave/tile/row_check.hpp"

namespace tilewave {

/// Rows are heads of tokens, which are held as in every row operation, in pairs of accesses: see Rotation.
using RopePolicy = RowPolicy;

inline constexpr int head_threads = 256;  // lanes of a block that works on heads

/// Returns the policies of heads of up to 512 dimensions. A lane has two accesses of 16 bytes, so with 128 dimensions
/// of bf16 a wave of CDNA has eight heads in flight and one of sm90 four.
constexpr RowPolicies head_policies(ArchId arch, DType x) {
  RowPolicies all;
  const int waves = per_arch(arch, 8, 8, 10);
  for (int columns = 64; columns <= 512; columns *= 2) {
    const int lanes = columns / (2 * 16 / size_of(x));
    all.add({.lanes = lanes, .rows = head_threads / lanes, .chunks = 2, .waves_per_simd = waves});
  }
  return all;
}

/// Returns the policies that entries of a spec are built for: those of heads, and single elements for any alignment.
constexpr RowPolicies rope_policies(ArchId arch, const RopeSpec& s) {
  RowPolicies all = head_policies(arch, s.x);
  all.add({.lanes = 32, .rows = head_threads / 32, .chunks = 16, .vec = size_of(s.x), .waves_per_simd = 4});
  return all;
}

}  // namespace tilewave
