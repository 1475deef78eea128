// SPDX-License-Identifier: MIT
// What a row of bench_mla ought to be: latent attention in double, in the absorbed form, which needs no keys and values
// of all tokens, and the projections of a layer.
#pragma once

#include "bench/harness/rows/row_op.hpp"
#include "bench/ops/mla_prefill/tensors.hpp"
#include "tilewave/reference/mla_decode.hpp"

namespace tilewave::bench {

using Doubles = std::vector<double>;

inline double bf16_at(const void* from, std::int64_t at) { return reference::element(DType::bf16, from, at); }
/// Returns the products of a vector with rows of a matrix of bf16, from row `first` on.
inline Doubles times(const void* matrix, std::int64_t first, std::int64_t rows, const Doubles& x) {
  const auto columns = static_cast<std::int64_t>(x.size());
  Doubles y(rows);
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t c = 0; c < columns; ++c) y[r] += bf16_at(matrix, (first + r) * columns + c) * x[c];
  return y;
}
inline Doubles normed(const Doubles& x, const void* weight, double eps) {
  double squares = 0;
  for (const double e : x) squares += e * e;
  Doubles y(x.size());
  for (std::size_t i = 0; i < x.size(); ++i)
    y[i] = x[i] / std::sqrt(squares / static_cast<double>(x.size()) + eps) * bf16_at(weight, static_cast<int>(i));
  return y;
}

/// What a head puts out, and the sums of the absolute values of its terms.
struct MlaHeadOut {
  Doubles out, magnitudes;
};
/// Returns what head h puts out for a query [192] that sees the first `seen` tokens of its sequence.
inline MlaHeadOut mla_head_out(const MlaPrefillProblem& p, std::int32_t sequence, std::int64_t seen, std::int32_t h,
                               const Doubles& q) {
  const LatentRow layout = p.spec.row();
  const std::int64_t size = size_of(layout.kv), up = std::int64_t{h} * 2 * mla_nope_size;
  Doubles absorbed(layout.head_size);
  for (int i = 0; i < mla_nope_size; ++i)
    for (int d = 0; d < latent_value_size; ++d) absorbed[d] += q[i] * bf16_at(p.up, (up + i) * p.up_stride + d);
  for (int d = 0; d < mla_rope_size; ++d) absorbed[latent_value_size + d] = q[mla_nope_size + d];
  double largest = -1e300, sum = 0;
  Doubles scores(seen), latent(latent_value_size), magnitude(latent_value_size);
  const auto row_of = [&](std::int64_t t) {
    const std::int64_t page = p.block_table[sequence * p.table_row_stride + t / p.block_size];
    const std::int64_t at = (page * p.page_stride + t % p.block_size * p.token_stride) * size;
    return reference::latent_row(layout, static_cast<const unsigned char*>(p.kv) + at, nullptr,
                                 p.kv_scale != nullptr ? *p.kv_scale : 1.0);
  };
  for (std::int64_t t = 0; t < seen; ++t) {
    const Doubles row = row_of(t);
    for (int d = 0; d < layout.head_size; ++d) scores[t] += p.softmax_scale * absorbed[d] * row[d];
    largest = std::max(largest, scores[t]);
  }
  for (double& score : scores) sum += score = std::exp(score - largest);
  for (std::int64_t t = 0; t < seen; ++t) {
    const Doubles row = row_of(t);
    for (int d = 0; d < latent_value_size; ++d) {
      latent[d] += scores[t] / sum * row[d];
      magnitude[d] += scores[t] / sum * row[d] * row[d];
    }
  }
  MlaHeadOut head{times(p.up, up + mla_nope_size, mla_value_size, latent), Doubles(mla_value_size)};
  // The root of a sum of squares: the usual size of a value, not the largest that it may have.
  for (int i = 0; i < mla_value_size; ++i) {
    for (int d = 0; d < latent_value_size; ++d) {
      const double weight = bf16_at(p.up, (up + mla_nope_size + i) * p.up_stride + d);
      head.magnitudes[i] += weight * weight * magnitude[d];
    }
    head.magnitudes[i] = std::sqrt(head.magnitudes[i]);
  }
  return head;
}

/// Compares two heads of a token. Keys, values, probabilities and results of chunks are rounded to bf16: a score is off
/// by a thousandth or two, and so is what it weighs.
inline void verify_prefill(const MlaPrefillProblem& p, std::int32_t token, RowErrors& errors) {
  const std::int32_t sequence = token / p.q_length, last = p.kv_lengths[sequence] - p.q_length + token % p.q_length;
  for (const std::int32_t h : {token % p.q_heads, (token * 7 + 3) % p.q_heads}) {
    Doubles q(mla_head_size);
    for (int d = 0; d < mla_head_size; ++d) q[d] = bf16_at(p.q, token * p.q_token_stride + h * p.q_head_stride + d);
    const MlaHeadOut want = mla_head_out(p, sequence, last + 1, h, q);
    for (int d = 0; d < mla_value_size; ++d) {
      const double got = bf16_at(p.out, token * p.out_token_stride + h * p.out_head_stride + d);
      errors.out(std::abs(got - want.out[d]) <= 0x1p-6 * want.magnitudes[d] + 0x1p-7 * std::abs(want.out[d]), token,
                 h * mla_value_size + d, got, want.out[d]);
    }
  }
}

/// Compares two heads of a token of a batched product.
inline void verify_absorbed(const MlaTimedProblem& timed, std::int32_t token, RowErrors& errors) {
  const GemmProblem g = mla_absorbed_product(timed);
  const bool nn = g.spec.layout == GemmLayout::nn;
  for (const std::int32_t h : {token % g.batch, (token * 7 + 3) % g.batch}) {
    for (std::int32_t n = 0; n < g.n; ++n) {
      double want = 0, magnitude = 0;
      for (std::int32_t k = 0; k < g.k; ++k) {
        const std::int64_t b = h * g.b_batch_stride + (nn ? k * g.b_stride + n : n * g.b_stride + k);
        const double term = bf16_at(g.a, token * g.a_stride + h * g.a_batch_stride + k) * bf16_at(g.b, b);
        want += term, magnitude += std::abs(term);
      }
      const double got = bf16_at(g.out, token * g.out_stride + h * g.out_batch_stride + n);
      errors.out(std::abs(got - want) <= 0x1p-8 * std::abs(want) + 0x1p-20 * magnitude, token, h * g.n + n, got, want);
    }
  }
}

/// Compares a token of a layer. Rows of the cache are those that the layer wrote. Every step rounds to bf16: outputs are
/// off by up to a twentieth of their usual size.
inline void verify_layer(const MlaTimedProblem& timed, std::int32_t token, RowErrors& errors) {
  const MlaLayerShape& s = timed.shape;
  const MlaLayerTensors& l = timed.layer;
  const std::int32_t each = s.tokens / s.batch, sequence = token / each, position = l.positions[token];
  Doubles x(s.hidden);
  for (std::int32_t c = 0; c < s.hidden; ++c) x[c] = bf16_at(l.x, std::int64_t{token} * s.hidden + c);
  const Doubles q =
      times(l.query, 0, std::int64_t{s.heads} * mla_head_size, normed(times(l.first, 0, s.q_rank, x), l.q_norm, s.eps));
  Doubles heads;
  for (std::int32_t h = 0; h < s.heads; ++h) {
    Doubles of_head(q.begin() + h * mla_head_size, q.begin() + (h + 1) * mla_head_size);
    for (int i = 0; i < mla_rope_size / 2; ++i) {
      const double c = static_cast<const float*>(l.cos)[position * 32 + i];
      const double n = static_cast<const float*>(l.sin)[position * 32 + i];
      double &x0 = of_head[mla_nope_size + 2 * i], &x1 = of_head[mla_nope_size + 2 * i + 1];
      const double y0 = x0 * c - x1 * n, y1 = x1 * c + x0 * n;
      x0 = y0, x1 = y1;
    }
    const MlaHeadOut head = mla_head_out(timed.prefill, sequence, position + 1, h, of_head);
    heads.insert(heads.end(), head.out.begin(), head.out.end());
  }
  const Doubles want = times(l.output, 0, s.hidden, heads);
  double squares = 0;
  for (const double w : want) squares += w * w;
  const double usual = std::sqrt(squares / s.hidden);
  for (std::int32_t c = 0; c < s.hidden; ++c) {
    const double got = bf16_at(l.out, std::int64_t{token} * s.hidden + c);
    errors.out(std::abs(got - want[c]) <= 0.05 * usual + 0x1p-7 * std::abs(want[c]), token, c, got, want[c]);
  }
}

}  // namespace tilewave::bench
