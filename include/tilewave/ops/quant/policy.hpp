// SPDX-License-Identifier: MIT
// How a quantisation is computed: changes the speed, never a code.
#pragma once

#include "tilewave/ops/quant/spec.hpp"
#include "tilewave/tile/row_check.hpp"

namespace tilewave {

/// Rows are held as in every row operation.
using QuantPolicy = RowPolicy;

/// The policies that entries of a spec are built for: all where the largest of a row is found first. Else nothing is
/// gained by holding a long row, and blocks of 256 lanes that walk along it are enough.
constexpr RowPolicies quant_policies(ArchId arch, const QuantSpec& s) {
  const RowPolicies all = row_policies(arch, s.x, s.out, s.output().scale);
  if (s.output().scale == ScaleMode::per_token) return all;
  RowPolicies some;
  for (int i = 0; i < all.count; ++i) {
    RowPolicy p = all.list[i];
    const bool narrow = p.vec == 16 ? p.chunks == p.span : p.lanes < 256;
    if (size_of(s.x) == 1 && p.vec == 16 && !p.held) p.chunks = 2;  // 16 values each: more would not fit the registers
    if (p.block_threads() == 256 && (narrow || !p.held)) some.list[some.count++] = p;
  }
  return some;
}

}  // namespace tilewave
