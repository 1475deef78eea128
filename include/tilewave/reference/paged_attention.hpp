// SPDX-License-Identifier: MIT
// Paged-attention decode in double: the reference of the tests and of the benchmark's verification.
//
// It shares nothing with the kernels but the description of a call. It reads the same bytes of the cache through the
// same strides, and decodes them to double. It takes every score first and every probability second, and has no tiles
// of queries, no splits and no running maximum. The host must be able to read the pointers of the problem.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "tilewave/core/dtype.hpp"
#include "tilewave/ops/paged_attention/problem.hpp"
#include "tilewave/reference/parallel.hpp"
#include "tilewave/reference/sums.hpp"

namespace tilewave::reference {

/// Tokens [first, end) that a query token sees.
struct VisibleTokens {
  std::int64_t first = 0, end = 0;
  constexpr std::int64_t count() const { return end > first ? end - first : 0; }
};
/// What query token i in [0, mtp) of a sequence of `length` tokens sees. Its position is length - mtp + i. It sees
/// itself and everything before it; with a sliding window W > 0 it sees only W positions back, W + 1 keys.
constexpr VisibleTokens visible_tokens(std::int64_t length, int mtp, int i, std::int64_t sliding_window) {
  const std::int64_t position = length - mtp + i;
  return {sliding_window > 0 ? std::max<std::int64_t>(0, position - sliding_window) : 0, position + 1};
}

/// A sequence and a KV head: the unit in which the reference works, and in which verification samples.
struct PagedAttentionPair {
  std::int32_t sequence = 0, kv_head = 0;
};

/// Outputs without gaps, rows and heads as in the problem. Those of pairs that were not asked for are NaN.
struct PagedAttentionResult {
  std::vector<double> out;  // [batch * mtp, num_q_heads, head_size]
  std::vector<double> lse;  // [batch * mtp, num_q_heads], natural log; -inf for a row that sees nothing
};

/// Every pair of the problem, sequences outermost.
inline std::vector<PagedAttentionPair> all_pairs(const PagedAttentionProblem& p) {
  std::vector<PagedAttentionPair> pairs;
  for (std::int32_t b = 0; b < p.batch; ++b) {
    for (std::int32_t h = 0; h < p.num_kv_heads; ++h) pairs.push_back({b, h});
  }
  return pairs;
}

namespace detail {

inline constexpr int tile_tokens = 64;
inline constexpr int lane_width =
    64;  // doubles of an innermost loop; it is a constant so that every compiler vectorises it
inline constexpr int rows_per_task = 32;

/// y[0..64) += a[0] x0 + a[1] x1 + a[2] x2 + a[3] x3, with rows of x `stride` doubles apart.
inline void accumulate(double* __restrict y, const double* a, const double* __restrict x, std::int64_t stride) {
  const double a0 = a[0], a1 = a[1], a2 = a[2], a3 = a[3];
  const double *x0 = x, *x1 = x + stride, *x2 = x + 2 * stride, *x3 = x + 3 * stride;
  const auto times = [](double a, const double* x) { return FourDoubles::all(a) * FourDoubles::at(x); };
  for (int j = 0; j < lane_width; j += 4) {
    FourDoubles sum = FourDoubles::at(y + j);
    sum += (times(a0, x0 + j) + times(a1, x1 + j)) + (times(a2, x2 + j) + times(a3, x3 + j));
    sum.to(y + j);
  }
}

/// Gives the value of a stored element. Values of fp8 codes are looked up.
class Decoder {
 public:
  explicit Decoder(DType type) : type_(type) {
    if (!is_fp8(type)) return;
    for (int code = 0; code < 256; ++code) codes_[code] = fp8_to_f32(type, static_cast<std::uint8_t>(code));
  }
  double operator()(const void* base, std::int64_t element) const {
    if (is_fp8(type_)) return codes_[static_cast<const std::uint8_t*>(base)[element]];
    if (type_ == DType::bf16) return bf16_to_f32(static_cast<const std::uint16_t*>(base)[element]);
    if (type_ == DType::f16) return f16_to_f32(static_cast<const std::uint16_t*>(base)[element]);
    if (type_ == DType::f32) return static_cast<const float*>(base)[element];
    return std::numeric_limits<double>::quiet_NaN();
  }
  /// Writes the values of `count` elements, `step` apart, to `values`.
  void row(const void* base, std::int64_t first, std::int64_t step, int count, double* values) const {
    const auto each = [&]<class Stored>(const Stored* stored, const auto& value_of) {
      for (int i = 0; i < count; ++i) values[i] = value_of(stored[first + i * step]);
    };
    if (is_fp8(type_)) {
      each(static_cast<const std::uint8_t*>(base), [&](std::uint8_t code) { return codes_[code]; });
    } else if (type_ == DType::bf16) {
      each(static_cast<const std::uint16_t*>(base), [](std::uint16_t bits) { return bf16_to_f32(bits); });
    } else {
      for (int i = 0; i < count; ++i) values[i] = (*this)(base, first + i * step);
    }
  }

 private:
  DType type_;
  std::array<double, 256> codes_{};
};

/// Rows [first_row, last_row) of one pair. Row i * gqa_ratio + g is query token i and query head kv_head * gqa_ratio +
/// g.
struct PairTask {
  const PagedAttentionProblem& p;
  const Decoder& kv;
  PagedAttentionPair pair;
  int first_row, last_row;

  int padded_head_size() const { return (p.spec.head_size + lane_width - 1) / lane_width * lane_width; }
  std::int64_t row_of(int r) const { return std::int64_t{pair.sequence} * p.mtp + r / p.gqa_ratio(); }
  int head_of(int r) const { return pair.kv_head * p.gqa_ratio() + r % p.gqa_ratio(); }
  VisibleTokens visible(int r) const {
    return visible_tokens(p.context_lengths[pair.sequence], p.mtp, r / p.gqa_ratio(), p.sliding_window);
  }
  std::int64_t page_of(std::int64_t token) const {
    return p.block_table[pair.sequence * p.table_row_stride + token / p.block_size];
  }
  double scale(const float* scales, std::int64_t token) const {
    if (p.spec.quant == Scaling::none) return 1.0;
    if (p.spec.quant == Scaling::per_tensor) return scales[0];
    if (p.spec.quant == Scaling::per_head) return scales[pair.kv_head * p.scale_head_stride];
    return scales[page_of(token) * p.scale_page_stride + pair.kv_head * p.scale_head_stride + token % p.block_size];
  }

  // k[d][token - first], which is 0 from `end` on
  void load_keys(std::int64_t first, std::int64_t end, double* k) const {
    std::fill_n(k, p.spec.head_size * tile_tokens, 0.0);
    const int x = p.spec.unit();
    for (std::int64_t t = first; t < std::min(end, first + tile_tokens); ++t) {
      const double s = scale(p.k_scale, t);
      const std::int64_t base =
          page_of(t) * p.k_strides.page + pair.kv_head * p.k_strides.head + t % p.block_size * p.k_strides.token;
      for (int d = 0; d < p.spec.head_size; ++d) {
        k[d * tile_tokens + (t - first)] = s * kv(p.k, base + d / x * p.k_strides.unit + d % x);
      }
    }
  }
  // v[token - first][d] in rows of padded_head_size() doubles, which is 0 from `end` on
  void load_values(std::int64_t first, std::int64_t end, double* v) const {
    std::fill_n(v, padded_head_size() * tile_tokens, 0.0);
    const PagedValueStrides& strides = p.v_strides;
    const int x = p.spec.unit();
    const bool token_major = p.spec.values == ValueLayout::token_major;
    for (std::int64_t t = first; t < std::min(end, first + tile_tokens); ++t) {
      const double s = scale(p.v_scale, t);
      const std::int64_t slot = t % p.block_size;
      const std::int64_t base = page_of(t) * strides.page + pair.kv_head * strides.head +
                                (token_major ? slot * strides.token : slot / x * strides.unit + slot % x);
      for (int d = 0; d < p.spec.head_size; ++d) {
        v[(t - first) * padded_head_size() + d] = s * kv(p.v, base + (token_major ? d : d * strides.dim));
      }
    }
  }

  void run(PagedAttentionResult& result) const {
    const int rows = last_row - first_row, head_size = p.spec.head_size, padded = padded_head_size();
    // The tokens any of these rows sees; whole tiles of them are computed and masked below.
    const std::int64_t first = visible(first_row).first;
    const std::int64_t end = std::max<std::int64_t>(visible(last_row - 1).end, first);
    const std::int64_t width = (end - first + tile_tokens - 1) / tile_tokens * tile_tokens;
    std::vector<double> tile(static_cast<std::size_t>(padded) * tile_tokens);
    std::vector<double> q(static_cast<std::size_t>(rows) * head_size);
    std::vector<double> p_rows(static_cast<std::size_t>(rows) * width);  // scores, then probabilities
    std::vector<double> out(static_cast<std::size_t>(rows) * padded);

    const Decoder q_values(p.spec.q);
    for (int r = 0; r < rows; ++r) {
      const std::int64_t base = row_of(first_row + r) * p.q_row_stride + head_of(first_row + r) * p.q_head_stride;
      const std::span<double> row = std::span(q).subspan(r * head_size, head_size);
      for (int d = 0; d < head_size; ++d) row[d] = q_values(p.q, base + d);
      if (p.spec.native) round_to_fp8(row);
      for (double& x : row) x *= p.softmax_scale;
    }
    for (std::int64_t t = 0; t < width; t += tile_tokens) {
      load_keys(first + t, end, tile.data());
      for (int d = 0; d < head_size; d += 4) {
        for (int r = 0; r < rows; ++r) {
          accumulate(&p_rows[r * width + t], &q[r * head_size + d], &tile[d * tile_tokens], tile_tokens);
        }
      }
    }
    for (int r = 0; r < rows; ++r) {
      const int head = head_of(first_row + r);
      const std::span<double> row = std::span(p_rows).subspan(r * width, width);
      for (std::int64_t j = 0; j < width; ++j) row[j] = final_score(row[j], first_row + r, first + j);
      const double sink = p.sinks != nullptr ? p.sinks[head] : -std::numeric_limits<double>::infinity();
      const double lse = softmax(row, first, visible(first_row + r), sink);
      result.lse[row_of(first_row + r) * p.num_q_heads + head] = lse;
    }
    for (std::int64_t t = 0; t < width; t += tile_tokens) {
      load_values(first + t, end, tile.data());
      for (int j = 0; j < tile_tokens; j += 4) {
        for (int r = 0; r < rows; ++r) {
          for (int d = 0; d < padded; d += lane_width) {
            accumulate(&out[r * padded + d], &p_rows[r * width + t + j], &tile[j * padded + d], padded);
          }
        }
      }
    }
    for (int r = 0; r < rows; ++r) {
      const std::int64_t to = (row_of(first_row + r) * p.num_q_heads + head_of(first_row + r)) * head_size;
      std::copy_n(&out[r * padded], head_size, &result.out[to]);
    }
  }

  // Rounds a row of Q as a spec with native products does. Probabilities are not rounded here.
  void round_to_fp8(std::span<double> row) const {
    double top = 0;
    for (const double x : row) top = std::max(top, std::abs(x));
    if (top == 0) return;
    const double factor = std::exp2(7 - std::floor(std::log2(top)));
    for (double& x : row) x = fp8_to_f32(p.spec.kv, f32_to_fp8(p.spec.kv, static_cast<float>(x * factor))) / factor;
  }
  // The score of token t, as it enters the softmax of row r.
  double final_score(double score, int r, std::int64_t t) const {
    if (p.spec.soft_cap) score = double{p.soft_cap} * std::tanh(score / double{p.soft_cap});
    if (p.spec.alibi) score += double{p.alibi_slopes[head_of(r)]} * static_cast<double>(t - (visible(r).end - 1));
    return score;
  }
  // Turns the scores of the tokens from `first` on into probabilities, 0 where masked. Returns the natural log of the
  // sum, the sink included.
  static double softmax(std::span<double> row, std::int64_t first, VisibleTokens seen, double sink) {
    double largest = sink, sum = 0;
    for (std::int64_t t = seen.first; t < seen.end; ++t) largest = std::max(largest, row[t - first]);
    for (std::int64_t j = 0; j < std::ssize(row); ++j) {
      const bool masked = first + j < seen.first || first + j >= seen.end;
      row[j] = masked ? 0.0 : std::exp(row[j] - largest);
      sum += row[j];
    }
    if (largest == -std::numeric_limits<double>::infinity()) return largest;  // neither a token nor a sink
    sum += std::exp(sink - largest);
    for (double& probability : row) probability /= sum;
    return largest + std::log(sum);
  }
};

}  // namespace detail

/// Computes the given pairs, or all pairs if none are given, on `threads` threads (0: one for each core). head_size
/// must be a multiple of 4, and the problem must be one that the library accepts. An empty sequence or row gives 0 with
/// lse -inf, or its sink.
inline PagedAttentionResult paged_attention(const PagedAttentionProblem& p, int threads = 0,
                                            std::span<const PagedAttentionPair> pairs = {}) {
  constexpr double nan = std::numeric_limits<double>::quiet_NaN();
  const std::int64_t rows = std::int64_t{p.batch} * p.mtp * p.num_q_heads;
  PagedAttentionResult result{std::vector<double>(static_cast<std::size_t>(rows) * p.spec.head_size, nan),
                              std::vector<double>(static_cast<std::size_t>(rows), nan)};
  const std::vector<PagedAttentionPair> everything = pairs.empty() ? all_pairs(p) : std::vector<PagedAttentionPair>{};
  if (pairs.empty()) pairs = everything;
  const detail::Decoder kv(p.spec.kv);
  const int pair_rows = p.num_kv_heads > 0 ? p.kv_head_rows() : 0;
  const int tasks_per_pair = (pair_rows + detail::rows_per_task - 1) / detail::rows_per_task;
  parallel_for(std::ssize(pairs) * tasks_per_pair, threads, [&](std::int64_t task) {
    const int from = static_cast<int>(task % tasks_per_pair) * detail::rows_per_task;
    const int to = std::min(from + detail::rows_per_task, pair_rows);
    detail::PairTask{p, kv, pairs[task / tasks_per_pair], from, to}.run(result);
  });
  return result;
}

}  // namespace tilewave::reference
