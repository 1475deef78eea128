// SPDX-License-Identifier: MIT
// Flash attention in double is the oracle of the tests and of the benchmark's verification.
//
// It shares nothing with the kernels but the description of a call. It reads the same bytes through the same strides,
// decodes them to double, and takes every score first and every probability second. Pointers of the problem must be
// readable by the host.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "tilewave/ops/flash_attention/problem.hpp"
#include "tilewave/reference/paged_attention.hpp"
#include "tilewave/reference/sums.hpp"

namespace tilewave::reference {

/// The answer for one query of one head.
struct FlashAttentionRow {
  std::vector<double> out;         // [value_size], scaled as out_scale says, not rounded
  std::vector<double> magnitudes;  // [value_size]: sums of the absolute values of the terms of `out`
  double lse = -std::numeric_limits<double>::infinity();  // natural log
};

/// The tokens of a sequence: how many it has, and the first of them in packed tensors.
struct FlashAttentionTokens {
  std::int64_t q_first, q_count, kv_first, kv_count;
  bool beyond_capacity;
};
/// Returns the tokens of a sequence, as its starts, lengths and the capacities of the call say.
inline FlashAttentionTokens flash_attention_tokens(const FlashAttentionProblem& p, std::int32_t sequence) {
  FlashAttentionTokens t{std::int64_t{sequence} * p.q_length, p.q_length, 0, p.kv_length, false};
  if (p.q_starts != nullptr) t.q_first = p.q_starts[sequence], t.q_count = p.q_starts[sequence + 1] - t.q_first;
  if (p.kv_starts != nullptr) t.kv_first = p.kv_starts[sequence], t.kv_count = p.kv_starts[sequence + 1] - t.kv_first;
  if (p.kv_lengths != nullptr) t.kv_count = std::max(0, p.kv_lengths[sequence]);
  const std::int64_t most = p.spec.paged() ? std::int64_t{p.table_columns} * p.block_size : p.kv_length;
  t.beyond_capacity = t.q_count > p.q_length || t.kv_count > most;
  return t;
}

namespace detail {

/// Reads the elements that query head `q_head` of a sequence needs, as doubles.
struct FlashAttentionReader {
  const FlashAttentionProblem& p;
  std::int32_t sequence, q_head;
  FlashAttentionTokens tokens;
  Decoder q, kv;

  FlashAttentionReader(const FlashAttentionProblem& p, std::int32_t sequence, std::int32_t q_head)
      : p(p),
        sequence(sequence),
        q_head(q_head),
        tokens(flash_attention_tokens(p, sequence)),
        q(p.spec.q),
        kv(p.spec.kv) {}

  std::int64_t kv_head() const { return q_head / (p.q_heads / p.kv_heads); }
  static std::int64_t packed(const TokenStrides& s, bool is_packed, std::int64_t first, std::int64_t sequence,
                             std::int64_t token, std::int64_t head) {
    return (is_packed ? first * s.token : sequence * s.sequence) + token * s.token + head * s.head;
  }
  double query(std::int64_t i, int d) const {
    return q(p.q, packed(p.q_strides, p.q_starts != nullptr, tokens.q_first, sequence, i, q_head) + d);
  }
  std::int64_t page(std::int64_t t) const { return p.block_table[sequence * p.table_row_stride + t / p.block_size]; }
  /// Writes key t, head_size values.
  void key(std::int64_t t, double* values) const {
    const int size = p.spec.head_size;
    if (!p.spec.paged()) {
      return kv.row(p.k, packed(p.k_strides, p.kv_starts != nullptr, tokens.kv_first, sequence, t, kv_head()), 1, size,
                    values);
    }
    const PagedKeyStrides& s = p.k_page_strides;
    const int x = p.spec.unit();
    const std::int64_t first = page(t) * s.page + kv_head() * s.head + t % p.block_size * s.token;
    for (int d = 0; d < size; d += x) kv.row(p.k, first + d / x * s.unit, 1, std::min(x, size - d), values + d);
  }
  /// Writes value t, value_size values.
  void value(std::int64_t t, double* values) const {
    const int size = p.spec.value_size;
    if (!p.spec.paged()) {
      return kv.row(p.v, packed(p.v_strides, p.kv_starts != nullptr, tokens.kv_first, sequence, t, kv_head()), 1, size,
                    values);
    }
    const PagedValueStrides& s = p.v_page_strides;
    const std::int64_t in_page = t % p.block_size, x = p.spec.unit(), head = page(t) * s.page + kv_head() * s.head;
    if (p.spec.values == ValueLayout::dim_major)
      return kv.row(p.v, head + in_page / x * s.unit + in_page % x, s.dim, size, values);
    kv.row(p.v, head + in_page * s.token, 1, size, values);
  }
  double scale(const float* scales, std::int64_t t) const {
    switch (p.spec.quant) {
      case Scaling::none: return 1.0;
      case Scaling::per_tensor: return scales[0];
      case Scaling::per_head: return scales[kv_head() * p.scale_head_stride];
      case Scaling::per_token:
        return scales[page(t) * p.scale_page_stride + kv_head() * p.scale_head_stride + t % p.block_size];
      default: return 1.0;  // flash_attention_check refuses the others
    }
  }
  double q_scale() const { return is_fp8(p.spec.q) ? p.q_scale[p.spec.quant == Scaling::per_head ? q_head : 0] : 1.0; }
  bool sees(std::int64_t i, std::int64_t t) const {
    const std::int64_t position = tokens.kv_count - tokens.q_count + i;
    if (p.causal && t > position) return false;
    if (p.window_right >= 0 && t > position + p.window_right) return false;
    if (p.window_left >= 0 && t < position - p.window_left) return false;
    if (!p.spec.bit_mask) return true;
    return (p.mask[(tokens.q_first + i) * p.mask_token_stride + t / 32] >> (t % 32) & 1) != 0;
  }
};

}  // namespace detail

/// Returns the answer for query i of a sequence and one head. A sequence beyond the call's capacity gives NaN
/// throughout.
inline FlashAttentionRow flash_attention_row(const FlashAttentionProblem& p, std::int32_t sequence, std::int64_t i,
                                             std::int32_t q_head) {
  constexpr double infinity = std::numeric_limits<double>::infinity();
  const detail::FlashAttentionReader read(p, sequence, q_head);
  const int head_size = p.spec.head_size, value_size = p.spec.value_size;
  FlashAttentionRow row;
  row.out.assign(value_size, 0.0), row.magnitudes.assign(value_size, 0.0);
  if (read.tokens.beyond_capacity) {
    row.out.assign(value_size, std::numeric_limits<double>::quiet_NaN());
    row.lse = std::numeric_limits<double>::quiet_NaN();
    return row;
  }
  std::vector<double> q(head_size), decoded(std::max(head_size, value_size)), scores(read.tokens.kv_count, -infinity);
  for (int d = 0; d < head_size; ++d) q[d] = read.q_scale() * read.query(i, d);
  const double position = static_cast<double>(read.tokens.kv_count - read.tokens.q_count + i);
  double largest = p.sinks != nullptr ? p.sinks[q_head] : -infinity;
  for (std::int64_t t = 0; t < read.tokens.kv_count; ++t) {
    if (!read.sees(i, t)) continue;
    read.key(t, decoded.data());
    FourDoubles products;
    for_four(
        head_size, [&](int d) { products += FourDoubles::at(&q[d]) * FourDoubles::at(&decoded[d]); },
        [&](int d) { products.low[0] += q[d] * decoded[d]; });
    double score = products.sum() * (read.scale(p.k_scale, t) * p.softmax_scale);
    if (p.spec.soft_cap) score = p.soft_cap * std::tanh(score / p.soft_cap);
    if (p.spec.alibi) score -= p.alibi_slopes[q_head] * std::abs(static_cast<double>(t) - position);
    scores[t] = score;
    largest = std::max(largest, score);
  }
  if (largest == -infinity) return row;  // neither a key nor a sink
  double sum = p.sinks != nullptr ? std::exp(p.sinks[q_head] - largest) : 0.0;
  for (const double score : scores) sum += std::exp(score - largest);
  row.lse = largest + std::log(sum);
  const double out_scale = is_fp8(p.spec.out) ? p.out_scale[0] : 1.0;
  for (std::int64_t t = 0; t < read.tokens.kv_count; ++t) {
    if (scores[t] == -infinity) continue;
    const double weight = std::exp(scores[t] - row.lse) * read.scale(p.v_scale, t) * out_scale;
    read.value(t, decoded.data());
    const auto add = [](double* to, const FourDoubles& more) { (FourDoubles::at(to) + more).to(to); };
    for_four(
        value_size,
        [&](int d) {
          const FourDoubles part = FourDoubles::all(weight) * FourDoubles::at(&decoded[d]);
          add(&row.out[d], part), add(&row.magnitudes[d], magnitude(part));
        },
        [&](int d) {
          const double part = weight * decoded[d];
          row.out[d] += part;
          row.magnitudes[d] += std::abs(part);
        });
  }
  return row;
}

}  // namespace tilewave::reference
