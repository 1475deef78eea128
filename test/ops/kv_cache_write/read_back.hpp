// SPDX-License-Identifier: MIT
// Reads a written cache as paged attention does: one sequence, whose pages are 2, 0 and 1.
#pragma once

#include "test/ops/kv_cache_write/call.hpp"

namespace tilewave::test {

inline constexpr std::int32_t read_back_table[] = {2, 0, 1};
/// The slot of a token in these pages of 16 tokens.
inline std::int64_t read_back_slot(int token) { return token < 16 ? 32 + token : token - 16; }
/// Dimension d of a query, the same in every head.
inline float read_back_query(int d) { return d % 3 == 0 ? 0.25f : -0.125f * static_cast<float>(d % 2); }

/// A problem of attention over the caches of w, with one query for each KV head and no tensors of its own.
inline PagedAttentionProblem read_back_problem(const KvCacheWriteProblem& w, const void* k_cache, const void* v_cache) {
  PagedAttentionProblem p;
  p.spec = {.q = w.spec.x,
            .kv = w.spec.kv,
            .out = w.spec.x,
            .quant = w.spec.quant,
            .head_size = w.head_size,
            .values = w.values};
  p.k = k_cache;
  p.v = v_cache;
  p.k_scale = static_cast<const float*>(w.k_scale);
  p.v_scale = w.v_scale;
  p.softmax_scale = 0.5f;
  p.batch = 1;
  p.num_q_heads = p.num_kv_heads = w.kv_heads;
  p.block_size = w.block_size;
  p.table_columns = 3;
  p.num_pages = 3;
  p.q_row_stride = p.out_row_stride = std::int64_t{w.kv_heads} * w.head_size;
  p.q_head_stride = p.out_head_stride = w.head_size;
  p.k_strides = w.k_cache_strides;
  p.v_strides = w.v_cache_strides;
  p.scale_page_stride = w.scale_page_stride;
  p.scale_head_stride = w.scale_head_stride;
  p.table_row_stride = 3;
  return p;
}

/// The same attention in double, over k and v as they were given, or as they were before they were rounded.
inline std::vector<double> attended(const KvCacheWriteProblem& w, int tokens, int head) {
  std::vector<double> sum(w.head_size);
  double weights = 0;
  for (int t = 0; t < tokens; ++t) {
    const std::vector<double> k = reference::written_head(w, reference::HeadOf::k, t, head);
    const std::vector<double> v = reference::written_head(w, reference::HeadOf::v, t, head);
    double score = 0;
    for (int d = 0; d < w.head_size; ++d) score += 0.5 * read_back_query(d) * k[d];
    weights += std::exp(score);
    for (int d = 0; d < w.head_size; ++d) sum[d] += std::exp(score) * v[d];
  }
  for (double& x : sum) x /= weights;
  return sum;
}

/// |got - wanted| / |wanted| in the l2 norm.
template <class Got>
double relative_error(const std::vector<double>& wanted, const Got& got) {
  double error = 0, norm = 0;
  for (int d = 0; d < static_cast<int>(wanted.size()); ++d) {
    error += std::pow(got(d) - wanted[d], 2);
    norm += std::pow(wanted[d], 2);
  }
  return std::sqrt(error / norm);
}

}  // namespace tilewave::test
