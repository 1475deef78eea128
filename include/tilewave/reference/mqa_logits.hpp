// SPDX-License-Identifier: MIT
// Logits of an indexer as plain loops in double. All tensors are on the host.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "tilewave/ops/mqa_logits/problem.hpp"
#include "tilewave/reference/rows.hpp"
#include "tilewave/reference/sums.hpp"

namespace tilewave::reference {

/// The logits of a query. Each has a magnitude, the same sum over absolute values, to which rounding errors are in
/// proportion.
struct MqaLogitsRow {
  std::vector<double> logits, magnitudes;
};

/// The value of a dimension of a head of a query, or of a key. For fp4 it is multiplied by its own scale.
inline double mqa_query(const MqaLogitsProblem& p, std::int64_t query, int head, int d) {
  const std::int64_t first = query * p.q_stride + head * p.q_head_stride;
  if (p.spec.type != DType::fp4_e2m1) return element(p.spec.type, p.q, first + d);
  const auto* scales = static_cast<const std::uint8_t*>(p.q_scale) + query * p.q_scale_stride;
  return element(p.spec.type, p.q, 2 * first + d) * e8m0_to_f32(scales[head * p.spec.head_size / 32 + d / 32]);
}
inline double mqa_key(const MqaLogitsProblem& p, std::int64_t page, std::int64_t in_page, int d) {
  const std::int64_t first = page * p.k_page_stride + in_page * p.k_stride;
  if (p.spec.type != DType::fp4_e2m1) return element(p.spec.type, p.k, first + d);
  const auto* scales = static_cast<const std::uint8_t*>(p.k_scale) + page * p.k_scale_page_stride;
  return element(p.spec.type, p.k, 2 * (first + d / 32 * p.k_unit_stride) + d % 32) *
         e8m0_to_f32(scales[d / 32 * 64 + in_page % 16 * 4 + in_page / 16]);
}

inline MqaLogitsRow mqa_logits_row(const MqaLogitsProblem& p, std::int64_t query) {
  const MqaLogitsSpec& s = p.spec;
  const bool paged = s.keys == MqaKeys::paged;
  const std::int64_t sequence = query / p.queries, sequence_query = query % p.queries;
  std::int64_t first = 0, end = 0;
  bool known = true;
  if (paged) {
    const std::int64_t length = p.context_lengths[sequence];
    known = length >= 0 && length <= p.columns && length <= std::int64_t{p.table_columns} * p.block_size;
    end = length - p.queries + sequence_query + 1;
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
    for (int d = 0; d < s.head_size; ++d) q[h * s.head_size + d] = mqa_query(p, query, h, d);
  for (std::int64_t t = first; t < end; ++t) {
    const std::int64_t page = paged ? p.block_tables[sequence * p.table_stride + t / p.block_size] : 0;
    const std::int64_t in_page = paged ? t % p.block_size : t;
    for (int d = 0; d < s.head_size; ++d) k[d] = mqa_key(p, page, in_page, d);
    double logit = 0, largest_sum = 0;
    for (int h = 0; h < s.heads; ++h) {
      const double* const of_head = q.data() + h * s.head_size;
      FourDoubles dots, sizes;
      for_four(
          s.head_size,
          [&](int d) {
            const FourDoubles product = FourDoubles::at(of_head + d) * FourDoubles::at(&k[d]);
            dots += product;
            sizes += magnitude(product);
          },
          [&](int d) { dots.low[0] += of_head[d] * k[d], sizes.low[0] += std::abs(of_head[d] * k[d]); });
      const double dot = dots.sum(), size = sizes.sum();
      const double weight = p.weights[query * p.weights_stride + h];
      logit += weight * std::max(dot, 0.0);
      largest_sum += std::abs(weight) * size;
    }
    const bool fp4 = s.type == DType::fp4_e2m1;
    const double scale = fp4 ? 1 : static_cast<const float*>(p.k_scale)[page * p.k_scale_page_stride + in_page];
    row.logits[t] = logit * scale;
    row.magnitudes[t] = largest_sum * std::abs(scale);
  }
  return row;
}

}  // namespace tilewave::reference
