// SPDX-License-Identifier: MIT
// How partial results are combined. A policy changes the speed, never the answer.
#pragma once

#include "tilewave/ops/attention_combine/spec.hpp"
#include "tilewave/tile/row_check.hpp"

namespace tilewave {

/// Part of a wave, or a wave, holds one output row, as in the row operations. The partials pass through it.
using AttentionCombinePolicy = RowPolicy;

inline constexpr int attention_combine_threads = 256;  // of a block

/// The policies that entries of a spec are built for. Some take 64 to 512 columns in accesses of 16 bytes, with no lane
/// idle. One takes up to 512 columns of any alignment.
constexpr RowPolicies attention_combine_policies(ArchId arch, const AttentionCombineSpec& s) {
  RowPolicies all;
  const int wave = facts_of(arch).wave_lanes, unit = 16 / size_of(s.x);
  const auto add = [&](int lanes, int columns, int access_columns, int vec) {
    all.add({.lanes = lanes,
             .rows = attention_combine_threads / lanes,
             .chunks = columns / (lanes * access_columns),
             .vec = vec});
  };
  for (int columns = 64; columns <= 512; columns *= 2) add(min_of(wave, columns / unit), columns, unit, 16);
  add(wave, 512, 1, size_of(s.x));
  return all;
}

}  // namespace tilewave
