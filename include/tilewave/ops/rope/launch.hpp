// SPDX-License-Identifier: MIT
// Launches the kernel for a Problem. Every rule that a problem must satisfy is checked before any work is done.
#pragma once

#include "tilewave/ops/rope/kernel.hpp"
#include "tilewave/tile/row_check.hpp"

namespace tilewave {

/// Returns ok if kernels of a spec can be built for a chip, else the rule that the spec breaks.
constexpr Status rope_check_spec(const RopeSpec& s, const ArchFacts&) {
  if (!is_row_type(s.x)) return {StatusCode::unsupported_dtype, "q and k must be f32, f16 or bf16"};
  if (!is_pairs(s.pairs)) return {StatusCode::bad_value, "pairs is none of RopePairs"};
  if (s.table != s.x && s.table != DType::f32) {
    return {StatusCode::unsupported_dtype, "tables must be of x's type or f32"};
  }
  return {};
}

namespace detail {

/// Returns the region of heads with HeadStrides.
inline Region heads_region(const void* data, DType type, std::int32_t tokens, std::int32_t heads,
                           std::int32_t head_size, const HeadStrides& s) {
  return Region(data, size_of(type), heads > 0 ? head_size : 0,
                {{tokens, s.token, stride_field<"token">}, {heads, s.head, stride_field<"head">}});
}

/// Checks the extents of tables.
inline Status check_rope_tables(std::int32_t rotary, std::int32_t head_size, std::int32_t rows) {
  if (rotary < 2 || rotary > head_size || rotary % 2 != 0) {
    return {StatusCode::bad_extent, "rotary must be even and 2 to head_size"};
  }
  if (rows < 1) return {StatusCode::bad_extent, "table_rows must be positive"};
  return {};
}

inline Status check_rope_regions(const RopeProblem& p) {
  const DType x = p.spec.x;
  const Region q = heads_region(p.q, x, p.tokens, p.q_heads, p.head_size, p.q_strides);
  const Region k = heads_region(p.k, x, p.tokens, p.k_heads, p.head_size, p.k_strides);
  const Region q_out = heads_region(p.q_out, x, p.tokens, p.q_heads, p.head_size, p.q_out_strides);
  const Region k_out = heads_region(p.k_out, x, p.tokens, p.k_heads, p.head_size, p.k_out_strides);
  const std::int32_t columns = p.spec.full_table ? p.rotary : p.rotary / 2;
  const Region cos(p.cos, size_of(p.spec.table), columns, {{p.table_rows, p.table_stride}});
  const Region sin(p.sin, size_of(p.spec.table), columns, {{p.table_rows, p.table_stride}});
  const Region positions = index_region(p.positions, p.position_type, p.tokens);
  for (const Status& status : {check_read<"q">(q, "a stride of q is 0"), check_read<"k">(k, "a stride of k is 0"),
                               check_read<"cos and sin">(cos, "table_stride is 0"),
                               check_written<"q_out">(q_out, "tokens or heads of q_out overlap"),
                               check_written<"k_out">(k_out, "tokens or heads of k_out overlap")}) {
    if (!status.ok()) return status;
  }
  if (!in_place_or_clear(q_out, q) || !clear_of(q_out, {k, k_out, cos, sin, positions})) {
    return {StatusCode::bad_value, "q_out overlaps a tensor, without being q"};
  }
  if (!in_place_or_clear(k_out, k) || !clear_of(k_out, {q, cos, sin, positions})) {
    return {StatusCode::bad_value, "k_out overlaps a tensor, without being k"};
  }
  return {};
}

}  // namespace detail

/// Checks every rule that a problem must satisfy. Positions live on the device and are not read: see RopeProblem.
inline Status rope_check(const RopeProblem& p, const ArchFacts& facts) {
  const RopeSpec& s = p.spec;
  if (Status status = rope_check_spec(p.spec, facts); !status.ok()) return status;
  if (!is_index_type(p.position_type)) return {StatusCode::bad_value, "position_type is none of IndexType"};
  if (p.tokens < 0) return {StatusCode::bad_extent, "tokens is negative"};
  if (p.q_heads < 0 || p.k_heads < 0) return {StatusCode::bad_extent, "q_heads or k_heads is negative"};
  if (p.head_size < 2 || p.head_size > 512 || p.head_size % 2 != 0) {
    return {StatusCode::unsupported_head_size, "head_size must be even and 2 to 512"};
  }
  if (Status t = detail::check_rope_tables(p.rotary, p.head_size, p.table_rows); !t.ok()) return t;
  const std::int64_t heads = std::int64_t{p.q_heads} + p.k_heads;
  constexpr std::int64_t most = std::numeric_limits<std::int32_t>::max() - 65536;
  if (heads > most || p.tokens * heads > most) {
    return {StatusCode::bad_extent, "tokens * (q_heads + k_heads) must stay below 2^31 - 65536"};
  }
  if (p.tokens == 0 || heads == 0) return {};  // nothing to read or write
  const bool q = p.q_heads > 0, k = p.k_heads > 0;
  if (q && p.q == nullptr) return {StatusCode::null_pointer, "q is null"};
  if (k && p.k == nullptr) return {StatusCode::null_pointer, "k is null"};
  if (q && p.q_out == nullptr) return {StatusCode::null_pointer, "q_out is null"};
  if (k && p.k_out == nullptr) return {StatusCode::null_pointer, "k_out is null"};
  if (p.cos == nullptr || p.sin == nullptr) return {StatusCode::null_pointer, "cos or sin is null"};
  if (p.positions == nullptr) return {StatusCode::null_pointer, "positions is null"};
  if (!element_aligned(p.q, s.x) || !element_aligned(p.k, s.x) || !element_aligned(p.q_out, s.x) ||
      !element_aligned(p.k_out, s.x)) {
    return {StatusCode::misaligned, "q, k or an output is not aligned to its elements"};
  }
  if (!element_aligned(p.cos, s.table) || !element_aligned(p.sin, s.table)) {
    return {StatusCode::misaligned, "cos or sin is not aligned to its elements"};
  }
  if (!is_aligned(p.positions, size_of(p.position_type))) {
    return {StatusCode::misaligned, "positions are not aligned to their elements"};
  }
  return detail::check_rope_regions(p);
}

/// True if every head of a tensor starts at a multiple of 16 bytes.
inline bool heads_aligned(const void* data, DType type, std::int32_t heads, const HeadStrides& s) {
  return heads == 0 || (rows_aligned(data, {s.token, s.head}, heads, type));
}

/// True if the kernels with 16-byte accesses can take the problem: pairs of accesses fill the rotated and the other
/// part.
inline bool rope_aligned(const RopeProblem& p) {
  const RopeSpec& s = p.spec;
  const int pair = 2 * 16 / size_of(s.x);
  return p.head_size % pair == 0 && p.rotary % pair == 0 && heads_aligned(p.q, s.x, p.q_heads, p.q_strides) &&
         heads_aligned(p.k, s.x, p.k_heads, p.k_strides) && heads_aligned(p.q_out, s.x, p.q_heads, p.q_out_strides) &&
         heads_aligned(p.k_out, s.x, p.k_heads, p.k_out_strides) &&
         rows_aligned(p.cos, {p.table_stride, 0}, 1, s.table) && rows_aligned(p.sin, {p.table_stride, 0}, 1, s.table);
}

/// Returns the arguments of the kernels.
inline RopeArgs rope_args(const RopeProblem& p) {
  return {.q = {p.q, p.q_out, p.q_strides, p.q_out_strides},
          .k = {p.k, p.k_out, p.k_strides, p.k_out_strides},
          .cos = p.cos,
          .sin = p.sin,
          .positions = IndexList::of(p.positions, p.position_type),
          .heads = FastDiv::by(p.q_heads + p.k_heads),
          .rows = rows_of(p),
          .q_heads = p.q_heads,
          .head_size = p.head_size,
          .rotary = p.rotary,
          .table_rows = p.table_rows,
          .table_stride = p.table_stride};
}

/// Queues the kernel on the stream. Nothing is allocated, synchronised or read from the device. Errors: those of
/// rope_check; no_matching_entry if the entry is of another spec or its policy does not take the heads; launch_failed
/// with the runtime's reason.
template <class B, RopeSpec S, RopePolicy P>
Status rope_launch(const RopeProblem& p, hipStream_t stream) {
  if (Status s = check_row_launch(S, P, p, B::facts, rope_check, rope_aligned); !s.ok()) return s;
  if (rows_of(p) == 0) return {};
  return B::template launch<Rope<B, kernel_spec(S), P>>(row_grid(P, rows_of(p)), rope_args(p), stream);
}

}  // namespace tilewave
