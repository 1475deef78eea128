// SPDX-License-Identifier: MIT
// Every rule that a problem must satisfy, whichever entry takes it. All are checked before any work is done.
#pragma once

#include <cmath>
#include <limits>

#include "tilewave/attention/reach.hpp"
#include "tilewave/core/region.hpp"
#include "tilewave/ops/paged_attention/args.hpp"
#include "tilewave/tile/row_tensors.hpp"

namespace tilewave {

/// Returns ok if kernels of a spec can be built for a chip, else the rule that the spec breaks.
constexpr Status paged_attention_check_spec(const PagedAttentionSpec& s, const ArchFacts& facts) {
  if (s.q != DType::bf16 && s.q != DType::f16) return {StatusCode::unsupported_dtype, "q must be bf16 or f16"};
  if (s.out != s.q) return {StatusCode::unsupported_dtype, "out must be of q's type"};
  if (s.kv == s.q) {
    if (s.quant != Scaling::none) return {StatusCode::unsupported_scaling, "16-bit KV takes scaling none"};
  } else if (is_fp8(s.kv)) {
    if (s.kv != facts.fp8) return {StatusCode::unsupported_dtype, "fp8 flavour of KV is not this architecture's"};
    if (!is_cache_scaling(s.quant)) {
      return {StatusCode::unsupported_scaling, "fp8 KV needs per_tensor, per_head or per_token"};
    }
  } else {
    return {StatusCode::unsupported_dtype, "KV must be of q's type or fp8"};
  }
  if (s.values != ValueLayout::dim_major && s.values != ValueLayout::token_major) {
    return {StatusCode::unsupported_layout, "values must be dim_major or token_major"};
  }
  if (s.any_block_size && s.values != ValueLayout::token_major) {
    return {StatusCode::unsupported_layout, "any_block_size needs token_major values"};
  }
  if (s.native) {
    if (!facts.wave_groups) {
      return {StatusCode::unsupported_dtype, "native fp8 products are served on sm90"};
    }
    if (Status status = paged_attention_check_native(s); !status.ok()) return status;
  }
  bool known = false;
  for (const int size : paged_attention_head_sizes) known = known || s.head_size == size;
  if (!known) return {StatusCode::unsupported_head_size, "head_size must be 64, 80, 96, 112, 128, 192 or 256"};
  return {};
}

namespace detail {

inline Status check_extents(const PagedAttentionProblem& p) {
  if (p.batch < 0) return {StatusCode::bad_extent, "batch is negative"};
  if (p.mtp < 1 || p.mtp > max_mtp) return {StatusCode::unsupported_mtp, "mtp must be 1 to 8"};
  if (p.num_kv_heads < 1 || p.num_q_heads < 1) return {StatusCode::bad_extent, "head counts must be positive"};
  if (p.num_q_heads % p.num_kv_heads != 0) {
    return {StatusCode::unsupported_head_ratio, "num_q_heads must be a multiple of num_kv_heads"};
  }
  if (p.block_size < 1) return {StatusCode::unsupported_block_size, "block_size must be positive"};
  if (p.block_size % 16 != 0 && !p.spec.any_block_size) {
    return {StatusCode::unsupported_block_size, "block_size must be a multiple of 16 unless spec.any_block_size"};
  }
  if (p.table_columns < 0) return {StatusCode::bad_extent, "table_columns is negative"};
  if (p.num_pages < 0) return {StatusCode::bad_extent, "num_pages is negative"};
  if (p.num_pages == 0 && p.batch > 0 && p.table_columns > 0) {
    return {StatusCode::bad_extent, "num_pages is 0: it is the number of pages in the caches that block_table names"};
  }
  constexpr std::int64_t int_max = std::numeric_limits<std::int32_t>::max();
  // Token positions run up to a tile past the end before they are clamped.
  if (p.capacity() > int_max - 65536) {
    return {StatusCode::bad_extent, "table_columns * block_size must stay below 2^31 - 65536"};
  }
  const std::int64_t rows_per_head = std::int64_t{p.batch} * p.mtp;
  if (rows_per_head > int_max || rows_per_head * p.num_q_heads > int_max - 65536) {
    return {StatusCode::bad_extent, "batch * mtp * num_q_heads must stay below 2^31 - 65536"};
  }
  if (p.softmax_scale == 0.0f) {
    return {StatusCode::bad_value, "softmax_scale is 0: give what q . k is multiplied by, as 1 / sqrt(head_size)"};
  }
  if (!std::isfinite(p.softmax_scale * log2_e)) {
    return {StatusCode::bad_value, "softmax_scale, and it times log2(e), must be finite"};
  }
  if (!p.spec.soft_cap) {
    if (p.soft_cap != 0.0f) return {StatusCode::bad_value, "soft_cap is set, but the spec has none"};
  } else if (!(p.soft_cap > 0.0f) || !std::isfinite(p.soft_cap * log2_e) ||
             !std::isfinite(p.softmax_scale / p.soft_cap)) {
    return {StatusCode::bad_value, "a spec with soft_cap needs one above 0, with finite products"};
  }
  if (p.split_tokens < 0) return {StatusCode::bad_value, "split_tokens must be 0 (for speed) or positive"};
  if (p.sliding_window < 0) return {StatusCode::bad_value, "sliding_window must be 0 (none) or positive"};
  if (p.balanced && p.split_tokens > 0) {
    return {StatusCode::bad_value, "a call is balanced over its batch or batch-invariant, not both"};
  }
  return {};
}

/// The memory that each tensor of a problem takes.
struct PagedAttentionRegions {
  Region q, k, v, k_scale, v_scale, table, out, lse;
  Region lengths, sinks, alibi_slopes, stage_starts;

  explicit PagedAttentionRegions(const PagedAttentionProblem& p) {
    const PagedAttentionSpec& s = p.spec;
    const std::int64_t rows = std::int64_t{p.batch} * p.mtp, heads = p.num_q_heads;
    const int unit = s.unit(), element = size_of(s.kv);
    const Region::Dimension pages{p.table_columns > 0 ? p.num_pages : 0, p.k_strides.page, stride_field<"page">};
    q = {p.q, size_of(s.q), s.head_size, {{rows, p.q_row_stride}, {heads, p.q_head_stride}}};
    out = {p.out, size_of(s.out), s.head_size, {{rows, p.out_row_stride}, {heads, p.out_head_stride}}};
    lse = {p.lse, sizeof(float), rows * heads, {}};
    lengths = {p.context_lengths, sizeof(std::int32_t), p.batch, {}};
    sinks = {p.sinks, sizeof(float), heads, {}};
    alibi_slopes = {p.alibi_slopes, sizeof(float), heads, {}};
    stage_starts = {p.stage_starts, sizeof(std::int32_t), std::int64_t{p.batch} + 1, {}};
    table = {p.block_table, sizeof(std::int32_t), p.table_columns, {{p.batch, p.table_row_stride}}};
    k = {p.k,
         element,
         unit,
         {pages,
          {p.num_kv_heads, p.k_strides.head, stride_field<"head">},
          {s.head_size / unit, p.k_strides.unit, stride_field<"unit">},
          {p.block_size, p.k_strides.token, stride_field<"token">}}};
    const Region::Dimension v_pages{pages.count, p.v_strides.page, stride_field<"page">},
        v_heads{p.num_kv_heads, p.v_strides.head, stride_field<"head">};
    if (s.values == ValueLayout::token_major) {
      v = {p.v, element, s.head_size, {v_pages, v_heads, {p.block_size, p.v_strides.token, stride_field<"token">}}};
    } else {
      v = {p.v,
           element,
           unit,
           {v_pages,
            v_heads,
            {p.block_size / unit, p.v_strides.unit, stride_field<"unit">},
            {s.head_size, p.v_strides.dim, stride_field<"dim">}}};
    }
    const bool per_token = s.quant == Scaling::per_token;
    const auto scales = [&](const float* item) {
      return Region(item, sizeof(float), per_token ? p.block_size : 1,
                    {{per_token ? pages.count : 1, p.scale_page_stride, "scale_page_stride is 0"},
                     {per_token || s.quant == Scaling::per_head ? p.num_kv_heads : 1, p.scale_head_stride,
                      "scale_head_stride is 0"}});
    };
    if (s.quant != Scaling::none) {
      k_scale = scales(p.k_scale);
      v_scale = scales(p.v_scale);
    }
  }

  /// Returns whether a tensor that is written overlaps no tensor that is read.
  bool clear_of_inputs(const Region& written) const {
    for (const Region* read :
         {&q, &k, &v, &k_scale, &v_scale, &table, &lengths, &sinks, &alibi_slopes, &stage_starts}) {
      if (overlap(written, *read)) return false;
    }
    return true;
  }
};

/// Returns whether the workspace, of which a launch uses `needed` bytes, overlaps a tensor.
inline Status check_workspace_region(const PagedAttentionProblem& p, std::size_t needed) {
  const PagedAttentionRegions r(p);
  const Region workspace(p.workspace, 1, static_cast<std::int64_t>(needed), {});
  if (!r.clear_of_inputs(workspace) || overlap(workspace, r.out) || overlap(workspace, r.lse))
    return {StatusCode::bad_value, "workspace overlaps another tensor"};
  return {};
}

/// Returns whether strides give tensors that can lie in memory, and whether outputs overlap nothing.
inline Status check_regions(const PagedAttentionProblem& p) {
  const PagedAttentionRegions r(p);
  if (!r.q.addressable()) return {StatusCode::bad_stride, "q by its strides is larger than any memory"};
  if (!r.k.addressable()) return {StatusCode::bad_stride, "k by its strides is larger than any memory"};
  if (!r.v.addressable()) return {StatusCode::bad_stride, "v by its strides is larger than any memory"};
  if (!r.k_scale.addressable())
    return {StatusCode::bad_stride, "the scales by their strides are larger than any memory"};
  if (!r.table.addressable()) return {StatusCode::bad_stride, "table_row_stride is larger than any memory"};
  if (!r.out.addressable()) return {StatusCode::bad_stride, "out by its strides is larger than any memory"};
  constexpr std::int64_t int_max =
      std::numeric_limits<std::int32_t>::max();  // kernels count in units of 16 bytes, with 32 bits
  const int unit = p.spec.unit();
  const bool token_major = p.spec.values == ValueLayout::token_major;
  for (const Region::Dimension& d : {Region::Dimension{p.num_pages, p.k_strides.page},
                                     {p.block_size, p.k_strides.token},
                                     {p.num_pages, p.v_strides.page},
                                     {token_major ? p.block_size : 1, p.v_strides.token},
                                     {token_major ? 1 : p.block_size / unit, p.v_strides.unit}}) {
    if (d.count > 1 && (d.stride / unit > int_max || d.stride / unit < -int_max)) {
      return {StatusCode::bad_stride, "pages, tokens or units of k or v lie 32 GiB or more apart"};
    }
  }
  if (p.spec.quant == Scaling::per_token && p.num_pages > 1 &&
      (p.scale_page_stride > int_max || p.scale_page_stride < -int_max)) {
    return {StatusCode::bad_stride, "scales of pages lie 8 GiB or more apart"};
  }
  if (overlap(r.out, r.lse)) return {StatusCode::bad_stride, "out and lse overlap"};
  if (!r.clear_of_inputs(r.out)) return {StatusCode::bad_stride, "out overlaps a tensor that is read"};
  if (!r.clear_of_inputs(r.lse)) return {StatusCode::bad_stride, "lse overlaps a tensor that is read"};
  return {};
}

/// A stride that was left at 0 would read or write one element for many.
inline Status check_strides(const PagedAttentionProblem& p) {
  const bool many_rows = std::int64_t{p.batch} * p.mtp > 1, many_heads = p.num_q_heads > 1;
  const auto zero = [](const char* reason) { return Status{StatusCode::bad_stride, reason}; };
  if (many_rows && p.q_row_stride == 0) return zero("q_row_stride is 0");
  if (many_heads && p.q_head_stride == 0) return zero("q_head_stride is 0");
  const bool many_pages = p.table_columns > 1 && p.num_pages != 1, many_kv_heads = p.num_kv_heads > 1;
  const PagedKeyStrides& k = p.k_strides;
  const bool many_tokens = p.block_size > 1, many_units = p.block_size > p.spec.unit();
  if (many_tokens && k.token == 0) return zero("k_strides.token is 0");
  if (k.unit == 0) return zero("k_strides.unit is 0");
  if (many_pages && k.page == 0) return zero("k_strides.page is 0");
  if (many_kv_heads && k.head == 0) return zero("k_strides.head is 0");
  const PagedValueStrides& v = p.v_strides;
  const bool token_major = p.spec.values == ValueLayout::token_major;
  if (token_major && many_tokens && v.token == 0) return zero("v_strides.token is 0");
  if (!token_major && v.dim == 0) return zero("v_strides.dim is 0");
  if (!token_major && many_units && v.unit == 0) return zero("v_strides.unit is 0");
  if (many_pages && v.page == 0) return zero("v_strides.page is 0");
  if (many_kv_heads && v.head == 0) return zero("v_strides.head is 0");
  const bool per_token = p.spec.quant == Scaling::per_token, per_head = p.spec.quant == Scaling::per_head;
  if (per_token && many_pages && p.scale_page_stride == 0) return zero("scale_page_stride is 0");
  if ((per_token || per_head) && many_kv_heads && p.scale_head_stride == 0) return zero("scale_head_stride is 0");
  if (Status s = check_regions(p); !s.ok()) return s;
  const std::int64_t rows = std::int64_t{p.batch} * p.mtp;
  if (!disjoint(p.out_row_stride, rows, p.out_head_stride, p.num_q_heads, p.spec.head_size)) {
    return {StatusCode::bad_stride, "rows or heads of out overlap"};
  }
  if (p.batch > 1 && p.table_row_stride < p.table_columns)
    return {StatusCode::bad_stride, "table_row_stride is below table_columns"};
  return {};
}

inline Status check_tensors(const PagedAttentionProblem& p) {
  if (p.q == nullptr) return {StatusCode::null_pointer, "q is null"};
  if (p.k == nullptr) return {StatusCode::null_pointer, "k is null"};
  if (p.v == nullptr) return {StatusCode::null_pointer, "v is null"};
  if (p.out == nullptr) return {StatusCode::null_pointer, "out is null"};
  if (p.block_table == nullptr) return {StatusCode::null_pointer, "block_table is null"};
  if (p.context_lengths == nullptr) return {StatusCode::null_pointer, "context_lengths is null"};
  if (!is_aligned(p.q, 16) || p.q_row_stride % 8 != 0 || p.q_head_stride % 8 != 0) {
    return {StatusCode::misaligned, "q needs a 16-byte base and row and head strides that are multiples of 16 bytes"};
  }
  if (!is_aligned(p.out, 16) || p.out_row_stride % 8 != 0 || p.out_head_stride % 8 != 0) {
    return {StatusCode::misaligned, "out needs a 16-byte base and row and head strides that are multiples of 16 bytes"};
  }
  const int unit = p.spec.unit();
  const PagedKeyStrides& k = p.k_strides;
  if (!is_aligned(p.k, 16) || k.page % unit != 0 || k.head % unit != 0 || k.unit % unit != 0 || k.token % unit != 0) {
    return {StatusCode::misaligned, "k needs a 16-byte base and page, head, unit and token strides of whole 16 bytes"};
  }
  const PagedValueStrides& v = p.v_strides;
  if (!is_aligned(p.v, 16) || v.page % unit != 0 || v.head % unit != 0 ||
      (p.spec.values == ValueLayout::token_major ? v.token % unit != 0 : v.unit % unit != 0 || v.dim % unit != 0)) {
    return {StatusCode::misaligned, "v needs a 16-byte base and strides of whole 16 bytes"};
  }
  if (!is_aligned(p.block_table, 4) || !is_aligned(p.context_lengths, 4) || !is_aligned(p.lse, 4)) {
    return {StatusCode::misaligned, "block_table, context_lengths and lse need 4-byte alignment"};
  }
  if (p.spec.alibi && p.alibi_slopes == nullptr) {
    return {StatusCode::null_pointer, "a spec with alibi needs alibi_slopes"};
  }
  if (!p.spec.alibi && p.alibi_slopes != nullptr) {
    return {StatusCode::bad_value, "alibi_slopes are given, but the spec has no alibi"};
  }
  if (!is_aligned(p.alibi_slopes, 4)) return {StatusCode::misaligned, "alibi_slopes need 4-byte alignment"};
  if (!is_aligned(p.sinks, 4)) return {StatusCode::misaligned, "sinks need 4-byte alignment"};
  if (p.stage_starts != nullptr && !p.balanced) {
    return {StatusCode::bad_value, "stage_starts are given, but the problem is not balanced"};
  }
  if (!is_aligned(p.stage_starts, 4)) return {StatusCode::misaligned, "stage_starts need 4-byte alignment"};
  if (p.spec.quant != Scaling::none) {
    if (p.k_scale == nullptr || p.v_scale == nullptr) {
      return {StatusCode::null_pointer, "fp8 KV needs k_scale and v_scale"};
    }
    if (!is_aligned(p.k_scale, 4) || !is_aligned(p.v_scale, 4)) {
      return {StatusCode::misaligned, "scales need 4-byte alignment"};
    }
  }
  return {};
}

}  // namespace detail

/// Every rule that a problem must satisfy on an architecture, except those of the workspace. Lengths are on the device
/// and are not read. A length beyond the block table makes that sequence's output NaN (see
/// paged_attention_check_lengths).
inline Status paged_attention_check(const PagedAttentionProblem& p, const ArchFacts& facts) {
  if (Status s = paged_attention_check_spec(p.spec, facts); !s.ok()) return s;
  if (Status s = detail::check_extents(p); !s.ok()) return s;
  if (p.batch == 0) return {};  // nothing to read or write
  if (Status s = detail::check_tensors(p); !s.ok()) return s;
  return detail::check_strides(p);
}

/// For callers that know the lengths on the host. Errors: length_beyond_block_table; bad_value for a negative length;
/// null_pointer.
inline Status paged_attention_check_lengths(const PagedAttentionProblem& p, const std::int32_t* host_lengths) {
  if (host_lengths == nullptr) return {StatusCode::null_pointer, "host_lengths is null"};
  for (std::int32_t i = 0; i < p.batch; ++i) {
    if (host_lengths[i] < 0) return {StatusCode::bad_value, "a context length is negative"};
    if (host_lengths[i] > p.capacity()) {
      return {StatusCode::length_beyond_block_table, "a context length exceeds table_columns * block_size"};
    }
  }
  return {};
}

/// For callers that know block table and lengths on the host. Errors: bad_value for the id of an attended page outside
/// [0, num_pages); null_pointer; those of paged_attention_check for extents, and of paged_attention_check_lengths. The
/// device reads where an id leads, whatever it is.
inline Status paged_attention_check_table(const PagedAttentionProblem& p, const std::int32_t* host_lengths,
                                          const std::int32_t* host_table) {
  if (Status s = detail::check_extents(p); !s.ok()) return s;
  if (Status s = paged_attention_check_lengths(p, host_lengths); !s.ok()) return s;
  if (host_table == nullptr) return {StatusCode::null_pointer, "host_table is null"};
  const AttentionLimits a = paged_attention_limits(p);
  for (std::int32_t i = 0; i < p.batch; ++i) {
    const auto reach = AttentionReach::of(a, host_lengths[i], 1);
    for (std::int32_t column = reach.first / p.block_size; column * p.block_size < reach.end; ++column) {
      const std::int32_t page = host_table[i * p.table_row_stride + column];
      if (page < 0 || page >= p.num_pages) {
        return {StatusCode::bad_value, "a page id of the block table is outside [0, num_pages)"};
      }
    }
  }
  return {};
}

/// For callers that know the lengths on the host: makes the stage_starts of a balanced call, [batch + 1], which are
/// then to be copied to the device. starts[s] is the number of stages of all sequences before s, of
/// policy.block_tokens() tokens each, as the device counts them. `policy` is that of the entry that will be launched.
/// Errors: no_matching_entry unless the policy is balanced; null_pointer; bad_extent for 2^31 stages or more, when
/// `starts` must not be used; those of paged_attention_check for extents, and of paged_attention_check_lengths.
inline Status paged_attention_stage_starts(const PagedAttentionProblem& p, const PagedAttentionPolicy& policy,
                                           const std::int32_t* host_lengths, std::int32_t* starts) {
  if (!policy.balanced()) return {StatusCode::no_matching_entry, "only a balanced entry takes stage_starts"};
  if (Status s = detail::check_extents(p); !s.ok()) return s;
  if (Status s = paged_attention_check_lengths(p, host_lengths); !s.ok()) return s;
  if (starts == nullptr) return {StatusCode::null_pointer, "starts is null"};
  const AttentionLimits a = paged_attention_limits(p);
  const std::int32_t stage_tokens = policy.block_tokens(p.spec);
  std::int64_t before = 0;
  for (std::int32_t i = 0; i < p.batch; ++i) {
    starts[i] = static_cast<std::int32_t>(before);
    before += AttentionReach::of(a, host_lengths[i], stage_tokens).stages;
    if (before > std::numeric_limits<std::int32_t>::max()) {
      return {StatusCode::bad_extent, "the batch has 2^31 stages or more"};
    }
  }
  starts[p.batch] = static_cast<std::int32_t>(before);
  return {};
}

}  // namespace tilewave
