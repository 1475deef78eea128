// SPDX-License-Identifier: MIT
// From a Problem to queued kernels: every rule a problem must satisfy, checked before any work is done.
#pragma once

#include <cmath>
#include <limits>

#include "tilewave/arch/backend.hpp"
#include "tilewave/core/hip.hpp"
#include "tilewave/ops/paged_attention/balanced_combine.hpp"
#include "tilewave/ops/paged_attention/combine.hpp"
#include "tilewave/ops/paged_attention/kernel.hpp"
#include "tilewave/ops/paged_attention/staged_kernel.hpp"

namespace tilewave {

namespace detail {

inline bool aligned(const void* p, std::size_t bytes) { return reinterpret_cast<std::uintptr_t>(p) % bytes == 0; }

inline Status check_spec(const PagedAttentionSpec& s, const ArchFacts& facts) {
  if (s.q != DType::bf16 && s.q != DType::f16) return {StatusCode::unsupported_dtype, "q must be bf16 or f16"};
  if (s.out != s.q) return {StatusCode::unsupported_dtype, "out must be of q's type"};
  if (s.kv == s.q) {
    if (s.quant != QuantMode::none) return {StatusCode::unsupported_quant_mode, "16-bit KV takes quant mode none"};
  } else if (is_fp8(s.kv)) {
    if (s.kv != facts.fp8) return {StatusCode::unsupported_dtype, "fp8 flavour of KV is not this architecture's"};
    if (s.quant == QuantMode::none)
      return {StatusCode::unsupported_quant_mode, "fp8 KV needs per_tensor, per_head or per_token"};
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
    if (facts.id != ArchId::sm90) {
      return {StatusCode::unsupported_dtype, "native fp8 products are served on sm90"};
    }
    if (Status status = paged_attention_check_native(s); !status.ok()) return status;
  }
  bool known = false;
  for (const int size : paged_attention_head_sizes) known = known || s.head_size == size;
  if (!known) return {StatusCode::unsupported_head_size, "head_size must be 64, 80, 96, 112, 128, 192 or 256"};
  return {};
}

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
  constexpr std::int64_t int_max = std::numeric_limits<std::int32_t>::max();
  // Token positions run a tile past the end before they are clamped.
  if (std::int64_t{p.table_columns} * p.block_size > int_max - 65536) {
    return {StatusCode::bad_extent, "table_columns * block_size must stay below 2^31 - 65536"};
  }
  const std::int64_t rows_per_head = std::int64_t{p.batch} * p.mtp;
  if (rows_per_head > int_max || rows_per_head * p.num_q_heads > int_max - 65536) {
    return {StatusCode::bad_extent, "batch * mtp * num_q_heads must stay below 2^31 - 65536"};
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
  return {};
}

/// A stride left at 0 would read or write one place for many.
inline Status check_strides(const PagedAttentionProblem& p) {
  const bool many_rows = std::int64_t{p.batch} * p.mtp > 1, many_heads = p.num_q_heads > 1;
  if ((many_rows && p.q_row_stride == 0) || (many_heads && p.q_head_stride == 0)) {
    return {StatusCode::bad_stride, "a stride of q is 0"};
  }
  const bool many_pages = p.table_columns > 1 && p.num_pages != 1, many_kv_heads = p.num_kv_heads > 1;
  const PagedKeyStrides& k = p.k_strides;
  if (k.token == 0 || k.unit == 0 || (many_pages && k.page == 0) || (many_kv_heads && k.head == 0)) {
    return {StatusCode::bad_stride, "a stride of k is 0"};
  }
  const PagedValueStrides& v = p.v_strides;
  const bool token_major = p.spec.values == ValueLayout::token_major;
  if ((token_major ? v.token == 0 : v.dim == 0 || v.unit == 0) || (many_pages && v.page == 0) ||
      (many_kv_heads && v.head == 0)) {
    return {StatusCode::bad_stride, "a stride of v is 0"};
  }
  const bool per_token = p.spec.quant == QuantMode::per_token, per_head = p.spec.quant == QuantMode::per_head;
  if ((per_token && many_pages && p.scale_page_stride == 0) ||
      ((per_token || per_head) && many_kv_heads && p.scale_head_stride == 0)) {
    return {StatusCode::bad_stride, "a stride of the scales is 0"};
  }
  const std::int64_t rows = std::int64_t{p.batch} * p.mtp;
  if (!disjoint(p.out_row_stride, rows, p.out_head_stride, p.num_q_heads, p.spec.head_size)) {
    return {StatusCode::bad_stride, "rows or heads of out overlap"};
  }
  if (p.table_row_stride < p.table_columns) return {StatusCode::bad_stride, "table_row_stride is below table_columns"};
  return {};
}

inline Status check_tensors(const PagedAttentionProblem& p) {
  if (p.q == nullptr) return {StatusCode::null_pointer, "q is null"};
  if (p.k == nullptr) return {StatusCode::null_pointer, "k is null"};
  if (p.v == nullptr) return {StatusCode::null_pointer, "v is null"};
  if (p.out == nullptr) return {StatusCode::null_pointer, "out is null"};
  if (p.block_table == nullptr) return {StatusCode::null_pointer, "block_table is null"};
  if (p.context_lengths == nullptr) return {StatusCode::null_pointer, "context_lengths is null"};
  if (!aligned(p.q, 16) || p.q_row_stride % 8 != 0 || p.q_head_stride % 8 != 0) {
    return {StatusCode::misaligned, "q needs a 16-byte base and row and head strides that are multiples of 16 bytes"};
  }
  if (!aligned(p.out, 16) || p.out_row_stride % 8 != 0 || p.out_head_stride % 8 != 0) {
    return {StatusCode::misaligned, "out needs a 16-byte base and row and head strides that are multiples of 16 bytes"};
  }
  const int unit = p.spec.unit();
  const PagedKeyStrides& k = p.k_strides;
  if (!aligned(p.k, 16) || k.page % unit != 0 || k.head % unit != 0 || k.unit % unit != 0 || k.token % unit != 0) {
    return {StatusCode::misaligned, "k needs a 16-byte base and page, head, unit and token strides of whole 16 bytes"};
  }
  const PagedValueStrides& v = p.v_strides;
  if (!aligned(p.v, 16) || v.page % unit != 0 || v.head % unit != 0 ||
      (p.spec.values == ValueLayout::token_major ? v.token % unit != 0 : v.unit % unit != 0 || v.dim % unit != 0)) {
    return {StatusCode::misaligned, "v needs a 16-byte base and strides of whole 16 bytes"};
  }
  if (!aligned(p.block_table, 4) || !aligned(p.context_lengths, 4) || !aligned(p.lse, 4)) {
    return {StatusCode::misaligned, "block_table, context_lengths and lse need 4-byte alignment"};
  }
  if (p.spec.alibi && p.alibi_slopes == nullptr) {
    return {StatusCode::null_pointer, "a spec with alibi needs alibi_slopes"};
  }
  if (!p.spec.alibi && p.alibi_slopes != nullptr) {
    return {StatusCode::bad_value, "alibi_slopes are given, but the spec has no alibi"};
  }
  if (!aligned(p.alibi_slopes, 4)) return {StatusCode::misaligned, "alibi_slopes need 4-byte alignment"};
  if (!aligned(p.sinks, 4)) return {StatusCode::misaligned, "sinks need 4-byte alignment"};
  if (p.stage_starts != nullptr && !p.balanced) {
    return {StatusCode::bad_value, "stage_starts are given, but the problem is not balanced"};
  }
  if (!aligned(p.stage_starts, 4)) return {StatusCode::misaligned, "stage_starts need 4-byte alignment"};
  if (p.spec.quant != QuantMode::none) {
    if (p.k_scale == nullptr || p.v_scale == nullptr) {
      return {StatusCode::null_pointer, "fp8 KV needs k_scale and v_scale"};
    }
    if (!aligned(p.k_scale, 4) || !aligned(p.v_scale, 4)) {
      return {StatusCode::misaligned, "scales need 4-byte alignment"};
    }
  }
  return {};
}

}  // namespace detail

/// Every rule a problem must satisfy on an architecture, workspace aside. Lengths live on the device and are not read:
/// a length beyond the block table makes that sequence's output NaN (see paged_attention_check_lengths).
inline Status paged_attention_check(const PagedAttentionProblem& p, const ArchFacts& facts) {
  if (Status s = detail::check_spec(p.spec, facts); !s.ok()) return s;
  if (Status s = detail::check_extents(p); !s.ok()) return s;
  if (p.batch == 0) return {};  // nothing to read or write
  if (Status s = detail::check_tensors(p); !s.ok()) return s;
  return detail::check_strides(p);
}

/// For callers that know the lengths on the host: length_beyond_block_table, or bad_value for a negative length.
inline Status paged_attention_check_lengths(const PagedAttentionProblem& p, const std::int32_t* host_lengths) {
  if (host_lengths == nullptr) return {StatusCode::null_pointer, "host_lengths is null"};
  for (std::int32_t i = 0; i < p.batch; ++i) {
    if (host_lengths[i] < 0) return {StatusCode::bad_value, "a context length is negative"};
    if (host_lengths[i] > std::int64_t{p.table_columns} * p.block_size) {
      return {StatusCode::length_beyond_block_table, "a context length exceeds table_columns * block_size"};
    }
  }
  return {};
}

/// For callers that know the lengths on the host: what a balanced call takes as stage_starts, [batch + 1], to be copied
/// to the device. starts[s] is the number of stages, policy.block_tokens() tokens each, of all sequences before s, as
/// the device counts them. `policy`: of the entry that will be launched. Errors: no_matching_entry unless it is
/// balanced; those of paged_attention_check for extents, and of paged_attention_check_lengths; null_pointer;
/// bad_extent for 2^31 stages or more, when `starts` is not to be used.
inline Status paged_attention_stage_starts(const PagedAttentionProblem& p, const PagedAttentionPolicy& policy,
                                           const std::int32_t* host_lengths, std::int32_t* starts) {
  if (!policy.balanced()) return {StatusCode::no_matching_entry, "only a balanced entry takes stage_starts"};
  if (Status s = detail::check_extents(p); !s.ok()) return s;
  if (Status s = paged_attention_check_lengths(p, host_lengths); !s.ok()) return s;
  if (starts == nullptr) return {StatusCode::null_pointer, "starts is null"};
  const PagedAttentionArgs a = paged_attention_reach_args(p);
  const std::int32_t stage_tokens = policy.block_tokens(p.spec);
  std::int64_t before = 0;
  for (std::int32_t i = 0; i < p.batch; ++i) {
    starts[i] = static_cast<std::int32_t>(before);
    before += PagedAttentionReach::of(a, host_lengths[i], stage_tokens).stages;
    if (before > std::numeric_limits<std::int32_t>::max()) {
      return {StatusCode::bad_extent, "the batch has 2^31 stages or more"};
    }
  }
  starts[p.batch] = static_cast<std::int32_t>(before);
  return {};
}

namespace detail {

/// What the copies of a staged entry ask of a problem beyond paged_attention_check.
inline Status check_staged(const PagedAttentionProblem& p) {
  const int unit = p.spec.unit();
  if (p.split_tokens > 0) return {StatusCode::no_matching_entry, "a staged entry makes no batch-invariant cuts"};
  if (p.k_strides.token != unit || p.v_strides.dim != unit) {
    return {StatusCode::no_matching_entry, "a staged entry needs tokens of K and dimensions of V in 16-byte steps"};
  }
  if (p.spec.quant == QuantMode::per_token && (!aligned(p.k_scale, 16) || !aligned(p.v_scale, 16) ||
                                               p.scale_page_stride % 4 != 0 || p.scale_head_stride % 4 != 0)) {
    return {StatusCode::no_matching_entry, "a staged entry needs the scales of a page at whole 16 bytes"};
  }
  return {};
}

}  // namespace detail

/// Whether an entry with this policy takes the problem, cut into num_splits. Errors: no_matching_entry for what only
/// this policy refuses; bad_value for num_splits outside [1, max_splits], but 1, 2, 4 or 8 if staged, 1 if balanced,
/// or not paged_attention_fixed_splits of a batch-invariant call.
inline Status paged_attention_takes(const PagedAttentionProblem& p, const PagedAttentionPolicy& policy,
                                    const ArchFacts& facts, int num_splits) {
  if (policy.staged()) {
    if (Status s = detail::check_staged(p); !s.ok()) return s;
  }
  if (policy.balanced()) {
    if (p.split_tokens > 0) return {StatusCode::no_matching_entry, "a balanced entry makes no batch-invariant cuts"};
    if (num_splits != 1) return {StatusCode::bad_value, "a balanced entry takes one split"};
  } else if (p.stage_starts != nullptr) {
    return {StatusCode::no_matching_entry, "only a balanced entry takes stage_starts"};
  }
  if (policy.staged() && (num_splits < 1 || num_splits > min_of(max_staged_splits, facts.max_cluster_blocks) ||
                          (num_splits & (num_splits - 1)) != 0)) {
    return {StatusCode::bad_value, "a staged entry takes 1, 2, 4 or 8 splits"};
  }
  if (num_splits < 1 || num_splits > max_splits) return {StatusCode::bad_value, "num_splits must be 1 to 128"};
  if (p.split_tokens > 0 && num_splits != paged_attention_fixed_splits(p, policy)) {
    return {StatusCode::bad_value, "a batch-invariant call takes paged_attention_fixed_splits"};
  }
  return {};
}

/// Decode of a policy: K and V straight to registers, or through stages in shared memory.
template <class B, PagedAttentionSpec S, PagedAttentionPolicy P>
struct PagedAttentionKernel {
  using type = PagedAttentionDecode<B, S, P>;
};
template <class B, PagedAttentionSpec S, PagedAttentionPolicy P>
requires(P.staged()) struct PagedAttentionKernel<B, S, P> {
  using type = PagedAttentionStagedDecode<B, S, P>;
};

/// Queue decode, and combine where it leaves partial results, on the stream. Nothing is allocated, synchronised or read
/// from the device, and the grid depends on capacities only, so the call can be captured in a graph.
/// Errors: those of paged_attention_check and paged_attention_takes; workspace_too_small; launch_failed with the
/// runtime's reason.
template <class B, PagedAttentionSpec S, PagedAttentionPolicy P>
Status paged_attention_launch(const PagedAttentionProblem& p, int num_splits, hipStream_t stream) {
  if (!(p.spec == S)) return {StatusCode::no_matching_entry, "the entry was built for another spec"};
  if (Status s = paged_attention_check(p, B::facts); !s.ok()) return s;
  if (Status s = paged_attention_takes(p, P, B::facts, num_splits); !s.ok()) return s;
  if (p.batch == 0) return {};
  const std::size_t needed = paged_attention_workspace_size(p, P, B::facts, num_splits);
  if (needed > 0 && p.workspace == nullptr) return {StatusCode::null_pointer, "workspace is null"};
  if (p.workspace_bytes < needed) return {StatusCode::workspace_too_small, "see paged_attention_workspace_size"};
  if (needed > 0 && !detail::aligned(p.workspace, 16))
    return {StatusCode::misaligned, "workspace needs 16-byte alignment"};

  using Decode = typename PagedAttentionKernel<B, S, P>::type;
  const PagedAttentionArgs args = paged_attention_args(p, P, B::facts, num_splits);
  const LaunchShape decode{P.balanced() ? args.workers : paged_attention_grid(p, P, num_splits), Decode::block_threads,
                           args.cluster};
  if (Status s = check_launch(decode, B::facts); !s.ok()) return s;
  if (needed == 0) return B::template launch<Decode>(decode, args, stream);

  using Combine = std::conditional_t<P.balanced(), PagedAttentionBalancedCombine<B, S, P>,
                                     PagedAttentionCombine<B, S.head_size, S.out>>;
  const std::int64_t waves = std::int64_t{args.output_rows} * (P.balanced() ? args.combine_waves.divisor : 1);
  const LaunchShape combine{
      .grid = ceil_div<std::int64_t>(waves, Combine::waves), .block = Combine::block_threads, .early = P.balanced()};
  if (Status s = check_launch(combine, B::facts); !s.ok()) return s;
  const Status decoded = B::template launch<Decode>(decode, args, stream);
  return decoded.ok() ? B::template launch<Combine>(combine, args, stream) : decoded;
}

}  // namespace tilewave
