// SPDX-License-Identifier: MIT
// Every rule that a cache write must satisfy, whichever entry takes it. All are checked before any work is done.
#pragma once

#include <cmath>

#include "tilewave/ops/kv_cache_write/problem.hpp"
#include "tilewave/ops/paged_attention/check.hpp"
#include "tilewave/ops/rope/launch.hpp"

namespace tilewave {

/// Returns ok if kernels of a spec can be built for a chip, else the rule that the spec breaks.
constexpr Status kv_cache_write_check_spec(const KvCacheWriteSpec& s, const ArchFacts& facts) {
  if (s.x != DType::bf16 && s.x != DType::f16) return {StatusCode::unsupported_dtype, "k and v must be bf16 or f16"};
  if (is_fp8(s.kv)) {
    if (s.kv != facts.fp8)
      return {StatusCode::unsupported_dtype, "fp8 flavour of the caches is not this architecture's"};
    if (!is_cache_scaling(s.quant)) {
      return {StatusCode::unsupported_scaling, "fp8 caches need per_tensor, per_head or per_token"};
    }
  } else if (s.kv != s.x) {
    return {StatusCode::unsupported_dtype, "caches must be of x's type or fp8"};
  } else if (s.quant != Scaling::none) {
    return {StatusCode::unsupported_scaling, "16-bit caches take scaling none"};
  }
  if (s.fused && s.q_out != s.x && s.q_out != facts.fp8) {
    return {StatusCode::unsupported_dtype, "q_out must be of x's type or this architecture's fp8"};
  }
  if (!s.fused && s.norm) return {StatusCode::bad_value, "norm is for fused specs: no other normalises"};
  const KvCacheWriteSpec plain;
  if (!s.fused && (s.q_out != plain.q_out || s.pairs != plain.pairs || s.table != plain.table)) {
    return {StatusCode::bad_value, "q_out, pairs and table are for fused specs"};
  }
  if (s.fused) {
    if (Status status = rope_check_spec(s.rope(), facts); !status.ok()) return status;
  }
  if (s.group == 0 && s.e8m0) return {StatusCode::unsupported_scaling, "e8m0 scales are those of groups"};
  if (s.group == 0) return {};
  if (s.group < 32 || s.group > 512 || (s.group & (s.group - 1)) != 0) {
    return {StatusCode::unsupported_scaling, "a group must be 32, 64, 128, 256 or 512 dimensions"};
  }
  if (!s.fused || !s.norm || s.pairs != RopePairs::neighbours || !is_fp8(s.kv) || s.q_out != s.kv ||
      s.quant != Scaling::per_token) {
    return {StatusCode::unsupported_scaling, "scales of groups are for fused norms, neighbours and fp8 per_token"};
  }
  return {};
}

namespace detail {

inline Status check_cache_extents(const KvCacheWriteProblem& p) {
  if (!is_index_type(p.slot_type)) return {StatusCode::bad_value, "slot_type is none of IndexType"};
  if (p.values != ValueLayout::dim_major && p.values != ValueLayout::token_major) {
    return {StatusCode::unsupported_layout, "values must be dim_major or token_major"};
  }
  if (p.tokens < 0) return {StatusCode::bad_extent, "tokens is negative"};
  if (p.kv_heads < 1) return {StatusCode::bad_extent, "kv_heads must be positive"};
  if (p.q_heads < 0 || (!p.spec.fused && p.q_heads != 0)) {
    return {StatusCode::bad_extent, "q_heads is negative, or given though the spec is not fused"};
  }
  if (p.head_size < 16 || p.head_size > 512 || p.head_size % 16 != 0) {
    return {StatusCode::unsupported_head_size,
            "head_size must be a multiple of 16 from 16 to 512; latent_cache_write writes MLA rows of 576"};
  }
  if (p.block_size < 1) return {StatusCode::unsupported_block_size, "block_size must be positive"};
  if (p.values == ValueLayout::dim_major && p.block_size % 16 != 0) {
    return {StatusCode::unsupported_block_size, "block_size must be a multiple of 16 in a dim_major cache"};
  }
  constexpr std::int64_t int_max = std::numeric_limits<std::int32_t>::max();
  if (p.num_pages < 1 || p.num_pages > int_max / p.block_size) {
    return {StatusCode::bad_extent, "num_pages must be positive, and num_pages * block_size below 2^31"};
  }
  const std::int64_t heads = std::int64_t{p.q_heads} + 2 * std::int64_t{p.kv_heads};
  if (heads > int_max - 65536 || p.tokens * heads > int_max - 65536) {
    return {StatusCode::bad_extent, "tokens * (q_heads + 2 kv_heads) must stay below 2^31 - 65536"};
  }
  if (!p.spec.fused) return {};
  if (!is_index_type(p.position_type)) return {StatusCode::bad_value, "position_type is none of IndexType"};
  if (Status s = check_rope_tables(p.rotary, p.head_size, p.table_rows); !s.ok()) return s;
  if (p.rotary % 16 != 0) {
    return {StatusCode::bad_extent, "rotary must be a multiple of 16: others take rope and a write that is not fused"};
  }
  if (p.rotary_first < 0 || p.rotary_first % 16 != 0 || p.rotary_first > p.head_size - p.rotary) {
    return {StatusCode::bad_extent, "rotary_first must be a multiple of 16, with rotary dimensions behind it"};
  }
  if (p.rotary_first > 0 && p.spec.pairs == RopePairs::halves) {
    return {StatusCode::unsupported_layout, "pairs of halves are rotated from dimension 0 on: rotary_first is 0"};
  }
  if (p.spec.group > 0 && p.head_size % p.spec.group != 0) {
    return {StatusCode::unsupported_head_size, "head_size must be whole groups"};
  }
  if (!(p.eps >= 0.0f) || !std::isfinite(p.eps)) return {StatusCode::bad_value, "eps must be finite and not negative"};
  return {};
}

/// Refuses what is given although the spec has no use for it.
inline Status check_cache_uses(const KvCacheWriteProblem& p) {
  const KvCacheWriteSpec& s = p.spec;
  if (s.quant == Scaling::none && (p.k_scale != nullptr || p.v_scale != nullptr)) {
    return {StatusCode::bad_value, "scales are given, but the caches have none"};
  }
  if (s.group > 0 && (p.v != nullptr || p.v_cache != nullptr)) {
    return {StatusCode::bad_value, "v is given, but with scales of groups there is none"};
  }
  if (p.v == nullptr && p.v_cache == nullptr && p.v_scale != nullptr) {
    return {StatusCode::bad_value, "v_scale is given without v"};
  }
  if (!s.fused) {
    if (p.rotary_first != 0) return {StatusCode::bad_value, "rotary_first is for fused specs"};
    if (p.rotary != 0 || p.table_rows != 0 || p.table_stride != 0) {
      return {StatusCode::bad_value, "rotary, table_rows and table_stride are for fused specs"};
    }
    if (p.position_type != KvCacheWriteProblem{}.position_type) {
      return {StatusCode::bad_value, "position_type is for fused specs"};
    }
    const void *q_out = p.q_out, *k_out = p.k_out;
    for (const void* tensor : {p.q, q_out, k_out, p.cos, p.sin, p.positions}) {
      if (tensor != nullptr) return {StatusCode::bad_value, "a tensor of fused specs is given"};
    }
    const HeadStrides &q = p.q_strides, &out = p.q_out_strides;
    for (const std::int64_t stride : {q.token, q.head, out.token, out.head}) {
      if (stride != 0) return {StatusCode::bad_value, "a stride of q or q_out is given, which are for fused specs"};
    }
  }
  if (!s.norm && p.eps != KvCacheWriteProblem{}.eps) return {StatusCode::bad_value, "eps is for a spec with a norm"};
  if (s.quant == Scaling::none && (p.scale_page_stride != 0 || p.scale_head_stride != 0)) {
    return {StatusCode::bad_value, "strides of scales are given, but the caches have none"};
  }
  if ((!s.fused || !s.norm) && (p.q_norm != nullptr || p.k_norm != nullptr)) {
    return {StatusCode::bad_value, "weights of a norm are given, but the spec has none"};
  }
  if ((!s.fused || !is_fp8(s.q_out)) && p.q_scale != nullptr) {
    return {StatusCode::bad_value, "q_scale is for an fp8 q_out"};
  }
  return {};
}

/// Returns whether all tensors are given and aligned. Rows of x's type start on multiples of 16 bytes.
inline Status check_cache_tensors(const KvCacheWriteProblem& p) {
  const KvCacheWriteSpec& s = p.spec;
  if (p.k == nullptr || p.k_cache == nullptr) return {StatusCode::null_pointer, "k or k_cache is null"};
  const bool v = p.v != nullptr;
  if (v != (p.v_cache != nullptr)) return {StatusCode::null_pointer, "v or v_cache is null"};
  if (p.slots == nullptr) return {StatusCode::null_pointer, "slots is null"};
  if (s.quant != Scaling::none && (p.k_scale == nullptr || (v && p.v_scale == nullptr))) {
    return {StatusCode::null_pointer, "fp8 caches need k_scale and v_scale"};
  }
  if (!heads_aligned(p.k, s.x, p.kv_heads, p.k_strides) || (v && !heads_aligned(p.v, s.x, p.kv_heads, p.v_strides))) {
    return {StatusCode::misaligned, "k and v need a 16-byte base and strides of whole 16 bytes"};
  }
  if (!is_aligned(p.slots, size_of(p.slot_type))) {
    return {StatusCode::misaligned, "slots are not aligned to their elements"};
  }
  if (!s.e8m0 && (!is_aligned(p.k_scale, 4) || !is_aligned(p.v_scale, 4) || !is_aligned(p.q_scale, 4))) {
    return {StatusCode::misaligned, "scales need 4-byte alignment"};
  }
  const auto whole = [&](std::int64_t stride) { return stride % s.unit() == 0; };
  const PagedKeyStrides& k = p.k_cache_strides;
  if (!is_aligned(p.k_cache, 16) || !whole(k.page) || !whole(k.head) || !whole(k.unit) || !whole(k.token)) {
    return {StatusCode::misaligned, "k_cache needs a 16-byte base and strides of whole 16 bytes"};
  }
  const PagedValueStrides& of = p.v_cache_strides;
  if (v && (!is_aligned(p.v_cache, 16) || !whole(of.page) || !whole(of.head) ||
            (p.values == ValueLayout::token_major ? !whole(of.token) : !whole(of.unit) || !whole(of.dim)))) {
    return {StatusCode::misaligned, "v_cache needs a 16-byte base and strides of whole 16 bytes"};
  }
  if (!s.fused) return {};
  if (p.q_heads > 0 && (p.q == nullptr || p.q_out == nullptr)) return {StatusCode::null_pointer, "q or q_out is null"};
  if (p.cos == nullptr || p.sin == nullptr) return {StatusCode::null_pointer, "cos or sin is null"};
  if (p.positions == nullptr) return {StatusCode::null_pointer, "positions is null"};
  if (is_fp8(s.q_out) && p.q_scale == nullptr) return {StatusCode::null_pointer, "an fp8 q_out needs q_scale"};
  if (!heads_aligned(p.q, s.x, p.q_heads, p.q_strides) ||
      !heads_aligned(p.q_out, s.q_out, p.q_heads, p.q_out_strides) ||
      (p.k_out != nullptr && !heads_aligned(p.k_out, s.x, p.kv_heads, p.k_out_strides))) {
    return {StatusCode::misaligned, "q, q_out and k_out need a 16-byte base and strides of whole 16 bytes"};
  }
  if (!rows_aligned(p.cos, {p.table_stride, 0}, 1, s.table) || !rows_aligned(p.sin, {p.table_stride, 0}, 1, s.table)) {
    return {StatusCode::misaligned, "cos and sin need a 16-byte base and a stride of whole 16 bytes"};
  }
  if (!is_aligned(p.q_norm, 16) || !is_aligned(p.k_norm, 16)) {
    return {StatusCode::misaligned, "weights of norms need a 16-byte base"};
  }
  if (!is_aligned(p.positions, size_of(p.position_type))) {
    return {StatusCode::misaligned, "positions are not aligned to their elements"};
  }
  return {};
}

/// The memory of the caches, as paged attention reads it.
inline PagedAttentionRegions cache_regions(const KvCacheWriteProblem& p) {
  PagedAttentionProblem cache;
  cache.spec = {.kv = p.spec.kv, .quant = p.spec.quant, .head_size = p.head_size, .values = p.values};
  cache.k = p.k_cache;
  cache.v = p.v_cache;
  if (p.spec.group == 0) cache.k_scale = static_cast<const float*>(p.k_scale);
  cache.v_scale = p.v_scale;
  cache.num_kv_heads = p.kv_heads;
  cache.block_size = p.block_size;
  cache.table_columns = 1;
  cache.num_pages = p.num_pages;
  cache.k_strides = p.k_cache_strides;
  cache.v_strides = p.v_cache_strides;
  cache.scale_page_stride = p.scale_page_stride;
  cache.scale_head_stride = p.scale_head_stride;
  PagedAttentionRegions regions(cache);
  if (const int group = p.spec.group; group > 0) {  // a block has the scales of a head's groups
    const int block = p.head_size / group * size_of(p.spec.e8m0 ? DType::i8 : DType::f32);
    regions.k_scale = Region(p.k_scale, block, p.block_size,
                             {{p.num_pages, p.scale_page_stride, "scale_page_stride is 0"},
                              {p.kv_heads, p.scale_head_stride, "scale_head_stride is 0"}});
  }
  return regions;
}

inline Status check_cache_regions(const KvCacheWriteProblem& p) {
  const KvCacheWriteSpec& s = p.spec;
  const PagedAttentionRegions cache = cache_regions(p);
  const Region q = heads_region(p.q, s.x, p.tokens, p.q_heads, p.head_size, p.q_strides);
  const Region k = heads_region(p.k, s.x, p.tokens, p.kv_heads, p.head_size, p.k_strides);
  const Region v = heads_region(p.v, s.x, p.tokens, p.kv_heads, p.head_size, p.v_strides);
  const Region q_out = heads_region(p.q_out, s.q_out, p.tokens, p.q_heads, p.head_size, p.q_out_strides);
  const Region k_out = heads_region(p.k_out, s.x, p.tokens, p.kv_heads, p.head_size, p.k_out_strides);
  const Region slots = index_region(p.slots, p.slot_type, p.tokens);
  const Region positions = index_region(p.positions, p.position_type, p.tokens);
  const Region cos(p.cos, size_of(s.table), p.rotary / 2, {{p.table_rows, p.table_stride}});
  const Region sin(p.sin, size_of(s.table), p.rotary / 2, {{p.table_rows, p.table_stride}});
  const Region q_norm = vector_region(p.q_norm, s.x, p.head_size), k_norm = vector_region(p.k_norm, s.x, p.head_size);
  const DType scale = s.e8m0 ? DType::i8 : DType::f32;
  const std::int64_t q_scales = s.group > 0 ? std::int64_t{p.tokens} * p.q_heads * (p.head_size / s.group) : 1;
  const Region q_scale = vector_region(p.q_scale, scale, q_scales);
  const PagedValueStrides& of_v = p.v_cache_strides;
  for (const Status& status :
       {check_absent<"v">(p.v, {p.v_strides.token, p.v_strides.head}),
        check_absent<"v_cache">(p.v_cache, {of_v.page, of_v.head, of_v.unit, of_v.dim, of_v.token}),
        check_absent<"k_out">(p.k_out, {p.k_out_strides.token, p.k_out_strides.head}),
        check_read<"q">(q, "a stride of q is 0"), check_read<"k">(k, "a stride of k is 0"),
        check_read<"v">(v, "a stride of v is 0"), check_read<"cos and sin">(cos, "table_stride is 0"),
        check_written<"q_out">(q_out, "tokens or heads of q_out overlap"),
        check_written<"k_out">(k_out, "tokens or heads of k_out overlap"),
        check_written<"k_cache">(cache.k, "pages, heads, units or tokens of k_cache overlap"),
        check_written<"v_cache">(cache.v, "pages, heads, units, dimensions or tokens of v_cache overlap"),
        check_written<"k_scale">(cache.k_scale, "pages or heads of the scales overlap"),
        check_written<"v_scale">(cache.v_scale, "pages or heads of the scales overlap")}) {
    if (!status.ok()) return status;
  }
  const auto clear = [&](const Region& written) {
    return clear_of(written, {k, v, slots, positions, cos, sin, q_norm, k_norm, q_scale});
  };
  const bool found = s.quant == Scaling::per_token;
  if (!clear(cache.k) || !clear_of(cache.k, {q, q_out, k_out, cache.v, cache.k_scale, cache.v_scale})) {
    return {StatusCode::bad_value, "k_cache overlaps another tensor"};
  }
  if (!clear(cache.v) || !clear_of(cache.v, {q, q_out, k_out, cache.k_scale, cache.v_scale})) {
    return {StatusCode::bad_value, "v_cache overlaps another tensor"};
  }
  if (found &&
      (!clear(cache.k_scale) || !clear(cache.v_scale) || !clear_of(cache.k_scale, {q, q_out, k_out, cache.v_scale}) ||
       !clear_of(cache.v_scale, {q, q_out, k_out}))) {
    return {StatusCode::bad_value, "scales that are found overlap another tensor"};
  }
  if (s.group > 0 && !clear_of(q_scale, {q, k, slots, positions, cos, sin, q_norm, k_norm})) {
    return {StatusCode::bad_value, "q_scale overlaps another tensor"};
  }
  if (!in_place_or_clear(q_out, q) || !clear(q_out) || !clear_of(q_out, {cache.k_scale, cache.v_scale})) {
    return {StatusCode::bad_value, "q_out overlaps a tensor, without being q"};
  }
  const auto clear_k_out = [&] {
    return clear_of(k_out, {q, v, q_out, slots, positions, cos, sin, q_norm, k_norm, q_scale}) &&
           clear_of(k_out, {cache.k_scale, cache.v_scale});
  };
  if (!in_place_or_clear(k_out, k) || !clear_k_out()) {
    return {StatusCode::bad_value, "k_out overlaps a tensor, without being k"};
  }
  return {};
}

}  // namespace detail

/// Every rule that a problem must satisfy on an architecture. Slots and positions are on the device and are not read.
inline Status kv_cache_write_check(const KvCacheWriteProblem& p, const ArchFacts& facts) {
  if (Status s = kv_cache_write_check_spec(p.spec, facts); !s.ok()) return s;
  if (Status s = detail::check_cache_extents(p); !s.ok()) return s;
  if (Status s = detail::check_cache_uses(p); !s.ok()) return s;
  if (p.tokens == 0) return {};  // nothing to read or write
  if (Status s = detail::check_cache_tensors(p); !s.ok()) return s;
  return detail::check_cache_regions(p);
}

}  // namespace tilewave
