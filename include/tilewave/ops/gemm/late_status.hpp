// SPDX-License-Identifier: MIT
// The laws of GemmPolicy::late.
#pragma once

#include "tilewave/core/status.hpp"
#include "tilewave/ops/gemm/policy.hpp"

namespace tilewave::detail {

/// Says whether values of a tile may wait in registers while the next tile is multiplied. Errors: bad_value with the
/// law that is broken.
constexpr Status gemm_late_status(const GemmSpec& s, const GemmPolicy& p) {
  const bool promoted = s.has_sums_to_choose() && s.sums == GemmSums::promoted;
  if (p.late && (s.scale == Scaling::per_block || promoted || s.four_bit() || p.swapped || p.pingpong || p.splits > 1 ||
                 p.stream || s.groups != GemmGroups::one))
    return {StatusCode::bad_value,
            "late: sums stay in the matrix unit, tiles are not swapped, K is not shared, and there are no groups"};
  if (p.late && (size_of(s.out) != 2 || s.out_scale != Scaling::none))
    return {StatusCode::bad_value, "late: values that wait in registers have 16 bits and no scales"};
  return {};
}

}  // namespace tilewave::detail
