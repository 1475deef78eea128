// SPDX-License-Identifier: MIT
// Launches the kernel for a Problem. Every rule that a problem must satisfy is checked before any work is done.
#pragma once

#include <cmath>

#include "tilewave/ops/softmax/kernel.hpp"
#include "tilewave/tile/row_check.hpp"

namespace tilewave {

namespace detail {

inline Status check_softmax_regions(const SoftmaxProblem& p) {
  const DType type = p.spec.x;
  const Region x = rows_region(p.x, type, p.rows, p.columns, p.inner_rows, p.x_strides);
  const Region out = rows_region(p.out, type, p.rows, p.columns, p.inner_rows, p.out_strides);
  const Region lse = vector_region(p.lse, DType::f32, p.rows);
  const Region lengths = vector_region(p.lengths, DType::f32, ceil_div<std::int64_t>(p.rows, p.rows_per_length));
  if (Status s = check_read<"x">(x, "a stride of x is 0"); !s.ok()) return s;
  if (Status s = check_written<"out">(out, "rows of out overlap"); !s.ok()) return s;
  if (!in_place_or_clear(out, x)) return {StatusCode::bad_value, "out overlaps x without being it"};
  if (!clear_of(out, {lengths})) return {StatusCode::bad_value, "out overlaps lengths"};
  if (!clear_of(lse, {x, out, lengths})) return {StatusCode::bad_value, "lse overlaps another tensor"};
  return {};
}

}  // namespace detail

/// Returns ok if kernels of a spec can be built for a chip, else the rule that the spec breaks.
constexpr Status softmax_check_spec(const SoftmaxSpec& s, const ArchFacts&) {
  if (!is_kind(s.kind)) return {StatusCode::bad_value, "the kind is none of SoftmaxKind"};
  if (!is_row_type(s.x)) return {StatusCode::unsupported_dtype, "x must be f32, f16 or bf16"};
  return {};
}

/// Checks every rule that a problem must satisfy. Lengths live on the device and are not read; the kernel cuts those
/// beyond the columns.
inline Status softmax_check(const SoftmaxProblem& p, const ArchFacts& facts) {
  const DType type = p.spec.x;
  if (Status status = softmax_check_spec(p.spec, facts); !status.ok()) return status;
  if (Status status = check_row_extent(p.rows, p.columns, p.inner_rows); !status.ok()) return status;
  if (p.rows_per_length < 1) return {StatusCode::bad_extent, "rows_per_length must be positive"};
  if (p.rows_per_length != 1 && p.lengths == nullptr) {
    return {StatusCode::bad_value, "rows_per_length is set, but there are no lengths"};
  }
  if (p.causal_rows < 0) return {StatusCode::bad_extent, "causal_rows must be 0 (no causal mask) or positive"};
  if (!std::isfinite(2.0f * p.scale * log2_e)) return {StatusCode::bad_value, "2 scale log2(e) must be finite"};
  if (p.rows == 0 || p.columns == 0) return {};  // nothing to read or write
  if (p.x == nullptr) return {StatusCode::null_pointer, "x is null"};
  if (!element_aligned(p.x, type)) return {StatusCode::misaligned, "x is not aligned to its elements"};
  if (!element_aligned(p.lse, DType::f32)) return {StatusCode::misaligned, "lse needs 4-byte alignment"};
  if (!element_aligned(p.lengths, DType::f32)) return {StatusCode::misaligned, "lengths need 4-byte alignment"};
  if (Status s = check_row_output_tensors(p.out, nullptr, type, Scaling::none); !s.ok()) return s;
  return detail::check_softmax_regions(p);
}

/// True if the kernels with 16-byte accesses can take the problem.
inline bool softmax_aligned(const SoftmaxProblem& p) {
  return rows_aligned(p.x, p.x_strides, p.inner_rows, p.spec.x) &&
         rows_aligned(p.out, p.out_strides, p.inner_rows, p.spec.x);
}

/// Returns the arguments of the kernels.
inline SoftmaxArgs softmax_args(const SoftmaxProblem& p) {
  // This factor makes hidden columns -inf, so it must not be 0. No finite element shows the difference.
  constexpr float smallest = std::numeric_limits<float>::denorm_min();
  const float twice_scale_log2 = 2.0f * p.scale * log2_e;
  return {.x = p.x,
          .lse = p.lse,
          .lengths = p.lengths,
          .extent = {p.rows, p.columns, FastDiv::by(p.inner_rows)},
          .x_strides = p.x_strides,
          .output = {p.out, nullptr, p.out_strides, 0},
          .rows_per_length = FastDiv::by(p.rows_per_length),
          .causal_rows = FastDiv::by(max_of(p.causal_rows, 1)),
          .scale = p.scale,
          .twice_scale_log2 = twice_scale_log2 == 0.0f ? smallest : twice_scale_log2};
}

/// Queues the kernel on the stream. Nothing is allocated, synchronised or read from the device. Errors: those of
/// softmax_check; no_matching_entry if the entry is of another spec or its policy does not take the rows; launch_failed
/// with the runtime's reason.
template <class B, SoftmaxSpec S, SoftmaxPolicy P>
Status softmax_launch(const SoftmaxProblem& p, hipStream_t stream) {
  if (Status s = check_row_launch(S, P, p, B::facts, softmax_check, softmax_aligned); !s.ok()) return s;
  if (p.rows == 0 || p.columns == 0) return {};
  return B::template launch<Softmax<B, S, P>>(row_grid(P, p.rows), softmax_args(p), stream);
}

}  // namespace tilewave
