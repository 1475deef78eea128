// SPDX-License-Identifier: MIT
// One call of paged-attention decode: raw pointers, extents, int64 element strides.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>

#include "tilewave/core/status.hpp"
#include "tilewave/ops/paged_attention/spec.hpp"

namespace tilewave {

/// Finite K, V and scales give what the reference gives. A token with Inf or NaN in V or its scale makes every query of
/// its sequence NaN that shares a tile with one that sees it, the earlier of the mtp tokens included.
struct PagedAttentionProblem {
  // tensors on the device
  const void* q = nullptr;         // [batch * mtp, num_q_heads, head_size], last dimension contiguous
  const void* k = nullptr;         // see PagedKeyStrides
  const void* v = nullptr;         // see PagedValueStrides
  void* out = nullptr;             // [batch * mtp, num_q_heads, head_size], last dimension contiguous
  float* lse = nullptr;            // optional [batch * mtp, num_q_heads]: natural log of the softmax sum
  const float* k_scale = nullptr;  // per_tensor: [1]; per_head: [kv_heads]; per_token: [pages, kv_heads, block_size].
                                   // Each 0 or at least 2^-126 in magnitude: chips may take a smaller one for 0
  const float* v_scale = nullptr;
  const float* sinks = nullptr;  // optional [num_q_heads]: one more logit of each head's softmax, as it stands
                                 // (softmax_scale does not touch it); it has no value row. -inf: none; lse counts it
  const float* alibi_slopes = nullptr;  // [num_q_heads] of a spec with alibi, finite: added to the score is slope *
                                        // (key position - query position), in units of the score; null otherwise
  const std::int32_t* block_table = nullptr;      // [batch, table_columns], ids of pages; unused tail is never read
  const std::int32_t* context_lengths = nullptr;  // [batch], new tokens included; <= 0 is an empty sequence
  // Optional [batch + 1] of a balanced call, from paged_attention_stage_starts() for the entry that is launched and
  // these very lengths, which is not checked: with another list the answer means nothing, though nothing outside the
  // tensors is touched. Null: blocks count the lengths. The answer has the same bits.
  const std::int32_t* stage_starts = nullptr;
  void* workspace = nullptr;  // paged_attention_workspace_size() bytes, contents irrelevant
  std::size_t workspace_bytes = 0;

  // what is asked
  PagedAttentionSpec spec{};
  float softmax_scale = 0.0f;       // multiplies q . k, typically 1 / sqrt(head_size); not 0
  float soft_cap = 0.0f;            // cap > 0 of a spec with soft_cap, in units of the score; 0 otherwise
  std::int32_t sliding_window = 0;  // W > 0: query i of length L sees keys L - mtp - W + i .. L - mtp + i
  // > 0: batch-invariant. Every sequence is cut at multiples of so many tokens (rounded up to whole block tiles of the
  // entry, and to a 128th of the sequence) from the first it attends, so that its result has the same bits whatever the
  // batch, the other sequences and table_columns. 0: cut into equal parts, as many as are fastest for the batch.
  std::int32_t split_tokens = 0;
  // Lengths differ much: take a balanced entry, whose blocks share the tokens of all sequences evenly.
  bool balanced = false;

  // capacities and extents
  std::int32_t batch = 0;
  std::int32_t mtp = 1;          // query tokens per sequence, the last mtp of the context
  std::int32_t num_q_heads = 0;  // query head h reads kv head h / (num_q_heads / num_kv_heads)
  std::int32_t num_kv_heads = 0;
  std::int32_t block_size = 0;     // tokens of one page, a multiple of 16 unless the spec says any_block_size
  std::int32_t table_columns = 0;  // block table width: the longest context is columns * block_size
  std::int64_t num_pages = 0;      // of the caches: ids in the block table are 0 to num_pages - 1 (see
                                   // paged_attention_check_table); k, v and scales end where the last of them does

  // strides in elements
  std::int64_t q_row_stride = 0, q_head_stride = 0;
  std::int64_t out_row_stride = 0, out_head_stride = 0;
  PagedKeyStrides k_strides{};
  PagedValueStrides v_strides{};
  std::int64_t scale_page_stride = 0, scale_head_stride = 0;  // of per_token (tokens contiguous) and per_head scales
  std::int64_t table_row_stride = 0;

  /// The problem with the strides of tensors without gaps filled in: q and out [batch * mtp, q_heads, head_size], the
  /// block table [batch, table_columns], scales of tokens [pages, kv_heads, block_size], and K and V as the name says:
  /// NHD [pages, block_size, kv_heads, head_size], HND [pages, kv_heads, block_size, head_size], or in 16-byte units
  /// (dim_major specs) K [pages, kv_heads, D/x, block_size, x] with V shuffled or plain, see PagedKeyStrides. A
  /// softmax_scale of 0 becomes 1 / sqrt(head_size).
  static PagedAttentionProblem nhd(PagedAttentionProblem p);
  static PagedAttentionProblem hnd(PagedAttentionProblem p);
  static PagedAttentionProblem in_units(PagedAttentionProblem p, bool shuffled);
};

namespace detail {

/// All strides of tensors without gaps but those of K and V.
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
