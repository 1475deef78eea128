// SPDX-License-Identifier: MIT
// One call of paged-attention decode: raw pointers, extents, and strides in elements.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>

#include "tilewave/core/status.hpp"
#include "tilewave/ops/paged_attention/spec.hpp"

namespace tilewave {

/// If K, V and scales are finite, the answer is the reference's. A token whose V, or scale of V, is Inf or NaN spoils
/// more than the query tokens that see it. Each query token of its sequence that shares a tile with one of them becomes
/// NaN, earlier query tokens included.
struct PagedAttentionProblem {
  // tensors on the device
  const void* q = nullptr;         // [batch * mtp, num_q_heads, head_size], last dimension contiguous
  const void* k = nullptr;         // see PagedKeyStrides
  const void* v = nullptr;         // see PagedValueStrides
  void* out = nullptr;             // [batch * mtp, num_q_heads, head_size], last dimension contiguous
  float* lse = nullptr;            // optional [batch * mtp, num_q_heads]: natural log of the softmax sum
  const float* k_scale = nullptr;  // per_tensor: [1]; per_head: [kv_heads]; per_token: [pages, kv_heads, block_size].
                                   // Each is 0 or at least 2^-126 in magnitude, as chips may take a smaller one for 0
  const float* v_scale = nullptr;
  const float* sinks = nullptr;  // optional [num_q_heads]: one more logit of each head's softmax, without a value row.
                                 // softmax_scale does not multiply it. -inf means none. lse includes it
  const float* alibi_slopes =
      nullptr;  // [num_q_heads], finite, for a spec with alibi, else null. slope * (key position -
                // query position) is added to the score, in units of the score
  const std::int32_t* block_table = nullptr;      // [batch, table_columns], ids of pages; the unused tail is never read
  const std::int32_t* context_lengths = nullptr;  // [batch], query tokens included; <= 0 is an empty sequence
  // Optional [batch + 1] for a balanced call: what paged_attention_stage_starts() gives for the entry that is launched
  // and for these lengths. Null: blocks count the lengths themselves, and the answer has the same bits. The list is not
  // checked. With a wrong one the answer means nothing, but nothing outside the tensors is touched.
  const std::int32_t* stage_starts = nullptr;
  void* workspace = nullptr;  // paged_attention_workspace_size() bytes, contents irrelevant
  std::size_t workspace_bytes = 0;

  // what is asked
  PagedAttentionSpec spec{};
  float softmax_scale = 0.0f;       // multiplies q . k, usually 1 / sqrt(head_size); not 0
  float soft_cap = 0.0f;            // > 0 for a spec with soft_cap, in units of the score; else 0
  std::int32_t sliding_window = 0;  // W > 0: query i of length L sees keys L - mtp - W + i .. L - mtp + i
  // > 0 asks for a batch-invariant call: the result of a sequence has the same bits whatever the batch, the other
  // sequences and table_columns. Every sequence is cut at multiples of so many tokens, counted from the first that it
  // attends. The number is rounded up to whole block tiles of the entry, and to a 128th of the sequence. 0: sequences
  // are cut into equal parts, as many as are fastest for the batch.
  std::int32_t split_tokens = 0;
  // Asks for a balanced entry, whose blocks share the tokens of all sequences evenly. It suits lengths that differ
  // much.
  bool balanced = false;
  /// A promise: the kernel right before this call on its stream writes none of block_table, context_lengths and
  /// stage_starts, as it does not where a step's tables come before its kernels. Then blocks look up their pages while
  /// that kernel ends (sm90, bulk entries of token_major values).
  bool tables_ready = false;

  // capacities and extents
  std::int32_t batch = 0;
  std::int32_t mtp = 1;          // query tokens of a sequence, the last ones of its context
  std::int32_t num_q_heads = 0;  // query head h reads kv head h / (num_q_heads / num_kv_heads)
  std::int32_t num_kv_heads = 0;
  std::int32_t block_size = 0;     // tokens of one page, a multiple of 16 unless the spec says any_block_size
  std::int32_t table_columns = 0;  // of the block table; the longest context is table_columns * block_size
  std::int64_t num_pages = 0;      // of the caches. Ids in the block table are 0 to num_pages - 1, see
                                   // paged_attention_check_table. k, v and scales end with the last page

  // strides in elements
  std::int64_t q_row_stride = 0, q_head_stride = 0;
  std::int64_t out_row_stride = 0, out_head_stride = 0;
  PagedKeyStrides k_strides{};
  PagedValueStrides v_strides{};
  std::int64_t scale_page_stride = 0,
               scale_head_stride = 0;  // of per_token scales, whose tokens are contiguous, and per_head
  std::int64_t table_row_stride = 0;

  /// Query heads that read one KV head.
  constexpr std::int32_t gqa_ratio() const { return num_q_heads / num_kv_heads; }
  /// Query rows that read one KV head of a sequence: every head of the GQA ratio for every query token.
  constexpr std::int32_t kv_head_rows() const { return mtp * gqa_ratio(); }
  /// Rows of out and lse, a row for each query token and head.
  constexpr std::int64_t output_rows() const { return std::int64_t{batch} * mtp * num_q_heads; }
  /// Tokens of a sequence that the block table has room for.
  constexpr std::int64_t capacity() const { return std::int64_t{table_columns} * block_size; }
  /// The most tokens that a sequence can attend, as far as capacities tell.
  constexpr std::int64_t max_attended() const {
    return sliding_window > 0 && sliding_window + std::int64_t{mtp} < capacity() ? sliding_window + std::int64_t{mtp}
                                                                                 : capacity();
  }

  /// Fills in the strides of tensors without gaps: q and out [batch * mtp, q_heads, head_size], the block table [batch,
  /// table_columns], scales of tokens [pages, kv_heads, block_size], and K and V as the name says. NHD is [pages,
  /// block_size, kv_heads, head_size], and HND is [pages, kv_heads, block_size, head_size]. in_units is for dim_major
  /// specs: K [pages, kv_heads, D/x, block_size, x], and V shuffled or plain, see PagedKeyStrides. A softmax_scale of 0
  /// becomes 1 / sqrt(head_size).
  static PagedAttentionProblem nhd(PagedAttentionProblem p);
  static PagedAttentionProblem hnd(PagedAttentionProblem p);
  static PagedAttentionProblem in_units(PagedAttentionProblem p, bool shuffled);
};

namespace detail {

/// Fills in all strides of tensors without gaps, except those of K and V.
inline PagedAttentionProblem with_dense_strides(PagedAttentionProblem p) {
  const std::int64_t head = p.spec.head_size;
  p.q_row_stride = p.out_row_stride = p.num_q_heads * head;
  p.q_head_stride = p.out_head_stride = head;
  p.table_row_stride = p.table_columns;
  if (p.spec.quant == Scaling::per_token) {
    p.scale_page_stride = std::int64_t{p.num_kv_heads} * p.block_size, p.scale_head_stride = p.block_size;
  } else if (p.spec.quant == Scaling::per_head) {
    p.scale_head_stride = 1;
  }
  if (p.softmax_scale == 0.0f && head > 0) p.softmax_scale = 1.0f / std::sqrt(static_cast<float>(head));
  return p;
}

}  // namespace detail

inline PagedAttentionProblem PagedAttentionProblem::nhd(PagedAttentionProblem p) {
  p = detail::with_dense_strides(p);
  p.k_strides = nhd_key_strides(p.spec, p.num_kv_heads, p.block_size);
  p.v_strides = nhd_value_strides(p.spec, p.num_kv_heads, p.block_size);
  return p;
}
inline PagedAttentionProblem PagedAttentionProblem::hnd(PagedAttentionProblem p) {
  p = detail::with_dense_strides(p);
  p.k_strides = hnd_key_strides(p.spec, p.num_kv_heads, p.block_size);
  p.v_strides = hnd_value_strides(p.spec, p.num_kv_heads, p.block_size);
  return p;
}
inline PagedAttentionProblem PagedAttentionProblem::in_units(PagedAttentionProblem p, bool shuffled) {
  p = detail::with_dense_strides(p);
  p.k_strides = packed_key_strides(p.spec, p.num_kv_heads, p.block_size);
  p.v_strides = packed_value_strides(p.spec, p.num_kv_heads, p.block_size, shuffled);
  return p;
}

}  // namespace tilewave
