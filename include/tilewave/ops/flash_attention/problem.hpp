// SPDX-License-Identifier: MIT
// A Problem describes one call of flash attention by raw pointers, extents and int64 strides in elements.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>

#include "tilewave/core/math.hpp"
#include "tilewave/ops/flash_attention/spec.hpp"

namespace tilewave {

/// Strides in elements of a tensor of tokens and heads, whose last dimension is contiguous. `sequence` is not used if
/// the tokens of all sequences follow each other (q_starts, kv_starts).
struct TokenStrides {
  std::int64_t sequence = 0, token = 0, head = 0;
  friend constexpr bool operator==(const TokenStrides&, const TokenStrides&) = default;
};

/// A window of this size has no bound on its side.
inline constexpr std::int32_t no_window = -1;

/// Lengths may be 0. A query that sees no key has an output of 0, and an lse of -inf or its sink. Finite q, K, V and
/// scales give what the reference gives. A key with Inf or NaN in V that a query does not see may make that query NaN
/// if both belong to one sequence. Nothing in K and V beyond a sequence's keys has any effect.
struct FlashAttentionProblem {
  // Tensors lie on the device. `tokens` is [batch, q_length] or [total_q] for queries, and likewise for keys.
  const void* q = nullptr;         // [tokens, q_heads, head_size]
  const void* k = nullptr;         // [tokens, kv_heads, head_size]; for pages see PagedKeyStrides
  const void* v = nullptr;         // [tokens, kv_heads, value_size]; for pages see PagedValueStrides
  void* out = nullptr;             // [tokens, q_heads, value_size]
  float* lse = nullptr;            // optional [q_heads, q tokens]: natural log of the softmax sum, see lse_head_stride
  const float* q_scale = nullptr;  // for fp8 q: [1] per_tensor, [q_heads] per_head; no scale is negative
  const float* k_scale = nullptr;  // for fp8 K: [1], [kv_heads], or per_token [pages, kv_heads, block_size]
  const float* v_scale = nullptr;  // for fp8 V, likewise
  const float* out_scale = nullptr;  // for fp8 out: [1], multiplies each element before it is rounded; positive
  const float* sinks = nullptr;      // optional [q_heads]: one more logit of each head's softmax, not scaled, without
                                     // a value row; -inf means none, and lse includes it
  const float* alibi_slopes = nullptr;  // [q_heads], finite, for a spec with alibi
  const std::uint32_t* mask = nullptr;  // for a spec with bit_mask, a row of words for each query token: bit t % 32 of
                                        // word t / 32 says whether key t is seen
  const std::int32_t* q_starts = nullptr;     // optional [batch + 1]: queries of sequence s are tokens starts[s] to
                                              // starts[s + 1] of q and out; null: q_length tokens each
  const std::int32_t* kv_starts = nullptr;    // the same for contiguous K and V
  const std::int32_t* kv_lengths = nullptr;   // [batch], keys of each sequence; optional for contiguous K and V
  const std::int32_t* block_table = nullptr;  // for pages: [batch, table_columns]; its unused tail is never read
  std::uint32_t* item_counter = nullptr;  // optional [1], 0 whenever no call that has it runs: blocks of path tensor
                                          // take work by it as they become free, and else in a fixed order
  void* workspace = nullptr;  // optional, plan.workspace_bytes(problem) bytes with any contents: with it, path tensor
                              // cuts sequences along their keys where their rows leave blocks without work
  std::size_t workspace_bytes = 0;

  // These fields say what the call computes.
  FlashAttentionSpec spec{};
  float softmax_scale = 0.0f;             // multiplies q . k (scaled), typically 1 / sqrt(head_size); not 0
  float soft_cap = 0.0f;                  // cap > 0 for a spec with soft_cap, in units of the score; 0 otherwise
  bool causal = false;                    // a query sees its own position and those before, as with window_right 0
  std::int32_t window_left = no_window;   // W: a query sees its own position and W before it
  std::int32_t window_right = no_window;  // a query sees so many positions behind its own

  // Rows have the same bits whatever else is in the batch, and however the queries of a sequence are cut into calls.
  bool batch_invariant = false;

  // Capacities and extents.
  std::int32_t batch = 0;
  std::int32_t q_length = 0;   // queries of a sequence, or the most that q_starts gives one
  std::int32_t kv_length = 0;  // contiguous keys of a sequence, or the most that lengths or starts give one
  std::int64_t total_q = 0;    // tokens of q and out with q_starts
  std::int64_t total_kv = 0;   // tokens of K and V with kv_starts
  std::int32_t q_heads = 0;    // query head h reads kv head h / (q_heads / kv_heads)
  std::int32_t kv_heads = 0;
  std::int32_t block_size = 0;     // tokens of one page
  std::int32_t table_columns = 0;  // the longest sequence has table_columns * block_size keys
  std::int64_t num_pages = 0;      // ids in the block table are 0 to num_pages - 1

  // Strides in elements.
  TokenStrides q_strides{}, k_strides{}, v_strides{}, out_strides{};
  PagedKeyStrides k_page_strides{};
  PagedValueStrides v_page_strides{};
  std::int64_t scale_page_stride = 0, scale_head_stride = 0;  // for per_token and per_head scales of K and V
  std::int64_t table_row_stride = 0;
  std::int64_t lse_head_stride = 0;  // query tokens of a head lie side by side, in the order of q's
  std::int64_t mask_token_stride = 0;

  /// Returns the query tokens of all sequences: total_q, or those of the capacity.
  constexpr std::int64_t q_tokens() const { return q_starts != nullptr ? total_q : std::int64_t{batch} * q_length; }

  /// Return the problem with the strides of tensors without gaps. A softmax_scale of 0 becomes 1 / sqrt(head_size).
  /// bshd: [batch, length, heads, size]. bhsd: [batch, heads, length, size]. ragged: all four are [total, heads, size],
  /// with q_starts and kv_starts. nhd, hnd and in_units: pages are as decode reads them (see PagedKeyStrides), and
  /// queries are [batch, q_length, heads, size], or ragged with q_starts.
  static FlashAttentionProblem bshd(FlashAttentionProblem p);
  static FlashAttentionProblem bhsd(FlashAttentionProblem p);
  static FlashAttentionProblem ragged(FlashAttentionProblem p);
  static FlashAttentionProblem nhd(FlashAttentionProblem p);
  static FlashAttentionProblem hnd(FlashAttentionProblem p);
  static FlashAttentionProblem in_units(FlashAttentionProblem p, bool shuffled);
};

namespace detail {

/// The shape of K, or of V, in pages, in the form of spec that packed_key_strides and its like take.
struct PageShape {
  int head_size, elements;
  constexpr int unit() const { return elements; }
};
constexpr PageShape key_pages(const FlashAttentionSpec& s) { return {s.head_size, s.unit()}; }
constexpr PageShape value_pages(const FlashAttentionSpec& s) { return {s.value_size, s.unit()}; }

constexpr TokenStrides bshd_strides(std::int64_t length, std::int64_t heads, std::int64_t size) {
  return {length * heads * size, heads * size, size};
}
constexpr TokenStrides bhsd_strides(std::int64_t length, std::int64_t heads, std::int64_t size) {
  return {heads * length * size, size, length * size};
}

/// Returns the problem with queries [tokens, heads, size], and with all strides that no layout of K and V decides.
inline FlashAttentionProblem with_dense_queries(FlashAttentionProblem p) {
  const FlashAttentionSpec& s = p.spec;
  p.q_strides = bshd_strides(p.q_length, p.q_heads, s.head_size);
  p.out_strides = bshd_strides(p.q_length, p.q_heads, s.value_size);
  p.lse_head_stride = p.q_tokens();
  p.table_row_stride = p.table_columns;
  p.mask_token_stride =
      ceil_div<std::int64_t>(s.paged() ? std::int64_t{p.table_columns} * p.block_size : p.kv_length, 32);
  if (s.quant == Scaling::per_token) {
    p.scale_page_stride = std::int64_t{p.kv_heads} * p.block_size, p.scale_head_stride = p.block_size;
  } else if (s.quant == Scaling::per_head) {
    p.scale_head_stride = 1;
  }
  if (p.softmax_scale == 0.0f && s.head_size > 0) {
    p.softmax_scale = 1.0f / std::sqrt(static_cast<float>(s.head_size));
  }
  return p;
}

}  // namespace detail

inline FlashAttentionProblem FlashAttentionProblem::bshd(FlashAttentionProblem p) {
  p = detail::with_dense_queries(p);
  p.k_strides = detail::bshd_strides(p.kv_length, p.kv_heads, p.spec.head_size);
  p.v_strides = detail::bshd_strides(p.kv_length, p.kv_heads, p.spec.value_size);
  return p;
}
inline FlashAttentionProblem FlashAttentionProblem::bhsd(FlashAttentionProblem p) {
  p = detail::with_dense_queries(p);
  p.q_strides = detail::bhsd_strides(p.q_length, p.q_heads, p.spec.head_size);
  p.out_strides = detail::bhsd_strides(p.q_length, p.q_heads, p.spec.value_size);
  p.k_strides = detail::bhsd_strides(p.kv_length, p.kv_heads, p.spec.head_size);
  p.v_strides = detail::bhsd_strides(p.kv_length, p.kv_heads, p.spec.value_size);
  return p;
}
inline FlashAttentionProblem FlashAttentionProblem::ragged(FlashAttentionProblem p) { return bshd(p); }
inline FlashAttentionProblem FlashAttentionProblem::nhd(FlashAttentionProblem p) {
  p = detail::with_dense_queries(p);
  p.k_page_strides = nhd_key_strides(detail::key_pages(p.spec), p.kv_heads, p.block_size);
  p.v_page_strides = nhd_value_strides(detail::value_pages(p.spec), p.kv_heads, p.block_size);
  return p;
}
inline FlashAttentionProblem FlashAttentionProblem::hnd(FlashAttentionProblem p) {
  p = detail::with_dense_queries(p);
  p.k_page_strides = hnd_key_strides(detail::key_pages(p.spec), p.kv_heads, p.block_size);
  p.v_page_strides = hnd_value_strides(detail::value_pages(p.spec), p.kv_heads, p.block_size);
  return p;
}
inline FlashAttentionProblem FlashAttentionProblem::in_units(FlashAttentionProblem p, bool shuffled) {
  p = detail::with_dense_queries(p);
  p.k_page_strides = packed_key_strides(detail::key_pages(p.spec), p.kv_heads, p.block_size);
  p.v_page_strides = packed_value_strides(detail::value_pages(p.spec), p.kv_heads, p.block_size, shuffled);
  return p;
}

}  // namespace tilewave
