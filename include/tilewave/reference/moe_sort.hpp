// SPDX-License-Identifier: MIT
// The sort of tokens by expert as plain loops. It is the oracle of tests and benchmarks, and independent of the
// kernels' code.
#pragma once

#include <vector>

#include "tilewave/ops/moe_sort/problem.hpp"

namespace tilewave::reference {

/// Every output of a problem, complete and with packed rows.
struct SortedChoices {
  std::vector<std::int32_t> ids, expert_ids, post_pad, offsets, counts, rows, row_tokens;
  std::vector<float> weights;
};

/// Returns the outputs of a problem whose inputs are on the host. Without weights the choices have weight 0.
inline SortedChoices sorted_choices(const MoeSortProblem& p) {
  const std::int32_t pad = p.topk << 24 | p.tokens;
  SortedChoices s;
  s.ids.assign(p.capacity, pad);
  s.weights.assign(p.capacity, 0.0f);
  s.row_tokens.assign(p.capacity, -1);
  s.expert_ids.assign((p.capacity + p.unit - 1) / p.unit, -1);
  s.rows.assign(std::size_t(p.tokens) * p.topk, -1);
  std::vector<std::vector<std::int32_t>> choices(p.experts);  // choices of each expert, in order
  for (std::int32_t token = 0; token < p.tokens; ++token)
    for (std::int32_t slot = 0; slot < p.topk; ++slot) {
      const std::int32_t e = p.topk_ids[token * p.ids_stride + slot];
      if (e >= 0 && e < p.experts) choices[e].push_back(token * p.topk + slot);
    }
  std::int32_t row = 0, local = 0;
  for (std::int32_t e = 0; e < p.experts; ++e) {
    if (p.expert_mask != nullptr && p.expert_mask[e] == 0) continue;
    s.offsets.push_back(row);
    s.counts.push_back(static_cast<std::int32_t>(choices[e].size()));
    for (const std::int32_t choice : choices[e]) {
      const std::int32_t token = choice / p.topk, slot = choice % p.topk;
      s.ids[row] = slot << 24 | token;
      s.row_tokens[row] = token;
      if (p.topk_weights != nullptr) s.weights[row] = p.topk_weights[token * p.weights_stride + slot];
      s.rows[choice] = row++;
    }
    const std::int32_t first_unit = s.offsets.back() / p.unit;
    row = (row + p.unit - 1) / p.unit * p.unit;
    for (std::int32_t unit = first_unit; unit < row / p.unit; ++unit) s.expert_ids[unit] = local;
    ++local;
  }
  s.offsets.resize(p.experts + 1, row);
  s.counts.resize(p.experts, 0);
  s.post_pad = {row, p.tokens};
  return s;
}

}  // namespace tilewave::reference
