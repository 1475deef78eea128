// SPDX-License-Identifier: MIT
// Logits of an indexer in plain loops, in double. Reads host memory.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "tilewave/ops/mqa_logits/problem.hpp"
#include "tilewave/reference/rows.hpp"

namespace tilewave::reference {

/// A query's logits, and for each what sums of absolute values make of it: roundings are in proportion to that.
struct MqaLogitsRow {
  std::vector<double> logits, magnitudes;
};

inline MqaLogitsRow mqa_logits_row(const MqaLogitsProblem& p, std::int64_t query) {
  const MqaLogitsSpec& s = p.spec;
  const bool paged = s.keys == MqaKeys::paged;
  const std::int64_t sequence = query / p.queries, of_sequence = query % p.queries;
  std::int64_t first = 0, end = 0;
  bool known = true;
  if (paged) {
    const std::int64_t length = p.context_lengths[sequence];
    known = length >= 0 && length <= p.columns && length <= std::int64_t{p.table_columns} * p.block_size;
    end = length - p.queries + of_sequence + 1;
  } else {
    first = p.starts[query];
    end = p.ends[query];
    known = first >= end || (first >= 0 && end <= p.columns);
  }
  constexpr double infinity = std::numeric_limits<double>::infinity();
  MqaLogitsRow row;
  row.logits.assign(p.columns, known ? -infinity : std::numeric_limits<double>::quiet_NaN());
  row.magnitudes.assign(p.columns, 0);
  if (!known) return row;
  std::vector<double> q(static_cast<std::size_t>(s.heads) * s.head_size), k(s.head_size);
  for (int h = 0; h < s.heads; ++h)
    for (int d = 0; d < s.head_size; ++d)
      q[h * s.head_size + d] = element(s.type, p.q, query * p.q_stride + h * p.q_head_stride + d);
  for (std::int64_t t = first; t < end; ++t) {
    const std::int64_t page = paged ? p.block_tables[sequence * p.table_stride + t / p.block_size] : 0;
    const std::int64_t in_page = paged ? t % p.block_size : t;
    for (int d = 0; d < s.head_size; ++d)
      k[d] = element(s.type, p.k, page * p.k_page_stride + in_page * p.k_stride + d);
    double logit = 0, magnitude = 0;
    for (int h = 0; h < s.heads; ++h) {
      double dot = 0, size = 0;
      for (int d = 0; d < s.head_size; ++d) {
        dot += q[h * s.head_size + d] * k[d];
        size += std::abs(q[h * s.head_size + d] * k[d]);
      }
      const double weight = p.weights[query * p.weights_stride + h];
      logit += weight * std::max(dot, 0.0);
      magnitude += std::abs(weight) * size;
    }
    const double scale = p.k_scale[page * p.k_scale_page_stride + in_page];
    row.logits[t] = logit * scale;
    row.magnitudes[t] = magnitude * std::abs(scale);
  }
  return row;
}

}  // namespace tilewave::reference
