// SPDX-License-Identifier: MIT
// What the two kernels receive: a Problem with its divisions prepared and its workspace laid out.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "tilewave/core/math.hpp"
#include "tilewave/ops/paged_attention/policy.hpp"
#include "tilewave/ops/paged_attention/problem.hpp"

namespace tilewave {

/// Most splits of one sequence's context.
inline constexpr int max_splits = 128;
/// Most query tokens of a sequence in one call.
inline constexpr int max_mtp = 8;

/// Arguments of decode and combine. Strides in elements, as in the Problem.
struct PagedAttentionArgs {
  const void* q;
  const void* k;
  const void* v;
  void* out;
  float* lse;  // may be null
  const float* k_scale;
  const float* v_scale;
  const float* sinks;  // may be null
  const float* alibi_slopes;
  const std::int32_t* block_table;
  const std::int32_t* context_lengths;
  float* partial_out;  // [batch * mtp, num_q_heads, splits, head_size], each normalised
  float* partial_lse;  // [batch * mtp, num_q_heads, splits], natural log

  std::int64_t q_row_stride, q_head_stride;
  std::int64_t out_row_stride, out_head_stride;
  PagedKeyStrides k_strides;
  PagedValueStrides v_strides;
  std::int64_t scale_page_stride, scale_head_stride;
  std::int64_t table_row_stride;

  FastDiv block_size;
  FastDiv group;  // query heads per kv head
  FastDiv splits;
  FastDiv row_groups;  // blocks that share a (sequence, kv head, split) and differ in query rows
  FastDiv kv_heads;
  std::int32_t mtp, rows;  // rows = mtp * group
  std::int32_t num_q_heads;
  std::int32_t capacity;     // tokens the block table can hold
  std::int32_t split_tiles;  // least block tiles of a split: fixed cuts of a batch-invariant call, else 0
  std::int32_t window;       // sliding window, or int32 max for none
  std::int32_t output_rows;  // batch * mtp * num_q_heads
  float scale_log2;          // softmax scale * log2(e); with a soft cap softmax scale / cap
  float cap_log2;            // soft cap * log2(e)
};

/// Byte offsets of the pointers in PagedAttentionArgs, for tools that relocate a kernel's arguments.
struct PointerField {
  const char* name;
  std::size_t offset;
};
inline constexpr std::array<PointerField, 13> paged_attention_pointers{{
    {"q", offsetof(PagedAttentionArgs, q)},
    {"k", offsetof(PagedAttentionArgs, k)},
    {"v", offsetof(PagedAttentionArgs, v)},
    {"out", offsetof(PagedAttentionArgs, out)},
    {"lse", offsetof(PagedAttentionArgs, lse)},
    {"k_scale", offsetof(PagedAttentionArgs, k_scale)},
    {"v_scale", offsetof(PagedAttentionArgs, v_scale)},
    {"sinks", offsetof(PagedAttentionArgs, sinks)},
    {"alibi_slopes", offsetof(PagedAttentionArgs, alibi_slopes)},
    {"block_table", offsetof(PagedAttentionArgs, block_table)},
    {"context_lengths", offsetof(PagedAttentionArgs, context_lengths)},
    {"partial_out", offsetof(PagedAttentionArgs, partial_out)},
    {"partial_lse", offsetof(PagedAttentionArgs, partial_lse)},
}};

/// Workspace bytes for a number of splits: partial outputs and their lse, nothing for one split.
constexpr std::size_t paged_attention_workspace_size(const PagedAttentionProblem& p, int num_splits) {
  if (num_splits <= 1) return 0;
  const std::size_t partials = std::size_t{1} * p.batch * p.mtp * p.num_q_heads * num_splits;
  return partials * (p.spec.head_size + 1) * sizeof(float);
}

/// Block tiles of one split of a batch-invariant call, 0 for others.
constexpr std::int32_t paged_attention_split_tiles(const PagedAttentionProblem& p, const PagedAttentionPolicy& policy) {
  return static_cast<std::int32_t>(ceil_div<std::int64_t>(p.split_tokens, policy.block_tokens(p.spec)));
}

/// Most tokens that one sequence of a problem attends, as far as capacities tell.
constexpr std::int64_t paged_attention_attended(const PagedAttentionProblem& p) {
  const std::int64_t capacity = std::int64_t{p.table_columns} * p.block_size;
  return p.sliding_window > 0 ? min_of(capacity, std::int64_t{p.sliding_window} + p.mtp) : capacity;
}

/// The splits that a batch-invariant call takes: those that the longest sequence fills, at most max_splits. Its first
/// tile may begin up to a wave's tile before the window.
constexpr int paged_attention_fixed_splits(const PagedAttentionProblem& p, const PagedAttentionPolicy& policy) {
  const std::int64_t tokens =
      paged_attention_attended(p) + (p.sliding_window > 0 ? AtomFacts::groups * p.spec.unit() : 0);
  const std::int64_t tiles = max_of<std::int64_t>(1, ceil_div<std::int64_t>(tokens, policy.block_tokens(p.spec)));
  return static_cast<int>(
      min_of<std::int64_t>(max_splits, ceil_div<std::int64_t>(tiles, paged_attention_split_tiles(p, policy))));
}

inline PagedAttentionArgs paged_attention_args(const PagedAttentionProblem& p, const PagedAttentionPolicy& policy,
                                               int num_splits) {
  PagedAttentionArgs a{};
  a.q = p.q;
  a.k = p.k;
  a.v = p.v;
  a.out = p.out;
  a.lse = p.lse;
  a.k_scale = p.k_scale;
  a.v_scale = p.v_scale;
  a.sinks = p.sinks;
  a.alibi_slopes = p.alibi_slopes;
  a.block_table = p.block_table;
  a.context_lengths = p.context_lengths;
  if (num_splits > 1) {
    a.partial_out = static_cast<float*>(p.workspace);
    a.partial_lse = a.partial_out + std::int64_t{1} * p.batch * p.mtp * p.num_q_heads * num_splits * p.spec.head_size;
  }
  a.q_row_stride = p.q_row_stride;
  a.q_head_stride = p.q_head_stride;
  a.out_row_stride = p.out_row_stride;
  a.out_head_stride = p.out_head_stride;
  a.k_strides = p.k_strides;
  a.v_strides = p.v_strides;
  a.scale_page_stride = p.scale_page_stride;
  a.scale_head_stride = p.scale_head_stride;
  a.table_row_stride = p.table_row_stride;
  const std::int32_t group = p.num_q_heads / p.num_kv_heads;
  a.mtp = p.mtp;
  a.rows = p.mtp * group;
  a.block_size = FastDiv::by(p.block_size);
  a.group = FastDiv::by(group);
  a.splits = FastDiv::by(num_splits);
  a.row_groups = FastDiv::by(ceil_div(a.rows, policy.block_rows()));
  a.kv_heads = FastDiv::by(p.num_kv_heads);
  a.num_q_heads = p.num_q_heads;
  a.capacity = p.table_columns * p.block_size;
  a.split_tiles = paged_attention_split_tiles(p, policy);
  a.window = p.sliding_window > 0 ? p.sliding_window : std::numeric_limits<std::int32_t>::max();
  a.output_rows = p.batch * p.mtp * p.num_q_heads;
  a.scale_log2 = p.spec.soft_cap ? p.softmax_scale / p.soft_cap : p.softmax_scale * log2_e;
  a.cap_log2 = p.soft_cap * log2_e;
  return a;
}

/// Blocks of the decode launch: fixed by capacities, never by lengths.
inline std::int64_t paged_attention_grid(const PagedAttentionProblem& p, const PagedAttentionPolicy& policy,
                                         int num_splits) {
  const std::int32_t rows = p.mtp * (p.num_q_heads / p.num_kv_heads);
  return std::int64_t{1} * p.batch * p.num_kv_heads * ceil_div(rows, policy.block_rows()) * num_splits;
}

}  // namespace tilewave
