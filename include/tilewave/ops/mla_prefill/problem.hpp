// SPDX-License-Identifier: MIT
// One call of prefill of latent attention: raw pointers, extents, and strides in elements.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tilewave/core/math.hpp"
#include "tilewave/core/status.hpp"
#include "tilewave/ops/flash_attention/problem.hpp"
#include "tilewave/ops/mla_prefill/spec.hpp"

namespace tilewave {

/// The cache holds all tokens of each sequence, also those that are queries: latent_cache_write comes first. Lengths
/// and starts lie on the device. A sequence becomes NaN if it has fewer tokens than queries, more than the block table
/// has room for, or more queries than q_length, or if its earlier tokens lie beyond context_tokens, counted over all
/// sequences. Nothing in the cache beyond a sequence's tokens has any effect.
struct MlaPrefillProblem {
  MlaPrefillSpec spec{};

  // tensors on the device
  const void* q = nullptr;   // [total_q, q_heads, 192] bf16: 128 dimensions, then 64 that rope has rotated
  const void* kv = nullptr;  // [pages, block_size, row], see LatentLayout
  const void* up =
      nullptr;           // [q_heads * 256, 512] bf16: of each head 128 rows for keys, then 128 for values. DeepSeek's
                         // kv_b_proj.weight lies so
  void* out = nullptr;   // [total_q, q_heads, 128] bf16, last dimension contiguous
  float* lse = nullptr;  // optional [q_heads, total_q]: natural log of the softmax sum
  const float* kv_scale = nullptr;           // [1], for fp8 rows of the plain layout
  const std::int32_t* q_starts = nullptr;    // [batch + 1]: queries of sequence s are tokens starts[s] to starts[s + 1]
  const std::int32_t* kv_lengths = nullptr;  // [batch]: tokens of each sequence, queries included
  const std::int32_t* block_table = nullptr;  // [batch, table_columns], ids of pages; the unused tail is never read

  float softmax_scale = 0.0f;  // that of the model: 192^-0.5, or that times its factor of long contexts; not 0

  // Capacities and extents. A call takes any starts and lengths within them.
  std::int32_t batch = 0;
  std::int32_t total_q = 0;         // rows of q and out
  std::int32_t q_length = 0;        // the most queries that a sequence has
  std::int32_t q_heads = 0;         // 1 to 1024
  std::int32_t context_tokens = 0;  // the most earlier tokens that all sequences have together; 0: none has any
  std::int32_t chunk_tokens = 0;    // earlier tokens that are expanded at a time: what the workspace has room for.
                                    // context_tokens are 127 chunks at most
  std::int32_t block_size = 0;      // tokens of one page, from 1 on
  std::int32_t table_columns = 0;   // of the block table; a sequence has up to table_columns * block_size tokens
  std::int64_t num_pages = 0;       // of the cache. Ids in the block table are 0 to num_pages - 1

  // strides in elements; those of the cache in elements of spec.kv, which are bytes for fp8
  std::int64_t q_token_stride = 0, q_head_stride = 0;
  std::int64_t out_token_stride = 0, out_head_stride = 0;
  std::int64_t up_stride = 0;  // from a row to the next
  std::int64_t page_stride = 0, token_stride = 0;
  std::int64_t table_row_stride = 0;
  std::int64_t lse_head_stride = 0;  // tokens of a head lie side by side

  void* workspace = nullptr;  // plan.workspace_bytes(problem) bytes, aligned to 16, with any contents
  std::size_t workspace_bytes = 0;

  /// Returns the chunks of earlier tokens.
  constexpr std::int32_t chunks() const {
    return context_tokens > 0 ? static_cast<std::int32_t>(ceil_div<std::int64_t>(context_tokens, chunk_tokens)) : 0;
  }
  /// Returns the earlier tokens of one chunk: of the whole context, if that is less than a chunk.
  constexpr std::int32_t chunk() const { return min_of(context_tokens, chunk_tokens); }
  /// Tokens of a sequence that the block table has room for.
  constexpr std::int64_t capacity() const { return std::int64_t{table_columns} * block_size; }

  /// Returns the problem with the strides of tensors without gaps.
  static constexpr MlaPrefillProblem dense(MlaPrefillProblem p) {
    const LatentRow row = p.spec.row();
    p.q_head_stride = mla_head_size, p.q_token_stride = std::int64_t{p.q_heads} * mla_head_size;
    p.out_head_stride = mla_value_size, p.out_token_stride = std::int64_t{p.q_heads} * mla_value_size;
    p.up_stride = latent_value_size;
    p.token_stride = row.token_bytes() / size_of(row.kv);
    p.page_stride = row.page_bytes(p.block_size) / size_of(row.kv);
    p.table_row_stride = p.table_columns;
    p.lse_head_stride = p.total_q;
    return p;
  }
};

}  // namespace tilewave
