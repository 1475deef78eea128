// SPDX-License-Identifier: MIT
// From a Problem to a queued kernel.
#pragma once

#include "tilewave/ops/kv_cache_write/check.hpp"
#include "tilewave/ops/kv_cache_write/kernel.hpp"

namespace tilewave {

/// Returns whether the kernels with 16-byte accesses can take the problem. They always can, since the check refuses
/// others.
inline bool kv_cache_write_aligned(const KvCacheWriteProblem&) { return true; }

/// The arguments of the kernels.
inline KvCacheWriteArgs kv_cache_write_args(const KvCacheWriteProblem& p, const KvCacheWritePolicy& policy) {
  const bool dim_major = p.values == ValueLayout::dim_major;
  const std::int32_t heads = p.q_heads + p.kv_heads, head_rows = p.tokens * heads;
  const void* const unwritten = p.v != nullptr ? p.v : p.k;
  return {.head_blocks = ceil_div(head_rows, policy.rows),
          .head_rows = head_rows,
          .q_heads = p.q_heads,
          .heads = FastDiv::by(heads),
          .value_rows = p.v != nullptr ? p.tokens * p.kv_heads : 0,
          .inner_values = FastDiv::by(dim_major ? p.tokens : p.kv_heads),
          .head_size = p.head_size,
          .rotary = p.rotary,
          .rotary_first = p.rotary_first,
          .tables_ready = p.tables_ready,
          .q = p.q,
          .k = p.k,
          .v = p.v,
          .q_strides = p.q_strides,
          .k_strides = p.k_strides,
          .v_strides = p.v_strides,
          .slots = IndexList::of(p.slots, p.slot_type),
          .positions = IndexList::of(p.positions, p.position_type),
          .q_norm = p.q_norm != nullptr ? p.q_norm : unwritten,
          .k_norm = p.k_norm != nullptr ? p.k_norm : unwritten,
          .k_scale = p.k_scale,
          .v_scale = p.v_scale,
          .scale_page_stride = p.scale_page_stride,
          .scale_head_stride = p.spec.quant == Scaling::per_tensor ? 0 : p.scale_head_stride,
          .table_stride = p.table_stride,
          .cos = p.cos,
          .sin = p.sin,
          .table_rows = p.table_rows,
          .q_weighted = p.q_norm != nullptr,
          .k_weighted = p.k_norm != nullptr,
          .dim_major = dim_major,
          .eps = p.eps,
          .per_column = 1.0f / static_cast<float>(p.head_size),
          .slot_limit = static_cast<std::int32_t>(p.num_pages * p.block_size),
          .block_size = FastDiv::by(p.block_size),
          .k_cache = p.k_cache,
          .v_cache = p.v_cache,
          .k_cache_strides = p.k_cache_strides,
          .v_cache_strides = p.v_cache_strides,
          .q_out = p.q_out,
          .q_out_strides = p.q_out_strides,
          .q_scale = p.q_scale,
          .k_out = p.k_out,
          .k_out_strides = p.k_out_strides};
}

/// Queues the kernel on the stream. Nothing is allocated, synchronised or read from the device. Errors: those of
/// kv_cache_write_check; no_matching_entry if the entry is of another spec or its policy does not take the heads;
/// launch_failed with the runtime's reason.
template <class B, KvCacheWriteSpec S, KvCacheWritePolicy P>
Status kv_cache_write_launch(const KvCacheWriteProblem& p, hipStream_t stream) {
  if (Status s = check_row_launch(S, P, p, B::facts, kv_cache_write_check, kv_cache_write_aligned); !s.ok()) return s;
  if (p.tokens == 0) return {};
  const KvCacheWriteArgs args = kv_cache_write_args(p, P);
  const std::int64_t blocks = std::int64_t{args.head_blocks} + ceil_div(args.value_rows, P.rows);
  return B::template launch<KvCacheWrite<B, kernel_spec(S), P>>({blocks, P.block_threads()}, args, stream);
}

}  // namespace tilewave
