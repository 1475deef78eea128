// SPDX-License-Identifier: MIT
// The laws of wave groups that share the K of a tile (sm90).
#pragma once

#include <numeric>

#include "tilewave/arch/facts.hpp"
#include "tilewave/core/status.hpp"
#include "tilewave/ops/gemm/policy.hpp"

namespace tilewave::detail {

/// Says whether wave groups of GemmTensorKernel may share K (GemmPolicy::waves_k), and whether the sums of all that
/// share it fit the ring, where they are merged. Errors: bad_value with the law that is broken.
constexpr Status gemm_shared_k_status(const GemmSpec& s, const GemmPolicy& p) {
  if (p.waves_k > 1 &&
      (!s.rounds_weights() || s.groups != GemmGroups::one || p.sharers() > 1 || p.waves_per_simd > 1 ||
       p.waves_columns > 1 || p.depth_bytes != 256 || p.stages % p.waves_k != 0 || p.stages < std::lcm(2, p.waves_k)))
    return {
        StatusCode::bad_value,
        "wave groups share K by weights of i4 that are rounded: stages of 128 k, as many for each group, at least two"};
  const int row_bytes = p.depth_bytes * (p.swapped ? p.rows : p.columns),
            tall_bytes =
                (s.four_bit() ? p.depth_bytes / size_of(s.a) / 2 : p.depth_bytes) * (p.swapped ? p.columns : p.rows);
  const int sums = p.waves_k * p.rows * (p.columns + 4) * static_cast<int>(sizeof(float));
  if ((p.splits > 1 || p.waves_k > 1) && sums > p.stages * (row_bytes + tall_bytes))
    return {StatusCode::bad_value, "those who share K merge their sums in the ring, which must hold them all in f32"};
  return {};
}

}  // namespace tilewave::detail
