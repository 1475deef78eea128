// SPDX-License-Identifier: MIT
// The policy says how a normalisation is computed. It may change the speed, never the answer beyond the order of
// summation.
#pragma once

#include "tilewave/ops/norm/spec.hpp"
#include "tilewave/tile/row_check.hpp"

namespace tilewave {

/// Rows are held as in every row operation.
using NormPolicy = RowPolicy;

/// Returns the policies that entries of a spec are built for.
constexpr RowPolicies norm_policies(ArchId arch, const NormSpec& s) {
  return row_policies(arch, s.x, s.out, s.scale, 4);
}

}  // namespace tilewave
