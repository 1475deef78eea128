// SPDX-License-Identifier: MIT
// Decode of latent attention in double is the oracle of the tests and of the benchmark's verification.
//
// It shares nothing with the kernels but the description of a call. It reads the same bytes, decodes them to double,
// and takes every score first and every probability second. Pointers of the problem must be readable by the host.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

#include "tilewave/ops/mla_decode/problem.hpp"
#include "tilewave/reference/paged_attention.hpp"

namespace tilewave::reference {

/// Returns the dimensions of a token's row. `row` is its first byte, and `scales` that of its scales if they lie apart.
inline std::vector<double> latent_row(const LatentRow& layout, const unsigned char* row, const unsigned char* scales,
                                      double plain_scale) {
  std::vector<double> x(layout.head_size);
  const detail::Decoder kv(layout.kv), wide(DType::bf16);
  for (int d = 0; d < layout.head_size; ++d) {
    if (layout.layout == LatentLayout::plain) {
      x[d] = kv(row, d) * plain_scale;
    } else if (d >= layout.codes()) {
      x[d] = wide(row + layout.wide_byte(), d - layout.codes());
    } else if (layout.layout == LatentLayout::groups_128) {
      float scale;
      std::memcpy(&scale, row + layout.scale_byte() + 4 * (d / 128), 4);
      x[d] = kv(row, d) * scale;
    } else {
      x[d] = kv(row, d) * e8m0_to_f32(scales[d / 64]);
    }
  }
  return x;
}

/// The answer for one query token of one head.
struct MlaDecodeRow {
  std::vector<double> out;         // [512]
  std::vector<double> magnitudes;  // [512]: sums of the absolute values of the terms of `out`
  std::vector<double> values;      // [512]: the same without their weights
  double score_error =
      0.0;  // the largest sum of absolute terms of a score: what rounded rows may change it by, in 2^-8
  double lse = -std::numeric_limits<double>::infinity();  // natural log
};

/// Returns the answer for query token i of a sequence and one head. A sequence beyond the block table gives NaN
/// throughout.
inline MlaDecodeRow mla_decode_row(const MlaDecodeProblem& p, std::int32_t sequence, std::int32_t i,
                                   std::int32_t head) {
  constexpr double infinity = std::numeric_limits<double>::infinity();
  MlaDecodeRow row;
  row.out.assign(latent_value_size, 0.0), row.magnitudes.assign(latent_value_size, 0.0),
      row.values.assign(latent_value_size, 0.0);
  const std::int64_t length = std::max(0, p.context_lengths[sequence]);
  if (length > p.capacity()) {
    row.out.assign(latent_value_size, std::numeric_limits<double>::quiet_NaN());
    row.lse = std::numeric_limits<double>::quiet_NaN();
    return row;
  }
  const LatentRow layout = p.spec.row();
  const std::int64_t size = size_of(layout.kv);
  const detail::Decoder of_q(p.spec.q);
  const std::int64_t q_at = (std::int64_t{sequence} * p.query_tokens + i) * p.q_row_stride + head * p.q_head_stride;
  const double q_scale = p.q_scale != nullptr ? *p.q_scale : 1.0, kv_scale = p.kv_scale != nullptr ? *p.kv_scale : 1.0;
  const std::int64_t seen = std::max<std::int64_t>(0, length - p.query_tokens + i + 1);
  std::vector<double> scores(seen), q(layout.head_size);
  for (int d = 0; d < layout.head_size; ++d) q[d] = of_q(p.q, q_at + d) * q_scale * p.softmax_scale;
  std::vector<std::vector<double>> rows(seen);
  double largest = p.sinks != nullptr ? p.sinks[head] : -infinity;
  for (std::int64_t t = 0; t < seen; ++t) {
    const std::int64_t page = p.block_table[sequence * p.table_row_stride + t / p.block_size];
    const std::int64_t in_page = t % p.block_size;
    const auto* const page_at = static_cast<const unsigned char*>(p.kv) + page * p.page_stride * size;
    rows[t] = latent_row(layout, page_at + in_page * p.token_stride * size,
                         page_at + std::int64_t{p.block_size} * layout.token_bytes() + in_page * LatentRow::apart_bytes,
                         kv_scale);
    FourDoubles terms, sizes;
    const double* const key = rows[t].data();
    for_four(
        layout.head_size,
        [&](int d) {
          const FourDoubles term = FourDoubles::at(&q[d]) * FourDoubles::at(key + d);
          terms += term;
          sizes += magnitude(term);
        },
        [&](int d) { terms.low[0] += q[d] * key[d], sizes.low[0] += std::abs(q[d] * key[d]); });
    scores[t] = terms.sum();
    row.score_error = std::max(row.score_error, sizes.sum());
    largest = std::max(largest, scores[t]);
  }
  if (largest == -infinity) return row;  // neither a token nor a sink
  double sum = p.sinks != nullptr ? std::exp(p.sinks[head] - largest) : 0.0;
  for (const double score : scores) sum += std::exp(score - largest);
  row.lse = largest + std::log(sum);
  for (std::int64_t t = 0; t < seen; ++t) {
    const double weight = std::exp(scores[t] - row.lse);
    const auto add = [](double* to, const FourDoubles& more) { (FourDoubles::at(to) + more).to(to); };
    static_assert(latent_value_size % 4 == 0, "values are summed four at a time");
    for (int d = 0; d < latent_value_size; d += 4) {
      const FourDoubles value = FourDoubles::at(&rows[t][d]), part = FourDoubles::all(weight) * value;
      add(&row.out[d], part), add(&row.magnitudes[d], magnitude(part)), add(&row.values[d], magnitude(value));
    }
  }
  return row;
}

/// Returns what rounding probabilities may change dimension d of a row by. Those of products of fp8 have four bits and
/// end at 2^-9, where the largest is 2^6 or more.
inline double mla_probability_error(const MlaDecodeRow& row, int d, bool of_fp8) {
  return of_fp8 ? 0x1p-4 * row.magnitudes[d] + 0x1p-16 * row.values[d] : 0x1p-8 * row.magnitudes[d];
}

}  // namespace tilewave::reference
