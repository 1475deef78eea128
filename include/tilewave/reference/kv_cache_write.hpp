// SPDX-License-Identifier: MIT
// A write into a paged KV cache as plain loops in double: the reference of its tests and its benchmark.
#pragma once

#include "tilewave/ops/kv_cache_write/problem.hpp"
#include "tilewave/reference/rope.hpp"

namespace tilewave::reference {

enum class HeadOf { q, k, v };

/// A head of a token before it is rotated, normalised if the spec says so. All tensors are on the host.
inline std::vector<double> unrotated_head(const KvCacheWriteProblem& p, HeadOf what, std::int32_t token,
                                          std::int32_t head) {
  const KvCacheWriteSpec& s = p.spec;
  const HeadStrides& strides = what == HeadOf::q ? p.q_strides : what == HeadOf::k ? p.k_strides : p.v_strides;
  const void* data = what == HeadOf::q ? p.q : what == HeadOf::k ? p.k : p.v;
  std::vector<double> values(p.head_size);
  double squares = 0;
  for (int d = 0; d < p.head_size; ++d) {
    values[d] = element(s.x, data, token * strides.token + head * strides.head + d);
    squares += values[d] * values[d];
  }
  if (!s.fused || what == HeadOf::v) return values;
  if (s.norm) {
    const void* weight = what == HeadOf::q ? p.q_norm : p.k_norm;
    const double rstd = 1 / std::sqrt(squares / p.head_size + p.eps);
    for (int d = 0; d < p.head_size; ++d) values[d] *= rstd * (weight != nullptr ? element(s.x, weight, d) : 1);
  }
  return values;
}
/// A head of a token before it is scaled and rounded.
inline std::vector<double> written_head(const KvCacheWriteProblem& p, HeadOf what, std::int32_t token,
                                        std::int32_t head) {
  std::vector<double> values = unrotated_head(p, what, token, head);
  if (!p.spec.fused || what == HeadOf::v) return values;
  std::vector<double> rotated(values.begin() + p.rotary_first, values.begin() + p.rotary_first + p.rotary);
  rope_rotate(p.spec.rope(), p.cos, p.sin, p.table_stride, p.table_rows, p.rotary,
              index_at(p.positions, p.position_type, token), rotated);
  std::copy(rotated.begin(), rotated.end(), values.begin() + p.rotary_first);
  return values;
}
/// The scale that a group of an unrotated head has, if its values are multiplied by `factor`.
inline double expected_group_scale(const KvCacheWriteProblem& p, const std::vector<double>& unrotated, int group,
                                   double factor) {
  double largest = 0;
  for (int d = group * p.spec.group; d < (group + 1) * p.spec.group; ++d) {
    largest = std::fmax(largest, std::abs(unrotated[d]));
  }
  largest *= std::sqrt(2.0) * factor;
  if (!p.spec.e8m0) return scale_of(largest, p.spec.kv);
  if (largest == 0) return 0x1p-127;
  const int below = std::ilogb(largest);
  return std::max(std::ldexp(1.0, below + (largest >= std::ldexp(1.5, below)) - 7), 0x1p-127);
}
/// The value of scale i in a list of group scales.
inline double group_scale(const KvCacheWriteProblem& p, const void* scales, std::int64_t i) {
  if (!p.spec.e8m0) return static_cast<const float*>(scales)[i];
  return std::ldexp(1.0, static_cast<const std::uint8_t*>(scales)[i] - 127);
}

/// The slot of a token, or a negative number if it has none in the caches.
inline std::int64_t slot_of(const KvCacheWriteProblem& p, std::int32_t token) {
  const std::int64_t slot = index_at(p.slots, p.slot_type, token);
  return slot < p.num_pages * p.block_size ? slot : -1;
}
/// The index in a cache of dimension d of a head in a slot.
inline std::int64_t key_index(const KvCacheWriteProblem& p, std::int64_t slot, std::int32_t head, int d) {
  const PagedKeyStrides& s = p.k_cache_strides;
  const int x = p.spec.unit();
  return slot / p.block_size * s.page + head * s.head + d / x * s.unit + slot % p.block_size * s.token + d % x;
}
inline std::int64_t value_index(const KvCacheWriteProblem& p, std::int64_t slot, std::int32_t head, int d) {
  const PagedValueStrides& s = p.v_cache_strides;
  const std::int64_t first = slot / p.block_size * s.page + head * s.head, t = slot % p.block_size;
  const int x = p.spec.unit();
  return p.values == ValueLayout::token_major ? first + t * s.token + d : first + t / x * s.unit + t % x + d * s.dim;
}
/// The index of the scale of a head in a slot; 0 for caches without scales of heads or tokens.
inline std::int64_t scale_index(const KvCacheWriteProblem& p, std::int64_t slot, std::int32_t head) {
  switch (p.spec.quant) {
    case Scaling::per_head: return head * p.scale_head_stride;
    case Scaling::per_token:
      return slot / p.block_size * p.scale_page_stride + head * p.scale_head_stride + slot % p.block_size;
    default: return 0;
  }
}

}  // namespace tilewave::reference
