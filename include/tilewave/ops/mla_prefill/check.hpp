// SPDX-License-Identifier: MIT
// The rules of a prefill of latent attention that are its own. Those of its parts are checked by the parts.
#pragma once

#include <cmath>
#include <limits>

#include "tilewave/core/region.hpp"
#include "tilewave/ops/mla_prefill/calls.hpp"
#include "tilewave/tile/row_check.hpp"

namespace tilewave {

/// Says whether a call has anything to do.
constexpr bool mla_prefill_is_empty(const MlaPrefillProblem& p) { return p.batch == 0 || p.total_q == 0; }

/// Checks whether an architecture computes a spec.
/// Errors: unsupported_dtype or unsupported_layout, with a reason.
constexpr Status mla_prefill_check_spec(const MlaPrefillSpec& s, const ArchFacts& facts) {
  constexpr StatusCode type = StatusCode::unsupported_dtype;
  if (s.layout != LatentLayout::plain && s.layout != LatentLayout::groups_128)
    return {StatusCode::unsupported_layout, "spec.layout must be plain or groups_128"};
  if (s.kv != DType::bf16 && s.kv != facts.fp8) return {type, "spec.kv must be bf16 or this architecture's fp8"};
  if (s.layout != LatentLayout::plain && s.kv != facts.fp8) return {type, "groups of codes are fp8: spec.kv"};
  return {};
}

namespace detail {

inline Status check_mla_prefill_extents(const MlaPrefillProblem& p) {
  constexpr StatusCode extent = StatusCode::bad_extent, value = StatusCode::bad_value;
  constexpr std::int32_t most = std::numeric_limits<std::int32_t>::max() - 65536;
  if (p.batch < 0 || p.total_q < 0 || p.q_length < 0) return {extent, "batch, total_q or q_length is negative"};
  if (p.context_tokens < 0) return {extent, "context_tokens is negative"};
  if (p.batch > most || p.total_q > most || p.context_tokens > most)
    return {extent, "batch, total_q and context_tokens must stay below 2^31 - 65536"};
  if (p.q_heads < 1 || p.q_heads > 1024) return {StatusCode::unsupported_head_ratio, "q_heads must be 1 to 1024"};
  if (p.context_tokens > 0 ? p.chunk_tokens < 1 : p.chunk_tokens < 0)
    return {extent, "chunk_tokens must be positive where there are earlier tokens"};
  if (p.chunks() >= max_partials) return {extent, "context_tokens are more than 127 times chunk_tokens"};
  if (p.block_size < 1) return {StatusCode::unsupported_block_size, "block_size must be positive"};
  if (p.table_columns < 0 || p.num_pages < 0) return {extent, "table_columns or num_pages is negative"};
  if (p.capacity() > std::int64_t{1} << 30) return {extent, "table_columns * block_size must be 2^30 or less"};
  if (p.num_pages > most) return {extent, "num_pages must stay below 2^31 - 65536"};
  if (!mla_prefill_is_empty(p) && (p.num_pages == 0 || p.table_columns == 0))
    return {extent, "num_pages or table_columns is 0: the cache holds the queries' tokens too"};
  if (p.softmax_scale == 0.0f) return {value, "softmax_scale is 0: give that of the model, which q . key is times"};
  if (!std::isfinite(p.softmax_scale * log2_e)) return {value, "softmax_scale, and it times log2(e), must be finite"};
  return {};
}

inline Status check_mla_prefill_pointers(const MlaPrefillProblem& p) {
  constexpr StatusCode null = StatusCode::null_pointer;
  if (p.q == nullptr || p.out == nullptr) return {null, "q or out is null"};
  if (p.kv == nullptr) return {null, "kv is null"};
  if (p.up == nullptr) return {null, "up is null"};
  if (p.q_starts == nullptr || p.kv_lengths == nullptr) return {null, "q_starts or kv_lengths is null"};
  if (p.block_table == nullptr) return {null, "block_table is null"};
  if (p.spec.has_scale() && p.kv_scale == nullptr) return {null, "fp8 rows of the plain layout need kv_scale"};
  if (!p.spec.has_scale() && p.kv_scale != nullptr)
    return {StatusCode::bad_value, "kv_scale is of fp8 rows of the plain layout"};
  const void* const out = p.out;
  for (const void* wide : {p.q, p.kv, p.up, out})
    if (!is_aligned(wide, 16)) return {StatusCode::misaligned, "q, kv, up and out need 16-byte alignment"};
  for (const void* words :
       {static_cast<const void*>(p.lse), static_cast<const void*>(p.kv_scale), static_cast<const void*>(p.q_starts),
        static_cast<const void*>(p.kv_lengths), static_cast<const void*>(p.block_table)})
    if (!is_aligned(words, 4))
      return {StatusCode::misaligned, "lse, kv_scale, starts, lengths and tables need 4-byte alignment"};
  const int unit = 16 / size_of(p.spec.kv);
  if (p.page_stride % unit != 0 || p.token_stride % unit != 0)
    return {StatusCode::bad_stride, "page_stride and token_stride must be whole 16 bytes"};
  if (p.lse == nullptr && p.lse_head_stride != p.total_q && p.lse_head_stride != 0)
    return {StatusCode::bad_value, "lse_head_stride is given, but lse is not"};
  return {};
}

/// Checks tensors that the op reads itself, and that nothing written shares a byte with another tensor. `workspace`:
/// empty where it is not there yet.
inline Status check_mla_prefill_regions(const MlaPrefillProblem& p, const Region& workspace) {
  const LatentRow row = p.spec.row();
  const int size = size_of(row.kv);
  const Region q(p.q, 2, mla_head_size, {{p.total_q, p.q_token_stride}, {p.q_heads, p.q_head_stride}});
  const Region out(p.out, 2, mla_value_size, {{p.total_q, p.out_token_stride}, {p.q_heads, p.out_head_stride}});
  const Region lse(p.lse, 4, p.total_q, {{p.q_heads, p.lse_head_stride}});
  const Region kv(
      p.kv, size, row.token_bytes() / size,
      {{p.num_pages, p.page_stride, "page_stride is 0"}, {p.block_size, p.token_stride, "token_stride is 0"}});
  const Region up(p.up, 2, latent_value_size, {{std::int64_t{p.q_heads} * 2 * mla_nope_size, p.up_stride}});
  const Region table(p.block_table, 4, p.table_columns, {{p.batch, p.table_row_stride, "table_row_stride is 0"}});
  const auto words = [](const void* data, std::int64_t count) { return vector_region(data, DType::f32, count); };
  const Region starts = words(p.q_starts, std::int64_t{p.batch} + 1), lengths = words(p.kv_lengths, p.batch);
  const Region scale = words(p.kv_scale, 1);
  for (const Status& status :
       {check_read<"kv">(kv, "page_stride or token_stride is 0"), check_read<"up">(up, "up_stride is 0"),
        check_read<"block_table">(table, "table_row_stride is 0"),
        check_written<"out">(out, "rows or heads of out overlap"), check_written<"lse">(lse, "heads of lse overlap")}) {
    if (!status.ok()) return status;
  }
  for (const Region* written : {&out, &lse, &workspace}) {
    if (!clear_of(*written, {q, kv, up, table, starts, lengths, scale}))
      return {StatusCode::bad_value, written == &workspace ? "workspace overlaps a tensor"
                                     : written == &out     ? "out overlaps an input"
                                                           : "lse overlaps an input"};
  }
  if (!clear_of(workspace, {out, lse})) return {StatusCode::bad_value, "workspace overlaps out or lse"};
  if (overlap(out, lse)) return {StatusCode::bad_value, "out and lse overlap"};
  return {};
}

}  // namespace detail

/// Stands for a workspace where none is there yet: no tensor lies there.
inline void* mla_prefill_no_workspace() { return reinterpret_cast<void*>(std::uintptr_t{1} << 62); }

/// Checks all rules of a problem, also those of the ops that it consists of. Starts, lengths and tables are on the
/// device and are not read. `base`: the workspace; `up_bytes`: of the entries of the plan's products.
/// Errors: a code and a reason for the first rule that is broken.
inline Status mla_prefill_check(const MlaPrefillProblem& p, const ArchFacts& facts, void* base, std::size_t up_bytes) {
  if (Status s = mla_prefill_check_spec(p.spec, facts); !s.ok()) return s;
  if (Status s = detail::check_mla_prefill_extents(p); !s.ok()) return s;
  if (mla_prefill_is_empty(p)) return {};
  if (Status s = detail::check_mla_prefill_pointers(p); !s.ok()) return s;
  if (Status s = detail::check_mla_prefill_regions(p, {}); !s.ok()) return s;  // calls multiply strides
  const MlaPrefillCalls calls(p, base, up_bytes);
  const auto needed = static_cast<std::int64_t>(calls.workspace_bytes);
  const Region workspace(base, 1, base != mla_prefill_no_workspace() ? needed : 0, {});
  if (Status s = detail::check_mla_prefill_regions(p, workspace); !s.ok()) return s;
  for (std::int32_t i = 0; i <= min_of(p.chunks(), 1); ++i) {  // all chunks are alike
    const MlaPrefillPart part = calls.part(i);
    if (Status s = gemm_check(part.up, facts); !s.ok()) return s;
    if (Status s = flash_attention_check(part.attend, facts); !s.ok()) return s;
  }
  return p.chunks() > 0 ? attention_combine_check(calls.merge, facts) : Status{};
}
inline Status mla_prefill_check(const MlaPrefillProblem& p, const ArchFacts& facts) {
  return mla_prefill_check(p, facts, mla_prefill_no_workspace(), 0);
}

}  // namespace tilewave
