// SPDX-License-Identifier: MIT
// Rows of a latent cache as plain loops in double: the oracle of tests and of the benchmark's verification.
#pragma once

#include <vector>

#include "tilewave/ops/latent_cache_write/problem.hpp"
#include "tilewave/reference/mla_decode.hpp"
#include "tilewave/reference/rope.hpp"

namespace tilewave::reference {

/// Returns 64 dimensions at `x`, rotated by the position of a token if the call rotates.
inline std::vector<double> latent_rotated(const LatentCacheWriteProblem& p, const void* x, std::int64_t first,
                                          std::int32_t token) {
  std::vector<double> values(latent_rope_size);
  for (int d = 0; d < latent_rope_size; ++d) values[d] = element(DType::bf16, x, first + d);
  if (p.cos == nullptr) return values;
  rope_rotate({.x = DType::bf16, .table = p.spec.table, .pairs = p.spec.pairs}, p.cos, p.sin, p.table_stride,
              p.table_rows, latent_rope_size, index_at(p.positions, p.position_type, token), values);
  return values;
}
/// Returns the row of a token before rounding.
inline std::vector<double> latent_written(const LatentCacheWriteProblem& p, std::int32_t token) {
  std::vector<double> row;
  for (int d = 0; d < p.spec.head_size - latent_rope_size; ++d)
    row.push_back(element(DType::bf16, p.latent, token * p.latent_stride + d));
  for (const double x : latent_rotated(p, p.rope, token * p.rope_stride, token)) row.push_back(x);
  return row;
}
/// Returns the row of a slot as decode reads it. The cache is on the host.
inline std::vector<double> latent_read_back(const LatentCacheWriteProblem& p, std::int64_t slot) {
  const LatentRow layout = p.spec.row();
  const std::int64_t size = size_of(layout.kv), in_page = slot % p.block_size;
  const auto* const page = static_cast<const unsigned char*>(p.kv) + slot / p.block_size * p.page_stride * size;
  return latent_row(layout, page + in_page * p.token_stride * size,
                    page + std::int64_t{p.block_size} * layout.token_bytes() + in_page * LatentRow::apart_bytes,
                    p.kv_scale != nullptr ? *p.kv_scale : 1.0);
}
/// Returns what rounding to the row's types may change dimension d of a row by. Codes have four bits, and steps of
/// 2^-10 (e4m3fnuz: 2^-11) times their scale below the normal numbers; a group's scale is at most 1/224 (1/120) of its
/// largest magnitude.
inline double latent_rounding(const LatentCacheWriteProblem& p, const std::vector<double>& row, int d) {
  const LatentRow layout = p.spec.row();
  if (d >= layout.codes()) return 0x1.01p-8 * std::abs(row[d]) + 0x1p-130;
  double scale = p.kv_scale != nullptr ? *p.kv_scale : 1.0;
  if (layout.group() > 0) {
    double largest = 0;
    for (int i = d / layout.group() * layout.group(); i < (d / layout.group() + 1) * layout.group(); ++i)
      largest = std::max(largest, std::abs(row[i]));
    scale = std::max(largest / 120, 0x1p-126);
  }
  return 0x1.01p-4 * std::abs(row[d]) + 0x1p-10 * scale;
}

}  // namespace tilewave::reference
