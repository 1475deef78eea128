// SPDX-License-Identifier: MIT
// How a softmax is computed: may change the speed, never the answer beyond summation order.
#pragma once

#include "tilewave/ops/softmax/spec.hpp"
#include "tilewave/tile/row_check.hpp"

namespace tilewave {

/// Rows are held as in every row operation.
using SoftmaxPolicy = RowPolicy;

/// The policies that entries of a spec are built for.
constexpr RowPolicies softmax_policies(ArchId arch, const SoftmaxSpec& s) {
  return row_policies(arch, s.x, s.x, Scaling::none, 2);
}

}  // namespace tilewave
