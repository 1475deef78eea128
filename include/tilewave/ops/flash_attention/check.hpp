// SPDX-License-Identifier: MIT
// These are the rules that a problem must satisfy, whichever entry takes it. They are checked before any work is done.
#pragma once

#include <cmath>
#include <initializer_list>

#include "tilewave/arch/facts.hpp"
#include "tilewave/core/region.hpp"
#include "tilewave/ops/flash_attention/args.hpp"
#include "tilewave/tile/row_check.hpp"
#include "tilewave/tile/workspace.hpp"

namespace tilewave {

namespace detail {

constexpr Status check_flash_types(const FlashAttentionSpec& s, const ArchFacts& facts) {
  constexpr StatusCode type = StatusCode::unsupported_dtype, quant = StatusCode::unsupported_scaling;
  const bool wide = s.q == DType::bf16 || s.q == DType::f16;
  if (!wide && s.q != facts.fp8) return {type, "spec.q must be bf16, f16 or this architecture's fp8"};
  if (s.kv != s.q && s.kv != facts.fp8) return {type, "spec.kv must be q's type or this architecture's fp8"};
  if (wide && s.out != s.q && s.out != facts.fp8) return {type, "spec.out must be q's type or this architecture's fp8"};
  if (!wide && s.out != DType::bf16 && s.out != DType::f16 && s.out != facts.fp8) {
    return {type, "spec.out of fp8 q must be bf16, f16 or this architecture's fp8"};
  }
  if (size_of(s.kv) == 2) {
    if (s.quant != Scaling::none) return {quant, "spec.quant of 16-bit K and V must be none"};
  } else if (!is_cache_scaling(s.quant)) {
    return {quant, "spec.quant of fp8 must be per_tensor, per_head or per_token"};
  }
  if (s.quant == Scaling::per_token && !s.paged()) return {quant, "spec.quant per_token is for paged storage"};
  if (s.quant == Scaling::per_token && !wide) return {quant, "spec.quant per_token is for q of 16 bits"};
  return {};
}

}  // namespace detail

/// Returns ok if kernels of a spec can be built for a chip, else the rule that the spec breaks.
constexpr Status flash_attention_check_spec(const FlashAttentionSpec& s, const ArchFacts& facts) {
  if (Status status = detail::check_flash_types(s, facts); !status.ok()) return status;
  bool known = s.head_size == 192 && s.value_size == 128;
  for (const int size : flash_attention_head_sizes) known = known || (s.head_size == size && s.value_size == size);
  if (!known) {
    return {StatusCode::unsupported_head_size,
            "head_size must be 64, 72, 80, 96, 112, 128, 192 or 256 and value_size the same, or 192 with 128"};
  }
  if (s.head_size % s.unit() != 0 || s.head_size % (16 / size_of(s.q)) != 0) {
    return {StatusCode::unsupported_head_size, "head_size must be a multiple of the elements in 16 bytes"};
  }
  if (s.storage != KvStorage::contiguous && s.storage != KvStorage::paged) {
    return {StatusCode::unsupported_layout, "spec.storage must be contiguous or paged"};
  }
  if (s.values != ValueLayout::token_major && s.values != ValueLayout::dim_major) {
    return {StatusCode::unsupported_layout, "spec.values must be token_major or dim_major"};
  }
  if (s.values == ValueLayout::dim_major && (!s.paged() || s.value_size % 16 != 0)) {
    return {StatusCode::unsupported_layout, "spec.values dim_major is for paged storage and whole 16 dimensions"};
  }
  return {};
}

namespace detail {

inline Status check_flash_extents(const FlashAttentionProblem& p) {
  constexpr StatusCode extent = StatusCode::bad_extent, value = StatusCode::bad_value;
  if (p.batch < 0 || p.q_length < 0 || p.kv_length < 0) return {extent, "batch, q_length or kv_length is negative"};
  if (p.total_q < 0 || p.total_kv < 0) return {extent, "total_q or total_kv is negative"};
  constexpr std::int64_t most = (std::int64_t{1} << 31) - 65536;  // starts and ids of pages have 32 bits
  if (p.total_kv > most || p.num_pages > most) return {extent, "total_kv and num_pages must stay below 2^31 - 65536"};
  if (p.q_length > max_attention_length || p.kv_length > max_attention_length) {
    return {extent, "q_length and kv_length must be 2^29 or less"};
  }
  if (p.q_heads < 1 || p.kv_heads < 1) return {extent, "q_heads and kv_heads must be positive"};
  if (p.q_heads % p.kv_heads != 0) {
    return {StatusCode::unsupported_head_ratio, "q_heads must be a multiple of kv_heads"};
  }
  if (p.q_tokens() > max_attention_length || p.q_tokens() * p.q_heads > most) {
    return {extent, "queries must be 2^29 or less, and times q_heads below 2^31 - 65536"};
  }
  if (std::int64_t{p.batch} * p.q_heads > most) return {extent, "batch * q_heads must stay below 2^31 - 65536"};
  if (p.q_starts == nullptr && p.total_q != 0) return {value, "total_q is of packed queries, with q_starts"};
  if (p.kv_starts == nullptr && p.total_kv != 0) return {value, "total_kv is of packed keys, with kv_starts"};
  if (p.spec.paged()) {
    if (p.kv_length != 0 || p.kv_starts != nullptr) return {value, "kv_length and kv_starts are of contiguous keys"};
    if (p.block_size < 1) return {StatusCode::unsupported_block_size, "block_size must be positive"};
    if (p.spec.values == ValueLayout::dim_major && p.block_size % p.spec.unit() != 0) {
      return {StatusCode::unsupported_block_size, "block_size of dim_major values must be whole units of 16 bytes"};
    }
    if (p.table_columns < 0 || p.num_pages < 0) return {extent, "table_columns or num_pages is negative"};
    if (std::int64_t{p.table_columns} * p.block_size > max_attention_length) {
      return {extent, "table_columns * block_size must be 2^29 or less"};
    }
    if (p.num_pages == 0 && p.table_columns > 0 && p.batch > 0) return {extent, "num_pages is 0"};
  } else if (p.block_table != nullptr || p.block_size != 0 || p.table_columns != 0 || p.num_pages != 0) {
    return {value, "block_table, block_size, table_columns and num_pages are of paged keys"};
  }
  return {};
}

inline Status check_flash_values(const FlashAttentionProblem& p) {
  constexpr StatusCode value = StatusCode::bad_value;
  if (p.softmax_scale == 0.0f) {
    return {value, "softmax_scale is 0: give what q . k is multiplied by, as 1 / sqrt(head_size)"};
  }
  if (!std::isfinite(p.softmax_scale * log2_e)) {
    return {value, "softmax_scale, and it times log2(e), must be finite"};
  }
  if (!p.spec.soft_cap) {
    if (p.soft_cap != 0.0f) return {value, "soft_cap is set, but the spec has none"};
  } else if (!(p.soft_cap > 0.0f) || !std::isfinite(p.soft_cap * log2_e) ||
             !std::isfinite(p.softmax_scale / p.soft_cap)) {
    return {value, "a spec with soft_cap needs one above 0, with finite products"};
  }
  if (p.window_left < no_window || p.window_right < no_window) {
    return {value, "window_left and window_right must be no_window (-1) or not negative"};
  }
  if (p.causal && p.window_right > 0) return {value, "causal is window_right 0: it cannot be more"};
  return {};
}

/// Each pointer must be set exactly if the spec uses it.
inline Status check_flash_pointers(const FlashAttentionProblem& p) {
  const FlashAttentionSpec& s = p.spec;
  constexpr StatusCode null = StatusCode::null_pointer, value = StatusCode::bad_value;
  if (p.q == nullptr) return {null, "q is null"};
  if (p.k == nullptr) return {null, "k is null"};
  if (p.v == nullptr) return {null, "v is null"};
  if (p.out == nullptr) return {null, "out is null"};
  if (s.paged() && p.block_table == nullptr) return {null, "block_table is null"};
  if (s.paged() && p.kv_lengths == nullptr) return {null, "kv_lengths of paged keys is null"};
  const bool kv_scaled = s.quant != Scaling::none, q_scaled = size_of(s.q) == 1;
  if (kv_scaled && (p.k_scale == nullptr || p.v_scale == nullptr))
    return {null, "fp8 K and V need k_scale and v_scale"};
  if (q_scaled && p.q_scale == nullptr) return {null, "fp8 q needs q_scale"};
  if (size_of(s.out) == 1 && p.out_scale == nullptr) return {null, "fp8 out needs out_scale"};
  if (!kv_scaled && (p.k_scale != nullptr || p.v_scale != nullptr)) return {value, "k_scale and v_scale are of fp8"};
  if (!q_scaled && p.q_scale != nullptr) return {value, "q_scale is of fp8 q"};
  if (size_of(s.out) == 2 && p.out_scale != nullptr) return {value, "out_scale is of fp8 out"};
  if (s.alibi != (p.alibi_slopes != nullptr)) return {value, "alibi_slopes go with a spec that has alibi"};
  if (s.bit_mask != (p.mask != nullptr)) return {value, "mask goes with a spec that has bit_mask"};
  for (const void* wide : {p.q, p.k, p.v, static_cast<const void*>(p.out)}) {
    if (!is_aligned(wide, 16)) {
      return {StatusCode::misaligned, "q, k, v and out need 16-byte alignment"};
    }
  }
  if (p.workspace == nullptr && p.workspace_bytes != 0)
    return {null, "workspace is null, but workspace_bytes is not 0"};
  if (Status s = check_workspace_alignment(p.workspace); !s.ok()) return s;
  for (const void* words :
       {static_cast<const void*>(p.lse), static_cast<const void*>(p.q_scale), static_cast<const void*>(p.k_scale),
        static_cast<const void*>(p.v_scale), static_cast<const void*>(p.out_scale), static_cast<const void*>(p.sinks),
        static_cast<const void*>(p.alibi_slopes), static_cast<const void*>(p.mask),
        static_cast<const void*>(p.q_starts), static_cast<const void*>(p.kv_starts),
        static_cast<const void*>(p.kv_lengths), static_cast<const void*>(p.block_table),
        static_cast<const void*>(p.item_counter)}) {
    if (!element_aligned(words, DType::f32)) {
      return {StatusCode::misaligned,
              "lse, scales, sinks, slopes, mask, starts, lengths, table and counter need 4-byte alignment"};
    }
  }
  return {};
}

/// The regions of memory that the tensors of a problem take.
struct FlashAttentionRegions {
  Region q, k, v, out, lse, table, mask, q_scale, k_scale, v_scale;

  explicit FlashAttentionRegions(const FlashAttentionProblem& p) {
    const FlashAttentionSpec& s = p.spec;
    const auto tokens = [&](const void* data, DType type, int size, const TokenStrides& strides, bool packed,
                            std::int64_t total, std::int32_t length, std::int32_t heads) {
      return Region(
          data, size_of(type), size,
          {{packed ? 1 : p.batch, strides.sequence}, {packed ? total : length, strides.token}, {heads, strides.head}});
    };
    const bool packed_q = p.q_starts != nullptr, packed_kv = p.kv_starts != nullptr;
    q = tokens(p.q, s.q, s.head_size, p.q_strides, packed_q, p.total_q, p.q_length, p.q_heads);
    out = tokens(p.out, s.out, s.value_size, p.out_strides, packed_q, p.total_q, p.q_length, p.q_heads);
    lse = Region(p.lse, sizeof(float), p.q_tokens(), {{p.q_heads, p.lse_head_stride}});
    const std::int64_t words = ceil_div<std::int64_t>(s.paged() ? p.table_columns * p.block_size : p.kv_length, 32);
    mask = Region(p.mask, sizeof(std::uint32_t), words, {{p.q_tokens(), p.mask_token_stride}});
    const bool of_heads = s.quant == Scaling::per_head;
    q_scale = vector_region(p.q_scale, DType::f32, of_heads ? p.q_heads : 1);
    const auto kv_scale = [&](const float* data) {
      if (s.quant != Scaling::per_token)
        return Region(data, sizeof(float), 1, {{of_heads ? p.kv_heads : 1, p.scale_head_stride}});
      return Region(data, sizeof(float), p.block_size,
                    {{p.table_columns > 0 ? p.num_pages : 0, p.scale_page_stride}, {p.kv_heads, p.scale_head_stride}});
    };
    k_scale = kv_scale(p.k_scale), v_scale = kv_scale(p.v_scale);
    if (!s.paged()) {
      k = tokens(p.k, s.kv, s.head_size, p.k_strides, packed_kv, p.total_kv, p.kv_length, p.kv_heads);
      v = tokens(p.v, s.kv, s.value_size, p.v_strides, packed_kv, p.total_kv, p.kv_length, p.kv_heads);
      return;
    }
    const std::int64_t pages = p.table_columns > 0 ? p.num_pages : 0;
    const int unit = s.unit(), size = size_of(s.kv);
    const PagedKeyStrides& of_k = p.k_page_strides;
    const PagedValueStrides& of_v = p.v_page_strides;
    k = Region(
        p.k, size, unit,
        {{pages, of_k.page}, {p.kv_heads, of_k.head}, {s.head_size / unit, of_k.unit}, {p.block_size, of_k.token}});
    v = s.values == ValueLayout::token_major
            ? Region(p.v, size, s.value_size, {{pages, of_v.page}, {p.kv_heads, of_v.head}, {p.block_size, of_v.token}})
            : Region(p.v, size, unit,
                     {{pages, of_v.page},
                      {p.kv_heads, of_v.head},
                      {p.block_size / unit, of_v.unit},
                      {s.value_size, of_v.dim}});
    table = Region(p.block_table, sizeof(std::int32_t), p.table_columns, {{p.batch, p.table_row_stride}});
  }
};

inline Status check_flash_regions(const FlashAttentionProblem& p) {
  const FlashAttentionRegions r(p);
  const auto list = [](const void* data, std::int64_t count) { return vector_region(data, DType::f32, count); };
  for (const Status& status :
       {check_read<"q">(r.q, "a stride of q is 0"), check_read<"k">(r.k, "a stride of k is 0"),
        check_read<"v">(r.v, "a stride of v is 0"), check_read<"block_table">(r.table, "table_row_stride is 0"),
        check_read<"mask">(r.mask, "mask_token_stride is 0"),
        check_read<"k_scale">(r.k_scale, "scale_page_stride or scale_head_stride is 0"),
        check_written<"out">(r.out, "rows of out overlap"), check_written<"lse">(r.lse, "rows of lse overlap")}) {
    if (!status.ok()) return status;
  }
  const std::initializer_list<Region> inputs{r.q,
                                             r.k,
                                             r.v,
                                             r.table,
                                             r.mask,
                                             r.q_scale,
                                             r.k_scale,
                                             r.v_scale,
                                             list(p.out_scale, 1),
                                             list(p.sinks, p.q_heads),
                                             list(p.alibi_slopes, p.q_heads),
                                             list(p.q_starts, p.batch + 1),
                                             list(p.kv_starts, p.batch + 1),
                                             list(p.kv_lengths, p.batch)};
  if (!clear_of(r.out, inputs)) return {StatusCode::bad_value, "out overlaps an input"};
  if (!clear_of(r.lse, inputs)) return {StatusCode::bad_value, "lse overlaps an input"};
  if (overlap(r.out, r.lse)) return {StatusCode::bad_value, "out and lse overlap"};
  const Region counter = list(p.item_counter, 1);
  if (!clear_of(counter, inputs) || !clear_of(counter, {r.out, r.lse}))
    return {StatusCode::bad_value, "item_counter overlaps a tensor"};
  if (Status s = check_workspace_bytes(p.workspace_bytes); !s.ok()) return s;
  const Region workspace(p.workspace, 1, static_cast<std::int64_t>(p.workspace_bytes), {});
  if (!clear_of(workspace, inputs) || !clear_of(workspace, {r.out, r.lse, counter}))
    return {StatusCode::bad_value, "workspace overlaps a tensor"};
  return {};
}

/// Rows of q, K, V and out must begin on multiples of 16 bytes.
inline Status check_flash_strides(const FlashAttentionProblem& p) {
  const FlashAttentionSpec& s = p.spec;
  constexpr StatusCode bad = StatusCode::bad_stride;
  const auto whole = [](const TokenStrides& strides, DType type) {
    const int unit = 16 / size_of(type);
    return strides.sequence % unit == 0 && strides.token % unit == 0 && strides.head % unit == 0;
  };
  if (!whole(p.q_strides, s.q)) return {bad, "q_strides must be whole 16 bytes"};
  if (!whole(p.out_strides, s.out)) return {bad, "out_strides must be whole 16 bytes"};
  if (!s.paged()) {
    if (!whole(p.k_strides, s.kv)) return {bad, "k_strides must be whole 16 bytes"};
    if (!whole(p.v_strides, s.kv)) return {bad, "v_strides must be whole 16 bytes"};
    return check_flash_regions(p);
  }
  const auto units = [&](std::initializer_list<std::int64_t> strides) {
    for (const std::int64_t stride : strides)
      if (stride % s.unit() != 0) return false;
    return true;
  };
  const PagedKeyStrides& k = p.k_page_strides;
  const PagedValueStrides& v = p.v_page_strides;
  if (!units({k.page, k.head, k.unit, k.token})) return {bad, "k_page_strides must be whole 16 bytes"};
  if (!units({v.page, v.head, v.unit, v.dim, v.token})) return {bad, "v_page_strides must be whole 16 bytes"};
  return check_flash_regions(p);
}

}  // namespace detail

/// Returns ok if a problem satisfies every rule of an architecture, else the code and the field of the first one it
/// breaks. Starts and lengths live on the device and are not read. A sequence that has more queries than q_length, or
/// more keys than the call has capacity for, becomes NaN.
inline Status flash_attention_check(const FlashAttentionProblem& p, const ArchFacts& facts) {
  if (Status s = flash_attention_check_spec(p.spec, facts); !s.ok()) return s;
  if (Status s = detail::check_flash_extents(p); !s.ok()) return s;
  if (Status s = detail::check_flash_values(p); !s.ok()) return s;
  if (p.batch == 0 || p.q_tokens() == 0) return {};  // nothing to read or write
  if (Status s = detail::check_flash_pointers(p); !s.ok()) return s;
  return detail::check_flash_strides(p);
}

}  // namespace tilewave
