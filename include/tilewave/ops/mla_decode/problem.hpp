// SPDX-License-Identifier: MIT
// One call of decode of latent attention: raw pointers, extents, and strides in elements.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>

#include "tilewave/core/status.hpp"
#include "tilewave/ops/mla_decode/spec.hpp"

namespace tilewave {

/// If q, the cache and scales are finite, the answer is the reference's. A token of a sequence whose row has Inf or NaN
/// spoils more than the query tokens that see it: earlier query tokens of its sequence may become NaN. Nothing in the
/// cache beyond a sequence's tokens has any effect.
struct MlaDecodeProblem {
  // tensors on the device
  const void* q = nullptr;          // [batch, query_tokens, num_q_heads, head_size], last dimension contiguous
  const void* kv = nullptr;         // [pages, block_size, row], see LatentLayout
  void* out = nullptr;              // [batch, query_tokens, num_q_heads, 512] bf16, last dimension contiguous
  float* lse = nullptr;             // optional [batch, query_tokens, num_q_heads]: natural log of the softmax sum
  const float* q_scale = nullptr;   // [1], for fp8 q
  const float* kv_scale = nullptr;  // [1], for fp8 rows of the plain layout: 0, or at least 2^-126 in magnitude
  const float* sinks = nullptr;     // optional [num_q_heads]: one more logit of each head's softmax, without a value.
                                    // softmax_scale does not multiply it; -inf means none. lse includes it
  const std::int32_t* block_table = nullptr;      // [batch, table_columns], ids of pages; the unused tail is never read
  const std::int32_t* context_lengths = nullptr;  // [batch], query tokens included; <= 0 is an empty sequence
  void* workspace = nullptr;                      // plan.workspace_bytes(problem) bytes, contents irrelevant
  std::size_t workspace_bytes = 0;

  // what is asked
  MlaDecodeSpec spec{};
  float softmax_scale = 0.0f;  // multiplies q . row; that of the model, not 1 / sqrt(head_size); not 0
  // > 0 asks for a batch-invariant call: the result of a sequence has the same bits whatever the batch, the other
  // sequences and table_columns. Every sequence is cut at multiples of so many tokens, rounded up to whole tiles of the
  // entry, and to a 128th of the sequence. 0: blocks share all tokens of the batch.
  std::int32_t split_tokens = 0;

  // capacities and extents
  std::int32_t batch = 0;
  std::int32_t query_tokens = 1;   // 1 to 8 of a sequence, the last ones of its context
  std::int32_t num_q_heads = 0;    // 1 to 128
  std::int32_t block_size = 0;     // tokens of one page, from 1 on
  std::int32_t table_columns = 0;  // of the block table; the longest context is table_columns * block_size
  std::int64_t num_pages = 0;      // of the cache. Ids in the block table are 0 to num_pages - 1

  // strides in elements; those of the cache in elements of spec.kv, which are bytes for fp8
  std::int64_t q_row_stride = 0, q_head_stride = 0;  // q_row_stride: from a query token to the next
  std::int64_t out_row_stride = 0, out_head_stride = 0;
  std::int64_t page_stride = 0, token_stride = 0;
  std::int64_t table_row_stride = 0;

  /// Query rows of a sequence: every head for every query token.
  constexpr std::int32_t sequence_rows() const { return query_tokens * num_q_heads; }
  /// Rows of out and lse, a row for each query token and head.
  constexpr std::int64_t output_rows() const { return std::int64_t{batch} * query_tokens * num_q_heads; }
  /// Tokens of a sequence that the block table has room for.
  constexpr std::int64_t capacity() const { return std::int64_t{table_columns} * block_size; }

  /// Returns the problem with the strides of tensors without gaps.
  static constexpr MlaDecodeProblem dense(MlaDecodeProblem p) {
    const LatentRow row = p.spec.row();
    p.q_head_stride = p.spec.head_size, p.q_row_stride = p.num_q_heads * p.q_head_stride;
    p.out_head_stride = latent_value_size, p.out_row_stride = p.num_q_heads * p.out_head_stride;
    p.token_stride = row.token_bytes() / size_of(row.kv);
    p.page_stride = row.page_bytes(p.block_size) / size_of(row.kv);
    p.table_row_stride = p.table_columns;
    return p;
  }
};

}  // namespace tilewave
