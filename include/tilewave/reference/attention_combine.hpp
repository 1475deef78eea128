// SPDX-License-Identifier: MIT
// Combine of partial attention results as plain loops in double: the reference of its tests and its benchmark.
#pragma once

#include <cmath>
#include <limits>
#include <vector>

#include "tilewave/ops/attention_combine/problem.hpp"
#include "tilewave/reference/rows.hpp"

namespace tilewave::reference {

struct CombinedRow {
  std::vector<double> values;  // [head_size]
  double lse = 0;              // natural log, -inf if no partial has weight
};

/// One output row of a problem. All tensors are on the host.
inline CombinedRow combined_row(const AttentionCombineProblem& p, std::int64_t row, std::int64_t head) {
  constexpr double minus_infinity = -std::numeric_limits<double>::infinity();
  const auto at = [&](const PartialStrides& s, std::int64_t i) { return i * s.partial + row * s.row + head * s.head; };
  double largest = minus_infinity, sum = 0;
  for (int i = 0; i < p.partials; ++i) largest = std::max(largest, double{p.x_lse[at(p.x_lse_strides, i)]});
  CombinedRow r{std::vector<double>(p.head_size, 0.0), minus_infinity};
  if (largest == minus_infinity) return r;
  for (int i = 0; i < p.partials; ++i) {
    const double lse = p.x_lse[at(p.x_lse_strides, i)];
    if (lse == minus_infinity) continue;
    const double weight = std::exp(lse - largest);
    sum += weight;
    for (int d = 0; d < p.head_size; ++d) r.values[d] += weight * element(p.spec.x, p.x, at(p.x_strides, i) + d);
  }
  for (double& value : r.values) value /= sum;
  r.lse = largest + std::log(sum);
  return r;
}

}  // namespace tilewave::reference
