// SPDX-License-Identifier: MIT
// Reductions of experts' results as plain loops in double. They are the oracle of tests and benchmarks.
#pragma once

#include <cmath>
#include <vector>

#include "tilewave/ops/moe_reduce/problem.hpp"
#include "tilewave/reference/rows.hpp"

namespace tilewave::reference {

struct ReducedRow {
  std::vector<double> values;
  std::vector<double> magnitudes;  // sums of absolute values, to which errors of a sum are relative
};

/// True if slot k of a token counts.
inline bool slot_counts(const MoeReduceProblem& p, std::int64_t token, std::int32_t k) {
  const std::int64_t at = token * p.topk + k;
  if (p.slots != nullptr && (p.slots[at] < 0 || p.slots[at] >= p.x_rows)) return false;
  if (p.expert_mask == nullptr) return true;
  const std::int32_t expert = p.topk_ids[at];
  return expert >= 0 && expert < p.experts && p.expert_mask[expert] != 0;
}

/// Returns one row of a problem whose tensors are on the host.
inline ReducedRow moe_reduce_row(const MoeReduceProblem& p, std::int32_t row) {
  ReducedRow r{std::vector<double>(p.columns), std::vector<double>(p.columns)};
  const auto add = [&](const void* data, std::int64_t start, double weight) {
    for (std::int32_t c = 0; c < p.columns; ++c) {
      const double v = weight * element(p.spec.x, data, start + c);
      r.values[c] += v;
      r.magnitudes[c] += std::abs(v);
    }
  };
  for (std::int32_t k = 0; k < p.topk; ++k) {
    if (!slot_counts(p, row, k)) continue;
    const std::int64_t at = std::int64_t{row} * p.topk + k;
    const std::int64_t start = p.slots != nullptr ? p.slots[at] * p.x_stride : row * p.x_stride + k * p.x_slot_stride;
    add(p.x, start, p.weights != nullptr ? p.weights[at] : 1.0);
  }
  if (p.residual != nullptr) add(p.residual, row * p.residual_stride, 1.0);
  return r;
}

}  // namespace tilewave::reference
