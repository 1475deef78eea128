// SPDX-License-Identifier: MIT
// Launches the kernel for a Problem. Every rule that a problem must satisfy is checked before any work is done.
#pragma once

#include <limits>

#include "tilewave/core/hip.hpp"
#include "tilewave/ops/latent_cache_write/kernel.hpp"
#include "tilewave/ops/rope/launch.hpp"
#include "tilewave/tile/row_check.hpp"

namespace tilewave {

/// Returns ok if kernels of a spec can be built for a chip, else the rule that the spec breaks.
constexpr Status latent_cache_write_check_spec(const LatentCacheWriteSpec& s, const ArchFacts& facts) {
  constexpr StatusCode type = StatusCode::unsupported_dtype, size = StatusCode::unsupported_head_size;
  if (s.layout != LatentLayout::plain && s.layout != LatentLayout::groups_128 && s.layout != LatentLayout::groups_64) {
    return {StatusCode::unsupported_layout, "spec.layout must be plain, groups_128 or groups_64"};
  }
  if (s.kv != DType::bf16 && s.kv != facts.fp8) return {type, "spec.kv must be bf16 or this architecture's fp8"};
  if (s.layout != LatentLayout::plain && s.kv != facts.fp8) return {type, "groups of codes are fp8: spec.kv"};
  if (s.head_size != 576 && s.head_size != 512) return {size, "head_size must be 576 or 512"};
  if (s.layout == LatentLayout::groups_128 && s.head_size != 576) return {size, "head_size of groups_128 must be 576"};
  if (s.layout == LatentLayout::groups_64 && s.head_size != 512) return {size, "head_size of groups_64 must be 512"};
  if (!is_pairs(s.pairs)) return {StatusCode::bad_value, "pairs is none of RopePairs"};
  if (s.table != DType::bf16 && s.table != DType::f32) return {type, "tables must be bf16 or f32"};
  return {};
}

namespace detail {

inline Status check_latent_write_extents(const LatentCacheWriteProblem& p) {
  constexpr StatusCode extent = StatusCode::bad_extent;
  if (!is_index_type(p.slot_type)) return {StatusCode::bad_value, "slot_type is none of IndexType"};
  if (!is_index_type(p.position_type)) return {StatusCode::bad_value, "position_type is none of IndexType"};
  if (p.tokens < 0 || p.q_heads < 0) return {extent, "tokens or q_heads is negative"};
  if (p.block_size < 1) return {StatusCode::unsupported_block_size, "block_size must be positive"};
  constexpr std::int64_t int_max = std::numeric_limits<std::int32_t>::max();
  if (p.num_pages < 1 || p.num_pages > int_max / p.block_size) {
    return {extent, "num_pages must be positive, and num_pages * block_size below 2^31"};
  }
  if (std::int64_t{p.tokens} * (std::int64_t{p.q_heads} + 1) > int_max - 65536) {
    return {extent, "tokens * (q_heads + 1) must stay below 2^31 - 65536"};
  }
  return {};
}

inline Status check_latent_write_tensors(const LatentCacheWriteProblem& p) {
  constexpr StatusCode null = StatusCode::null_pointer, value = StatusCode::bad_value;
  if (p.latent == nullptr || p.rope == nullptr) return {null, "latent or rope is null"};
  if (p.kv == nullptr) return {null, "kv is null"};
  if (p.slots == nullptr) return {null, "slots is null"};
  const bool scaled = is_fp8(p.spec.kv) && p.spec.layout == LatentLayout::plain, rotated = p.cos != nullptr;
  if (scaled && p.kv_scale == nullptr) return {null, "fp8 rows of the plain layout need kv_scale"};
  if (!scaled && p.kv_scale != nullptr) return {value, "kv_scale is of fp8 rows of the plain layout"};
  if (rotated != (p.sin != nullptr) || rotated != (p.positions != nullptr)) {
    return {null, "cos, sin and positions go together"};
  }
  if (rotated && p.table_rows < 1) return {StatusCode::bad_extent, "table_rows must be positive"};
  if (!rotated && (p.table_rows != 0 || p.table_stride != 0))
    return {value, "table_rows and table_stride are of tables"};
  if ((p.q_heads > 0) != (p.q != nullptr) || (p.q != nullptr) != (p.q_out != nullptr)) {
    return {null, "q and q_out go with q_heads"};
  }
  const auto whole = [](const void* data, std::int64_t unit, std::initializer_list<std::int64_t> strides) {
    bool is_whole = is_aligned(data, 16);
    for (const std::int64_t stride : strides) is_whole = is_whole && stride % unit == 0;
    return is_whole;
  };
  const LatentRow row = p.spec.row();
  const HeadStrides &q = p.q_strides, &out = p.q_out_strides;
  if (!whole(p.latent, 8, {p.latent_stride}) || !whole(p.rope, 8, {p.rope_stride}) ||
      !whole(p.q, 8, {q.token, q.head}) || !whole(p.q_out, 8, {out.token, out.head}) ||
      !whole(p.kv, 16 / size_of(row.kv), {p.page_stride, p.token_stride}) ||
      !whole(p.cos, 16 / size_of(p.spec.table), {p.table_stride}) || !whole(p.sin, 1, {})) {
    return {StatusCode::misaligned, "tensors need 16-byte bases and strides of whole 16 bytes"};
  }
  if (row.scales_apart() && p.token_stride != row.token_bytes()) {
    return {StatusCode::bad_stride, "token_stride of groups_64 is 576: scales follow the rows of a page"};
  }
  if (!element_aligned(p.kv_scale, DType::f32) || !is_aligned(p.slots, size_of(p.slot_type)) ||
      !is_aligned(p.positions, size_of(p.position_type))) {
    return {StatusCode::misaligned, "kv_scale, slots and positions are not aligned to their elements"};
  }
  return {};
}

inline Status check_latent_write_regions(const LatentCacheWriteProblem& p) {
  const LatentRow row = p.spec.row();
  const int size = size_of(row.kv);
  const Region latent(p.latent, 2, p.spec.head_size - latent_rope_size, {{p.tokens, p.latent_stride}});
  const Region rope(p.rope, 2, latent_rope_size, {{p.tokens, p.rope_stride}});
  const Region q = heads_region(p.q, DType::bf16, p.tokens, p.q_heads, latent_rope_size, p.q_strides);
  const Region q_out = heads_region(p.q_out, DType::bf16, p.tokens, p.q_heads, latent_rope_size, p.q_out_strides);
  const Region kv = row.scales_apart()
                        ? Region(p.kv, 1, std::int64_t{p.block_size} * (row.token_bytes() + LatentRow::apart_bytes),
                                 {{p.num_pages, p.page_stride}})
                        : Region(p.kv, size, row.token_bytes() / size,
                                 {{p.num_pages, p.page_stride}, {p.block_size, p.token_stride}});
  const Region cos(p.cos, size_of(p.spec.table), latent_rope_size / 2, {{p.table_rows, p.table_stride}});
  const Region sin(p.sin, size_of(p.spec.table), latent_rope_size / 2, {{p.table_rows, p.table_stride}});
  const Region slots = index_region(p.slots, p.slot_type, p.tokens);
  const Region positions = index_region(p.positions, p.position_type, p.tokens);
  for (const Status& status :
       {check_read<"latent">(latent, "latent_stride is 0"), check_read<"rope">(rope, "rope_stride is 0"),
        check_read<"q">(q, "a stride of q is 0"), check_read<"cos and sin">(cos, "table_stride is 0"),
        check_written<"kv">(kv, "rows of kv overlap"), check_written<"q_out">(q_out, "heads of q_out overlap")}) {
    if (!status.ok()) return status;
  }
  const Region scale = vector_region(p.kv_scale, DType::f32, 1);
  if (!clear_of(kv, {latent, rope, q, q_out, cos, sin, slots, positions, scale})) {
    return {StatusCode::bad_value, "kv overlaps another tensor"};
  }
  if (!in_place_or_clear(q_out, q) || !clear_of(q_out, {latent, rope, cos, sin, slots, positions, scale})) {
    return {StatusCode::bad_value, "q_out overlaps a tensor, without being q"};
  }
  return {};
}

}  // namespace detail

/// Checks every rule that a problem must satisfy. Slots and positions live on the device and are not read.
inline Status latent_cache_write_check(const LatentCacheWriteProblem& p, const ArchFacts& facts) {
  if (Status s = latent_cache_write_check_spec(p.spec, facts); !s.ok()) return s;
  if (Status s = detail::check_latent_write_extents(p); !s.ok()) return s;
  if (p.tokens == 0) return {};  // nothing to read or write
  if (Status s = detail::check_latent_write_tensors(p); !s.ok()) return s;
  return detail::check_latent_write_regions(p);
}

/// Returns the arguments of the kernel.
inline LatentCacheWriteArgs latent_cache_write_args(const LatentCacheWriteProblem& p,
                                                    const LatentCacheWritePolicy& policy) {
  const int size = size_of(p.spec.kv);
  return {.latent = p.latent,
          .rope = p.rope,
          .kv = p.kv,
          .kv_scale = p.kv_scale,
          .slots = IndexList::of(p.slots, p.slot_type),
          .positions = IndexList::of(p.positions, p.position_type),
          .q = p.q,
          .q_out = p.q_out,
          .cos = p.cos,
          .sin = p.sin,
          .tokens = p.tokens,
          .q_rows = p.tokens * p.q_heads,
          .kv_blocks = ceil_div(p.tokens, policy.rows),
          .table_rows = p.table_rows,
          .slot_limit = static_cast<std::int32_t>(p.num_pages * p.block_size),
          .q_heads = FastDiv::by(max_of(p.q_heads, 1)),
          .block_size = FastDiv::by(p.block_size),
          .latent_stride = p.latent_stride,
          .rope_stride = p.rope_stride,
          .table_stride = p.table_stride,
          .q_strides = p.q_strides,
          .q_out_strides = p.q_out_strides,
          .page_bytes = p.page_stride * size,
          .token_bytes = p.token_stride * size,
          .page_scales = std::int64_t{p.block_size} * p.spec.row().token_bytes()};
}

/// Queues the kernel on the stream. Nothing is allocated, synchronised or read from the device. Errors: those of
/// latent_cache_write_check; no_matching_entry if the entry is of another spec; launch_failed with the runtime's
/// reason.
template <class B, LatentCacheWriteSpec S, LatentCacheWritePolicy P>
Status latent_cache_write_launch(const LatentCacheWriteProblem& p, hipStream_t stream) {
  if (!(p.spec == S)) return {StatusCode::no_matching_entry, "the entry was built for another spec"};
  if (Status s = latent_cache_write_check(p, B::facts); !s.ok()) return s;
  if (p.tokens == 0) return {};
  using Kernel = LatentCacheWrite<B, S, P>;
  const LatentCacheWriteArgs args = latent_cache_write_args(p, P);
  const std::int64_t blocks = args.kv_blocks + ceil_div(args.q_rows, Kernel::block_threads / Kernel::rope_units);
  return B::template launch<Kernel>({blocks, P.block_threads()}, args, stream);
}

}  // namespace tilewave
