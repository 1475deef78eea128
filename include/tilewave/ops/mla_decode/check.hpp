// SPDX-License-Identifier: MIT
// These are the rules that a problem must satisfy, whichever entry takes it. They are checked before any work is done.
#pragma once

#include <cmath>

#include "tilewave/arch/facts.hpp"
#include "tilewave/core/region.hpp"
#include "tilewave/ops/mla_decode/args.hpp"
#include "tilewave/tile/row_check.hpp"
#include "tilewave/tile/workspace.hpp"

namespace tilewave {

/// Returns ok if kernels of a spec can be built for a chip, else the rule that the spec breaks.
constexpr Status mla_decode_check_spec(const MlaDecodeSpec& s, const ArchFacts& facts) {
  constexpr StatusCode type = StatusCode::unsupported_dtype, layout = StatusCode::unsupported_layout;
  if (s.layout != LatentLayout::plain && s.layout != LatentLayout::groups_128 && s.layout != LatentLayout::groups_64) {
    return {layout, "spec.layout must be plain, groups_128 or groups_64"};
  }
  if (s.kv != DType::bf16 && s.kv != facts.fp8) return {type, "spec.kv must be bf16 or this architecture's fp8"};
  if (s.q != DType::bf16 && s.q != facts.fp8) return {type, "spec.q must be bf16 or this architecture's fp8"};
  if (s.q != DType::bf16 && (s.kv != s.q || s.layout != LatentLayout::plain)) {
    return {type, "fp8 q goes with fp8 rows of the plain layout"};
  }
  if (s.layout != LatentLayout::plain && s.kv != facts.fp8) return {type, "groups of codes are fp8: spec.kv"};
  if (s.head_size != 576 && s.head_size != 512) {
    return {StatusCode::unsupported_head_size, "head_size must be 576 or 512"};
  }
  if (s.layout == LatentLayout::groups_128 && s.head_size != 576) {
    return {StatusCode::unsupported_head_size, "head_size of groups_128 must be 576"};
  }
  if (s.layout == LatentLayout::groups_64 && s.head_size != 512) {
    return {StatusCode::unsupported_head_size, "head_size of groups_64 must be 512"};
  }
  return {};
}

namespace detail {

inline Status check_mla_extents(const MlaDecodeProblem& p) {
  constexpr StatusCode extent = StatusCode::bad_extent, value = StatusCode::bad_value;
  if (p.batch < 0) return {extent, "batch is negative"};
  if (p.query_tokens < 1 || p.query_tokens > max_mtp) {
    return {StatusCode::unsupported_mtp, "query_tokens must be 1 to 8"};
  }
  if (p.num_q_heads < 1 || p.num_q_heads > 128) {
    return {StatusCode::unsupported_head_ratio, "num_q_heads must be 1 to 128"};
  }
  if (p.block_size < 1) return {StatusCode::unsupported_block_size, "block_size must be positive"};
  if (p.table_columns < 0 || p.num_pages < 0) return {extent, "table_columns or num_pages is negative"};
  if (p.capacity() > (std::int64_t{1} << 30)) return {extent, "table_columns * block_size must be 2^30 or less"};
  if (p.output_rows() > std::numeric_limits<std::int32_t>::max() - 65536) {
    return {extent, "batch * query_tokens * num_q_heads must stay below 2^31 - 65536"};
  }
  if (p.num_pages > std::numeric_limits<std::int32_t>::max()) return {extent, "num_pages must stay below 2^31"};
  if (p.num_pages == 0 && p.table_columns > 0 && p.batch > 0) return {extent, "num_pages is 0"};
  if (p.softmax_scale == 0.0f)
    return {value, "softmax_scale is 0: give that of the model, which q . row is multiplied by"};
  if (!std::isfinite(p.softmax_scale * log2_e)) return {value, "softmax_scale, and it times log2(e), must be finite"};
  if (p.split_tokens < 0) return {value, "split_tokens is negative"};
  return {};
}

inline Status check_mla_pointers(const MlaDecodeProblem& p) {
  constexpr StatusCode null = StatusCode::null_pointer, value = StatusCode::bad_value;
  if (p.q == nullptr) return {null, "q is null"};
  if (p.out == nullptr) return {null, "out is null"};
  if (p.context_lengths == nullptr) return {null, "context_lengths is null"};
  if (p.table_columns > 0 && p.kv == nullptr) return {null, "kv is null"};
  if (p.table_columns > 0 && p.block_table == nullptr) return {null, "block_table is null"};
  const bool q_scaled = is_fp8(p.spec.q), kv_scaled = is_fp8(p.spec.kv) && p.spec.layout == LatentLayout::plain;
  if (q_scaled && p.q_scale == nullptr) return {null, "fp8 q needs q_scale"};
  if (kv_scaled && p.kv_scale == nullptr) return {null, "fp8 rows of the plain layout need kv_scale"};
  if (!q_scaled && p.q_scale != nullptr) return {value, "q_scale is of fp8 q"};
  if (!kv_scaled && p.kv_scale != nullptr) return {value, "kv_scale is of fp8 rows of the plain layout"};
  const void* const out = p.out;
  for (const void* wide : {p.q, p.kv, out}) {
    if (!is_aligned(wide, 16)) {
      return {StatusCode::misaligned, "q, kv and out need 16-byte alignment"};
    }
  }
  const void *lse = p.lse, *q_scale = p.q_scale, *kv_scale = p.kv_scale, *sinks = p.sinks, *table = p.block_table,
             *lengths = p.context_lengths;
  for (const void* words : {lse, q_scale, kv_scale, sinks, table, lengths}) {
    if (!element_aligned(words, DType::f32)) {
      return {StatusCode::misaligned, "lse, scales, sinks, table and lengths need 4-byte alignment"};
    }
  }
  return {};
}

/// Rows of q, of the cache and of out begin on multiples of 16 bytes, and tensors that are written overlap nothing.
inline Status check_mla_strides(const MlaDecodeProblem& p) {
  constexpr StatusCode bad = StatusCode::bad_stride;
  const LatentRow row = p.spec.row();
  const std::int64_t q_unit = 16 / size_of(p.spec.q), kv_unit = 16 / size_of(row.kv), kv_size = size_of(row.kv);
  if (p.q_row_stride % q_unit != 0 || p.q_head_stride % q_unit != 0)
    return {bad, "strides of q must be whole 16 bytes"};
  if (p.out_row_stride % 8 != 0 || p.out_head_stride % 8 != 0) return {bad, "strides of out must be whole 16 bytes"};
  if (p.page_stride % kv_unit != 0 || p.token_stride % kv_unit != 0) {
    return {bad, "page_stride and token_stride must be whole 16 bytes"};
  }
  if (row.scales_apart() && p.token_stride != row.token_bytes()) {
    return {bad, "token_stride of groups_64 is 576: scales follow the rows of a page"};
  }
  const std::int64_t tokens = std::int64_t{p.batch} * p.query_tokens, pages = p.table_columns > 0 ? p.num_pages : 0;
  const Region q(p.q, size_of(p.spec.q), p.spec.head_size,
                 {{tokens, p.q_row_stride}, {p.num_q_heads, p.q_head_stride}});
  const Region out(p.out, 2, latent_value_size, {{tokens, p.out_row_stride}, {p.num_q_heads, p.out_head_stride}});
  const Region lse = vector_region(p.lse, DType::f32, p.output_rows());
  const Region kv = row.scales_apart()
                        ? Region(p.kv, 1, std::int64_t{p.block_size} * (row.token_bytes() + LatentRow::apart_bytes),
                                 {{pages, p.page_stride}})
                        : Region(p.kv, static_cast<int>(kv_size), row.token_bytes() / kv_size,
                                 {{pages, p.page_stride}, {p.block_size, p.token_stride}});
  const Region table(p.block_table, 4, p.table_columns, {{p.batch, p.table_row_stride}});
  for (const Status& status :
       {check_read<"q">(q, "a stride of q is 0"), check_read<"kv">(kv, "page_stride or token_stride is 0"),
        check_read<"block_table">(table, "table_row_stride is 0"), check_written<"out">(out, "rows of out overlap")}) {
    if (!status.ok()) return status;
  }
  const std::initializer_list<Region> inputs{q,
                                             kv,
                                             table,
                                             vector_region(p.q_scale, DType::f32, 1),
                                             vector_region(p.kv_scale, DType::f32, 1),
                                             vector_region(p.sinks, DType::f32, p.num_q_heads),
                                             vector_region(p.context_lengths, DType::f32, p.batch)};
  if (!clear_of(out, inputs)) return {StatusCode::bad_value, "out overlaps an input"};
  if (!clear_of(lse, inputs)) return {StatusCode::bad_value, "lse overlaps an input"};
  if (overlap(out, lse)) return {StatusCode::bad_value, "out and lse overlap"};
  if (Status s = check_workspace_bytes(p.workspace_bytes); !s.ok()) return s;
  const Region workspace(p.workspace, 1, static_cast<std::int64_t>(p.workspace_bytes), {});
  if (!clear_of(workspace, inputs) || !clear_of(workspace, {out, lse})) {
    return {StatusCode::bad_value, "workspace overlaps another tensor"};
  }
  return {};
}

}  // namespace detail

/// Returns ok if a problem satisfies every rule of an architecture, else the code and the field of the first one it
/// breaks. Lengths live on the device and are not read. A sequence that is longer than the block table becomes NaN.
inline Status mla_decode_check(const MlaDecodeProblem& p, const ArchFacts& facts) {
  if (Status s = mla_decode_check_spec(p.spec, facts); !s.ok()) return s;
  if (Status s = detail::check_mla_extents(p); !s.ok()) return s;
  if (p.batch == 0) return {};  // nothing to read or write
  if (Status s = detail::check_mla_pointers(p); !s.ok()) return s;
  return detail::check_mla_strides(p);
}

}  // namespace tilewave
