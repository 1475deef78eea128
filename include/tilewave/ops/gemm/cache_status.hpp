// SPDX-License-Identifier: MIT
// Which products write their heads into a cache themselves (GemmProblem::cache_write).
#pragma once

#include "tilewave/ops/gemm/norm_status.hpp"
#include "tilewave/ops/gemm/tensor/cache_output.hpp"
#include "tilewave/ops/kv_cache_write/check.hpp"

namespace tilewave::detail {

/// Checks what a problem says of a cache write. The rules of the write itself are those of kv_cache_write_check.
inline Status check_gemm_cache_write(const GemmProblem& p, const ArchFacts& facts) {
  if (p.cache_write == nullptr) return {};
  const KvCacheWriteProblem& w = *p.cache_write;
  if (Status s = kv_cache_write_check(w, facts); !s.ok()) return s;
  const DType x = p.spec.out;
  if (!gemm_spec_takes_norm(p.spec) || p.spec.gated || size_of(x) != 2)
    return {StatusCode::unsupported_layout, "cache_write is for bf16 and f16 without scales, groups and gates"};
  if (!(w.spec == KvCacheWriteSpec{.x = x, .kv = x, .fused = true, .q_out = x, .pairs = RopePairs::neighbours}))
    return {StatusCode::unsupported_layout,
            "a product rotates pairs of neighbours by f32 tables, into caches of its type"};
  if (p.residual != nullptr || p.out_squares != nullptr)
    return {StatusCode::bad_value, "a product that writes a cache takes no residual and no out_squares"};
  const std::int64_t heads = std::int64_t{w.q_heads} + 2 * w.kv_heads, head = w.head_size;
  if (p.batch != 1 || w.tokens != p.m || heads * head != p.n)
    return {StatusCode::bad_extent, "rows of out are tokens of q, k and v heads"};
  if (w.rotary != w.head_size || w.values != ValueLayout::token_major || w.k_cache_strides.unit != w.spec.unit())
    return {StatusCode::unsupported_layout, "a product rotates whole heads, and writes rows of tokens"};
  const auto* const out = static_cast<const std::uint16_t*>(p.out);
  bool same = w.q == out && w.q_out == out && w.k == out + w.q_heads * head && w.k_out == nullptr &&
              w.v == out + (w.q_heads + w.kv_heads) * head;
  for (const HeadStrides& strides : {w.q_strides, w.q_out_strides, w.k_strides, w.v_strides})
    same = same && strides.token == p.out_stride && strides.head == head;
  if (p.m > 0 && !same) return {StatusCode::bad_value, "q, q_out, k and v of cache_write are the columns of out"};
  return {};
}

/// What the kernel needs of it.
inline GemmCacheArgs gemm_cache_args(const GemmProblem& p) {
  if (p.cache_write == nullptr) return {};
  const KvCacheWriteProblem& w = *p.cache_write;
  return {.positions = IndexList::of(w.positions, w.position_type),
          .slots = IndexList::of(w.slots, w.slot_type),
          .cos = static_cast<const Storage<DType::f32>*>(w.cos),
          .sin = static_cast<const Storage<DType::f32>*>(w.sin),
          .table_stride = w.table_stride,
          .k_cache = w.k_cache,
          .v_cache = w.v_cache,
          .k_strides = {w.k_cache_strides.page, w.k_cache_strides.head, w.k_cache_strides.token},
          .v_strides = {w.v_cache_strides.page, w.v_cache_strides.head, w.v_cache_strides.token},
          .table_rows = w.table_rows,
          .slot_limit = static_cast<std::int32_t>(w.num_pages * w.block_size),
          .q_heads = w.q_heads,
          .rotated_heads = w.q_heads + w.kv_heads,
          .head_size = FastDiv::by(w.head_size),
          .block_size = FastDiv::by(w.block_size),
          .writes = true};
}

}  // namespace tilewave::detail
