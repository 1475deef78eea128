// SPDX-License-Identifier: MIT
// The policy says how a sampling is computed. It may change the speed, never the answer.
#pragma once

#include "tilewave/ops/sampling/spec.hpp"
#include "tilewave/tile/row_check.hpp"

namespace tilewave {

/// Each wave of a row has one segment of it, in tiles of `chunks` accesses of a lane.
using SamplingPolicy = RowPolicy;

/// Returns the policies that entries of a spec are built for: a row in one wave; on Hopper in a block or a cluster;
/// rows read again for every pass; unaligned rows. Clusters of 4 and 8 hold 131072 and 262144 bf16 logits for few rows;
/// their blocks have few waves, which wait for each other. With 64 rows two of these clusters would be left for a
/// second round. Clusters of two blocks, with 131072 and 212992 logits, have an SM for each block. A CU takes longer to
/// weigh logits than to read them again from L2.
constexpr RowPolicies sampling_policies(ArchId arch, const SamplingSpec& s) {
  RowPolicies all;
  const auto add = [&](const RowPolicy& p) { all.add(p); };
  const bool hopper = facts_of(arch).family == Family::hopper;
  const int wave = facts_of(arch).wave_lanes;
  add({.lanes = wave, .chunks = 4, .waves_per_simd = 4});
  if (hopper) {
    add({.lanes = 512, .chunks = 8, .waves_per_simd = 8});
    for (const int blocks : {4, 8}) add({.lanes = 256, .chunks = 16, .blocks = blocks, .waves_per_simd = 4});
    for (const int chunks : {16, 26}) add({.lanes = 512, .chunks = chunks, .blocks = 2, .waves_per_simd = 4});
  }
  const int lanes = hopper ? 512 : 1024, waves = hopper ? 8 : 4;
  add({.lanes = lanes, .chunks = 4, .held = false, .waves_per_simd = waves});
  add({.lanes = lanes, .chunks = 16, .vec = size_of(s.x), .held = false, .waves_per_simd = waves});
  return all;
}

}  // namespace tilewave
