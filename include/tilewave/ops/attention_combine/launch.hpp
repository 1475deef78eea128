// SPDX-License-Identifier: MIT
// From a Problem to a queued kernel. Every rule that a problem must satisfy is checked before any work is done.
#pragma once

#include <algorithm>
#include <initializer_list>
#include <limits>

#include "tilewave/core/hip.hpp"
#include "tilewave/ops/attention_combine/kernel.hpp"

namespace tilewave {

namespace detail {

inline Status check_combine_regions(const AttentionCombineProblem& p) {
  const auto partials = [&](const void* data, DType type, std::int64_t columns, const PartialStrides& s) {
    return Region(data, size_of(type), columns,
                  {{p.partials, s.partial, stride_field<"partial">},
                   {p.rows, s.row, stride_field<"row">},
                   {p.heads, s.head, stride_field<"head">}});
  };
  const auto combined = [&](const void* data, DType type, std::int64_t columns, const CombinedStrides& s) {
    return Region(data, size_of(type), columns,
                  {{p.rows, s.row, stride_field<"row">}, {p.heads, s.head, stride_field<"head">}});
  };
  const Region x = partials(p.x, p.spec.x, p.head_size, p.x_strides);
  const Region x_lse = partials(p.x_lse, DType::f32, 1, p.x_lse_strides);
  const Region out = combined(p.out, p.spec.out, p.head_size, p.out_strides);
  const Region lse = combined(p.lse, DType::f32, 1, p.lse_strides);
  for (const Status& status :
       {check_absent<"lse">(p.lse, {p.lse_strides.row, p.lse_strides.head}), check_read<"x">(x, "a stride of x is 0"),
        check_read<"x_lse">(x_lse, "a stride of x_lse is 0"), check_written<"out">(out, "rows or heads of out overlap"),
        check_written<"lse">(lse, "rows or heads of lse overlap")}) {
    if (!status.ok()) return status;
  }
  if (!clear_of(out, {x, x_lse})) return {StatusCode::bad_value, "out overlaps another tensor"};
  if (!clear_of(lse, {x, x_lse, out})) return {StatusCode::bad_value, "lse overlaps another tensor"};
  return {};
}

}  // namespace detail

/// Returns ok if kernels of a spec can be built for a chip, else the rule that the spec breaks.
constexpr Status attention_combine_check_spec(const AttentionCombineSpec& s, const ArchFacts&) {
  if (!is_row_type(s.x)) return {StatusCode::unsupported_dtype, "x must be f32, f16 or bf16"};
  if (!is_row_type(s.out)) return {StatusCode::unsupported_dtype, "out must be f32, f16 or bf16"};
  return {};
}

/// Every rule that a problem must satisfy.
inline Status attention_combine_check(const AttentionCombineProblem& p, const ArchFacts& facts) {
  if (Status status = attention_combine_check_spec(p.spec, facts); !status.ok()) return status;
  if (p.partials < 1 || p.partials > max_partials) return {StatusCode::bad_extent, "partials must be 1 to 128"};
  if (p.head_size < 1 || p.head_size > 512) return {StatusCode::unsupported_head_size, "head_size must be 1 to 512"};
  if (p.rows < 0 || p.heads < 0) return {StatusCode::bad_extent, "rows or heads is negative"};
  if (std::int64_t{p.rows} * p.heads > std::numeric_limits<std::int32_t>::max() - 65536) {
    return {StatusCode::bad_extent, "rows * heads must stay below 2^31 - 65536"};
  }
  if (p.rows == 0 || p.heads == 0) return {};  // nothing to read or write
  if (p.x == nullptr) return {StatusCode::null_pointer, "x is null"};
  if (p.x_lse == nullptr) return {StatusCode::null_pointer, "x_lse is null"};
  if (p.out == nullptr) return {StatusCode::null_pointer, "out is null"};
  if (!element_aligned(p.x, p.spec.x)) return {StatusCode::misaligned, "x is not aligned to its elements"};
  if (!element_aligned(p.out, p.spec.out)) return {StatusCode::misaligned, "out is not aligned to its elements"};
  if (!element_aligned(p.x_lse, DType::f32) || !element_aligned(p.lse, DType::f32)) {
    return {StatusCode::misaligned, "x_lse and lse need 4-byte alignment"};
  }
  return detail::check_combine_regions(p);
}

/// Returns whether the kernels with 16-byte accesses can take the problem.
inline bool attention_combine_aligned(const AttentionCombineProblem& p) {
  const auto whole = [](const void* data, DType type, std::initializer_list<std::int64_t> strides) {
    const int unit = 16 / size_of(type);
    return is_aligned(data, 16) &&
           std::all_of(strides.begin(), strides.end(), [&](std::int64_t stride) { return stride % unit == 0; });
  };
  return whole(p.x, p.spec.x, {p.x_strides.partial, p.x_strides.row, p.x_strides.head}) &&
         whole(p.out, p.spec.out, {p.out_strides.row, p.out_strides.head});
}

/// Row operations call a head of a row a row, and its dimensions columns.
constexpr std::int32_t rows_of(const AttentionCombineProblem& p) { return p.rows * p.heads; }
constexpr std::int32_t columns_of(const AttentionCombineProblem& p) { return p.head_size; }

/// The arguments of the kernels.
inline AttentionCombineArgs attention_combine_args(const AttentionCombineProblem& p) {
  return {.x = p.x,
          .x_lse = p.x_lse,
          .out = p.out,
          .lse = p.lse,
          .x_strides = p.x_strides,
          .x_lse_strides = p.x_lse_strides,
          .out_strides = p.out_strides,
          .lse_strides = p.lse_strides,
          .heads = FastDiv::by(p.heads),
          .output_rows = rows_of(p),
          .partials = p.partials,
          .head_size = p.head_size};
}

/// Queues the kernel on the stream. Nothing is allocated, synchronised or read from the device. Errors: those of
/// attention_combine_check; no_matching_entry if the entry is of another spec or its policy does not take the rows;
/// launch_failed with the runtime's reason.
template <class B, AttentionCombineSpec S, AttentionCombinePolicy P>
Status attention_combine_launch(const AttentionCombineProblem& p, hipStream_t stream) {
  if (Status s = check_row_launch(S, P, p, B::facts, attention_combine_check, attention_combine_aligned); !s.ok())
    return s;
  if (p.rows == 0 || p.heads == 0) return {};
  const AttentionCombineArgs args = attention_combine_args(p);
  return B::template launch<AttentionCombine<B, S, P>>(row_grid(P, args.output_rows), args, stream);
}

}  // namespace tilewave
