// SPDX-License-Identifier: MIT
// Launches the kernel for a Problem. Every rule that a problem must satisfy is checked before any work is done.
#pragma once

#include <cmath>

#include "tilewave/ops/norm/kernel.hpp"
#include "tilewave/tile/row_check.hpp"

namespace tilewave {

namespace detail {

/// Checks for arguments that the spec or another tensor has no use for.
inline Status check_norm_uses(const NormProblem& p) {
  if (p.smooth != nullptr && p.spec.scale == Scaling::none) {
    return {StatusCode::bad_value, "smooth is for an output with a scale"};
  }
  if (p.mean != nullptr && p.spec.kind == NormKind::rms) {
    return {StatusCode::bad_value, "mean is for layers: rmsnorm has none"};
  }
  if (p.residual == nullptr && p.residual_out != nullptr) {
    return {StatusCode::bad_value, "residual_out is given without residual"};
  }
  if (p.residual != nullptr && p.residual_out == nullptr) {
    return {StatusCode::null_pointer, "a residual needs residual_out"};
  }
  return {};
}

inline Status check_norm_regions(const NormProblem& p) {
  const NormSpec& s = p.spec;
  const auto rows = [&](const void* data, DType type, const RowStrides& strides) {
    return rows_region(data, type, p.rows, p.columns, p.inner_rows, strides);
  };
  const Region x = rows(p.x, s.x, p.x_strides), residual = rows(p.residual, s.x, p.residual_strides);
  const Region sum = rows(p.residual_out, s.x, p.residual_out_strides), out = rows(p.out, s.out, p.out_strides);
  const Region weight = vector_region(p.weight, s.weight, p.columns), bias = vector_region(p.bias, s.weight, p.columns);
  const Region smooth = vector_region(p.smooth, s.x, p.columns);
  const Region scale = scale_region(p);
  const Region mean = vector_region(p.mean, DType::f32, p.rows), rstd = vector_region(p.rstd, DType::f32, p.rows);
  const RowStrides &of_residual = p.residual_strides, &of_sum = p.residual_out_strides;
  for (const Status& status :
       {check_absent<"residual">(p.residual, {of_residual.outer, of_residual.inner}),
        check_absent<"residual_out">(p.residual_out, {of_sum.outer, of_sum.inner}),
        check_read<"x">(x, "a stride of x is 0"), check_read<"residual">(residual, "a stride of residual is 0"),
        check_written<"residual_out">(sum, "rows of residual_out overlap"),
        check_written<"out">(out, "rows of out overlap"), check_scales(scale)}) {
    if (!status.ok()) return status;
  }
  if (!in_place_or_clear(sum, x) || !in_place_or_clear(sum, residual) || !clear_of(sum, {weight, bias, smooth})) {
    return {StatusCode::bad_value, "residual_out overlaps a tensor, without being x or residual"};
  }
  if (!in_place_or_clear(out, x) || !in_place_or_clear(out, residual) || !clear_of(out, {sum, weight, bias, smooth})) {
    return {StatusCode::bad_value, "out overlaps a tensor, without being x or residual"};
  }
  if (!clear_of(scale, {x, residual, sum, out, weight, bias, smooth})) {
    return {StatusCode::bad_value, "scale overlaps another tensor"};
  }
  if (!clear_of(mean, {x, residual, sum, out, weight, bias, smooth, scale, rstd}) ||
      !clear_of(rstd, {x, residual, sum, out, weight, bias, smooth, scale})) {
    return {StatusCode::bad_value, "mean or rstd overlaps another tensor"};
  }
  return {};
}

}  // namespace detail

/// True if the kernels with 16-byte accesses can take the problem.
inline bool norm_aligned(const NormProblem& p) {
  const NormSpec& s = p.spec;
  const RowStrides none{};
  return rows_aligned(p.x, p.x_strides, p.inner_rows, s.x) &&
         rows_aligned(p.residual, p.residual_strides, p.inner_rows, s.x) &&
         rows_aligned(p.residual_out, p.residual_out_strides, p.inner_rows, s.x) &&
         rows_aligned(p.out, p.out_strides, p.inner_rows, s.out) && rows_aligned(p.weight, none, 1, s.weight) &&
         rows_aligned(p.bias, none, 1, s.weight) && rows_aligned(p.smooth, none, 1, s.x);
}

/// Returns ok if kernels of a spec can be built for a chip, else the rule that the spec breaks.
constexpr Status norm_check_spec(const NormSpec& s, const ArchFacts& facts) {
  if (!is_kind(s.kind)) return {StatusCode::bad_value, "the kind is none of NormKind"};
  if (!is_row_type(s.x)) return {StatusCode::unsupported_dtype, "x must be f32, f16 or bf16"};
  if (s.weight != s.x && s.weight != DType::f32)
    return {StatusCode::unsupported_dtype, "weight must be x's type or f32"};
  if (Status status = check_row_output(s.x, s.out, s.scale, facts); !status.ok()) return status;
  return {};
}

/// Checks every rule that a problem must satisfy on an architecture.
inline Status norm_check(const NormProblem& p, const ArchFacts& facts) {
  const NormSpec& s = p.spec;
  if (Status status = norm_check_spec(p.spec, facts); !status.ok()) return status;
  if (Status status = check_row_extent(p.rows, p.columns, p.inner_rows); !status.ok()) return status;
  if (!(p.eps >= 0.0f) || !std::isfinite(p.eps)) return {StatusCode::bad_value, "eps must be finite and not negative"};
  if (Status status = detail::check_norm_uses(p); !status.ok()) return status;
  if (p.rows == 0 || p.columns == 0) return {};  // nothing to read or write
  if (p.x == nullptr) return {StatusCode::null_pointer, "x is null"};
  if (p.weight == nullptr) return {StatusCode::null_pointer, "weight is null"};
  for (const void* tensor : {p.x, p.residual, static_cast<const void*>(p.residual_out), p.smooth}) {
    if (!element_aligned(tensor, s.x)) return {StatusCode::misaligned, "a tensor is not aligned to its elements"};
  }
  for (const void* tensor : {p.weight, p.bias}) {
    if (!element_aligned(tensor, s.weight))
      return {StatusCode::misaligned, "weight or bias is not aligned to its elements"};
  }
  for (const float* tensor : {p.mean, p.rstd}) {
    if (!element_aligned(tensor, DType::f32)) return {StatusCode::misaligned, "statistics need 4-byte alignment"};
  }
  if (Status status = check_row_output_tensors(p.out, p.scale, s.out, s.scale); !status.ok()) return status;
  if (Status status = check_scale_layout(p, norm_aligned(p)); !status.ok()) return status;
  return detail::check_norm_regions(p);
}

/// Returns the arguments of the kernels.
template <NormSpec S>
NormArgs<S> norm_args(const NormProblem& p) {
  NormArgs<S> a{};
  if constexpr (S.kind == NormKind::layer) a.mean = p.mean;
  if constexpr (S.scale != Scaling::none) a.smooth = p.smooth;
  a.x = p.x, a.residual = p.residual, a.residual_out = p.residual_out;
  a.weight = p.weight, a.bias = p.bias, a.rstd = p.rstd;
  a.extent = {p.rows, p.columns, FastDiv::by(p.inner_rows)};
  a.eps = p.eps;
  a.x_strides = p.x_strides;
  a.residual_strides = p.residual_strides, a.residual_out_strides = p.residual_out_strides;
  a.output = row_output_args(p);
  return a;
}

/// Queues the kernel on the stream. Nothing is allocated, synchronised or read from the device.
/// Errors: those of norm_check; no_matching_entry if the entry is of another spec or its policy does not take the rows;
/// launch_failed with the runtime's reason.
template <class B, NormSpec S, NormPolicy P>
Status norm_launch(const NormProblem& p, hipStream_t stream) {
  if (Status s = check_row_launch(S, P, p, B::facts, norm_check, norm_aligned); !s.ok()) return s;
  if (p.rows == 0 || p.columns == 0) return {};
  return B::template launch<Norm<B, S, P>>(row_grid(P, p.rows), norm_args<S>(p), stream);
}

}  // namespace tilewave
