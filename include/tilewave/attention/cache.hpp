// SPDX-License-Identifier: MIT
// How a paged KV cache lies in memory, and how its elements were scaled. Decode, prefill and cache writes share it.
#pragma once

#include <cstdint>

#include "tilewave/core/config.hpp"
#include "tilewave/core/scaling.hpp"

namespace tilewave {

/// Returns whether a cache of fp8 K and V can be scaled so: one scale for the tensor, a KV head, or a token and KV
/// head.
constexpr bool is_cache_scaling(Scaling s) {
  return s == Scaling::per_tensor || s == Scaling::per_token || s == Scaling::per_head;
}

/// Which index of V is contiguous in memory. dim_major: 16 bytes hold tokens of one head dimension. token_major: all
/// head dimensions of a token lie side by side. See PagedValueStrides.
enum class ValueLayout : int { dim_major, token_major };

/// What the order of V in memory depends on.
struct ValueShape {
  int element_bytes;  // 1 or 2
  int head_size;      // of V; a multiple of 16
  ValueLayout layout;

  friend constexpr bool operator==(const ValueShape&, const ValueShape&) = default;
  /// Elements in 16 bytes, x above.
  TILEWAVE_HOST_DEVICE constexpr int unit() const { return 16 / element_bytes; }
};

/// Strides of K and V in elements, with x = 16 / sizeof(element), the elements of a 16-byte unit. The last index of
/// each tensor is contiguous:
///   k[page][head][d / x][t][d % x]
///   v[page][head][t / x][d][t % x]   of dim_major values
///   v[page][head][t][d]              of token_major values
/// The strides of K and V need not be alike. These are the cache layouts in use:
///   K [pages, kv_heads, D/x, block_size, x]            unit = block_size * x, token = x
///   V shuffled [pages, kv_heads, block_size/x, D, x]   unit = D * x, dim = x
///   V plain    [pages, kv_heads, D, block_size]        unit = x, dim = block_size
///   NHD [pages, block_size, kv_heads, D]               K: unit = x; K and V: token = kv_heads * D, head = D
///   HND [pages, kv_heads, block_size, D]               K: unit = x; K and V: token = D, head = block_size * D
struct PagedKeyStrides {
  std::int64_t page, head, unit, token;
};
struct PagedValueStrides {
  std::int64_t page, head;
  std::int64_t unit, dim;  // of dim_major values
  std::int64_t token = 0;  // of token_major values
};

// The strides of caches without gaps. A Spec has head_size, D above, and unit(), x above.

/// K [pages, kv_heads, D/x, block_size, x].
template <class Spec>
constexpr PagedKeyStrides packed_key_strides(const Spec& s, std::int64_t kv_heads, std::int64_t block_size) {
  const std::int64_t head = block_size * s.head_size;
  return {kv_heads * head, head, block_size * s.unit(), s.unit()};
}
/// V shuffled [pages, kv_heads, block_size/x, D, x], or plain [pages, kv_heads, D, block_size].
template <class Spec>
constexpr PagedValueStrides packed_value_strides(const Spec& s, std::int64_t kv_heads, std::int64_t block_size,
                                                 bool shuffled) {
  const std::int64_t head = block_size * s.head_size;
  return shuffled ? PagedValueStrides{kv_heads * head, head, std::int64_t{s.head_size} * s.unit(), s.unit()}
                  : PagedValueStrides{kv_heads * head, head, s.unit(), block_size};
}

/// K and V of NHD caches [pages, block_size, kv_heads, D], for token_major values.
template <class Spec>
constexpr PagedKeyStrides nhd_key_strides(const Spec& s, std::int64_t kv_heads, std::int64_t block_size) {
  const std::int64_t token = kv_heads * s.head_size;
  return {block_size * token, s.head_size, s.unit(), token};
}
template <class Spec>
constexpr PagedValueStrides nhd_value_strides(const Spec& s, std::int64_t kv_heads, std::int64_t block_size) {
  const std::int64_t token = kv_heads * s.head_size;
  return {block_size * token, s.head_size, 0, 0, token};
}
/// K and V of HND caches [pages, kv_heads, block_size, D], for token_major values.
template <class Spec>
constexpr PagedKeyStrides hnd_key_strides(const Spec& s, std::int64_t kv_heads, std::int64_t block_size) {
  const std::int64_t head = block_size * s.head_size;
  return {kv_heads * head, head, s.unit(), s.head_size};
}
template <class Spec>
constexpr PagedValueStrides hnd_value_strides(const Spec& s, std::int64_t kv_heads, std::int64_t block_size) {
  const std::int64_t head = block_size * s.head_size;
  return {kv_heads * head, head, 0, 0, s.head_size};
}

}  // namespace tilewave
