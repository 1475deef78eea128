// SPDX-License-Identifier: MIT
// One call of a write into a latent cache: raw pointers, extents, and strides in elements.
#pragma once

#include "tilewave/ops/latent_cache_write/spec.hpp"
#include "tilewave/ops/rope/problem.hpp"
#include "tilewave/tile/index_list.hpp"

namespace tilewave {

/// A token whose slot is negative or beyond the pages is in no cache: its row is not written, but its q is. All other
/// slots differ from each other. The cache overlaps nothing else. q_out may be q, with its strides. Without cos, sin
/// and positions nothing is rotated: the 64 dimensions have been rotated before. A position outside [0, table_rows)
/// makes them NaN.
struct LatentCacheWriteProblem {
  LatentCacheWriteSpec spec{};

  // tensors on the device
  const void* latent = nullptr;     // [tokens, head_size - 64] bf16, last dimension contiguous
  const void* rope = nullptr;       // [tokens, 64] bf16, last dimension contiguous
  void* kv = nullptr;               // [pages, block_size, row], see LatentLayout
  const float* kv_scale = nullptr;  // [1], positive, for fp8 rows of the plain layout
  const void* slots = nullptr;      // [tokens]: page * block_size + token in the page
  IndexType slot_type = IndexType::i64;
  const void* q = nullptr;          // optional [tokens, q_heads, 64] bf16: the part of q's heads that is rotated
  void* q_out = nullptr;            // as q
  const void* cos = nullptr;        // optional [table_rows, 32], with rows table_stride apart
  const void* sin = nullptr;        // the same
  const void* positions = nullptr;  // [tokens]
  IndexType position_type = IndexType::i32;

  std::int32_t tokens = 0, q_heads = 0;
  std::int32_t table_rows = 0;
  std::int32_t block_size = 0;  // tokens of a page, from 1 on
  std::int64_t num_pages = 0;   // pages * block_size is below 2^31

  std::int64_t latent_stride = 0, rope_stride = 0;  // from a token to the next
  HeadStrides q_strides{}, q_out_strides{};
  std::int64_t page_stride = 0, token_stride = 0;  // in elements of spec.kv, which are bytes for fp8
  std::int64_t table_stride = 0;

  /// Returns the problem with the strides of tensors without gaps.
  static constexpr LatentCacheWriteProblem dense(LatentCacheWriteProblem p) {
    const LatentRow row = p.spec.row();
    p.latent_stride = p.spec.head_size - latent_rope_size, p.rope_stride = latent_rope_size;
    if (p.q_heads > 0) {
      p.q_strides = p.q_out_strides = {std::int64_t{p.q_heads} * latent_rope_size, latent_rope_size};
    }
    p.token_stride = row.token_bytes() / size_of(row.kv);
    p.page_stride = row.page_bytes(p.block_size) / size_of(row.kv);
    if (p.cos != nullptr) p.table_stride = latent_rope_size / 2;
    return p;
  }
};

/// Row operations call a token's row, and each of its heads of q, a row.
constexpr std::int32_t rows_of(const LatentCacheWriteProblem& p) { return p.tokens + p.tokens * p.q_heads; }
constexpr std::int32_t columns_of(const LatentCacheWriteProblem& p) { return p.spec.head_size; }

}  // namespace tilewave
