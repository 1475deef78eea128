// SPDX-License-Identifier: MIT
// One call of a write into a paged KV cache: raw pointers, extents, and strides in elements.
#pragma once

#include "tilewave/attention/cache.hpp"
#include "tilewave/ops/kv_cache_write/spec.hpp"
#include "tilewave/ops/rope/problem.hpp"

namespace tilewave {

/// A token whose slot is negative or beyond the pages is in no cache. Its K and V are not written, but its q_out and
/// k_out are. All other slots differ from each other. Caches, and scales that are written, overlap nothing else. q_out
/// may be q, with its strides, if it is of q's type. k_out may be k. Only `rotary` dimensions from rotary_first on are
/// rotated. A position outside [0, table_rows) makes them NaN. Without v and v_cache only K is written, as latent
/// attention has it.
struct KvCacheWriteProblem {
  KvCacheWriteSpec spec{};

  // tensors on the device
  const void* k = nullptr;  // [tokens, kv_heads, head_size], last dimension contiguous; slices of qkv are fine
  const void* v = nullptr;  // the same; or null, as v_cache
  void* k_cache = nullptr;  // see PagedKeyStrides
  void* v_cache = nullptr;  // see PagedValueStrides, by `values`
  // Scales of fp8 caches, as in PagedAttentionProblem; positive where they are read. Scales of groups are [pages,
  // kv_heads, block_size, groups], f32 or e8m0, and their strides count blocks of `groups` scales.
  void* k_scale = nullptr;
  float* v_scale = nullptr;
  const void* slots = nullptr;  // [tokens]: page * block_size + token in the page
  IndexType slot_type = IndexType::i64;
  ValueLayout values = ValueLayout::token_major;  // of v_cache, as in PagedAttentionSpec

  // for fused specs only
  const void* q = nullptr;  // [tokens, q_heads, head_size]
  void* q_out = nullptr;    // as q
  void* k_out = nullptr;    // optional, as k: K of x's type before it becomes codes, for attention in a prefill
  void* q_scale = nullptr;  // of an fp8 q_out: [1], positive, is read; of groups [tokens, q_heads, groups], is written
  const void* q_norm = nullptr;  // [head_size] of x's type, with spec.norm; null: ones
  const void* k_norm = nullptr;  // the same
  // [table_rows, rotary / 2], with rows table_stride apart. Pairs of halves also take a table of `rotary` columns, of
  // which they read the first half, with table_stride = rotary. A table for neighbours that has each column twice is
  // refused.
  const void* cos = nullptr;
  const void* sin = nullptr;        // the same
  const void* positions = nullptr;  // [tokens]
  IndexType position_type = IndexType::i32;
  float eps = 1e-6f;
  /// A promise: the kernel right before this call on its stream writes none of slots, positions, cos and sin, as it
  /// does not where a step's tables come before its kernels. Then they are read while that kernel ends (sm90).
  bool tables_ready = false;

  std::int32_t tokens = 0, q_heads = 0, kv_heads = 0;
  std::int32_t head_size = 0;  // a multiple of 16, at most 512
  std::int32_t rotary = 0;  // a multiple of 16, at most head_size; for others call rope, then a write that is not fused
  std::int32_t rotary_first = 0;  // a multiple of 16; 0 for pairs of halves
  std::int32_t table_rows = 0;
  std::int32_t block_size = 0;  // tokens of a page
  std::int64_t num_pages = 0;   // pages * block_size is below 2^31

  HeadStrides q_strides{}, k_strides{}, v_strides{}, q_out_strides{}, k_out_strides{};
  PagedKeyStrides k_cache_strides{};
  PagedValueStrides v_cache_strides{};
  std::int64_t scale_page_stride = 0, scale_head_stride = 0;
  std::int64_t table_stride = 0;
};

/// Row operations call a head of a token a row, and its dimensions columns.
constexpr std::int32_t rows_of(const KvCacheWriteProblem& p) { return p.tokens * (p.q_heads + 2 * p.kv_heads); }
constexpr std::int32_t columns_of(const KvCacheWriteProblem& p) { return p.head_size; }

}  // namespace tilewave
