// SPDX-License-Identifier: MIT
// Launches the kernels for a Problem. Every rule that a problem must satisfy is checked before any work is done.
#pragma once

#include "tilewave/ops/quant/kernel.hpp"
#include "tilewave/tile/row_check.hpp"
#include "tilewave/tile/workspace.hpp"

namespace tilewave {

/// Returns the bytes of workspace that a problem needs, whatever its extents: 0 unless the scale of the tensor has to
/// be found.
constexpr std::size_t quant_workspace_size(const QuantProblem& p) {
  return p.find_scale ? quant_partials * sizeof(float) : 0;
}

/// Returns ok if kernels of a spec can be built for a chip, else the rule that the spec breaks.
constexpr Status quant_check_spec(const QuantSpec& s, const ArchFacts& facts) {
  if (!is_output_scaling(s.scale))
    return {StatusCode::unsupported_scaling, "scale must be none, per_tensor, per_token, per_group or mx"};
  if (s.scale == Scaling::none) return {StatusCode::unsupported_scaling, "codes have a scale"};
  if (s.kind() == QuantKind::quantise) {
    if (!is_row_type(s.x)) return {StatusCode::unsupported_dtype, "x must be f32, f16, bf16, or codes to dequantise"};
    return check_row_output(s.x, s.out, s.scale, facts);
  }
  if (is_fp8(s.x) && s.x != facts.fp8) {
    return {StatusCode::unsupported_dtype, "fp8 flavour of x is not this architecture's"};
  }
  if (s.scale == Scaling::mx) return {StatusCode::unsupported_scaling, "codes with mx scales are not dequantised"};
  if (!is_row_type(s.out)) return {StatusCode::unsupported_dtype, "codes are dequantised to f32, f16 or bf16"};
  return {};
}

namespace detail {

inline Status check_quant_regions(const QuantProblem& p) {
  const QuantSpec& s = p.spec;
  const Region x = rows_region(p.x, s.x, p.rows, p.columns, p.inner_rows, p.x_strides);
  const Region out = rows_region(p.out, s.out, p.rows, p.columns, p.inner_rows, p.out_strides);
  const Region smooth = vector_region(p.smooth, s.x, p.columns);
  const Region scale = scale_region(p);
  const Region workspace = vector_region(p.workspace, DType::f32, p.find_scale ? quant_partials : 0);
  for (const Status& status : {check_read<"x">(x, "a stride of x is 0"),
                               check_written<"out">(out, "rows of out overlap"), check_scales(scale)}) {
    if (!status.ok()) return status;
  }
  if (!clear_of(out, {x, smooth, scale})) return {StatusCode::bad_value, "out overlaps another tensor"};
  if (s.kind() == QuantKind::quantise && !clear_of(scale, {x, smooth})) {
    return {StatusCode::bad_value, "scale overlaps another tensor"};
  }
  if (!clear_of(workspace, {x, smooth, scale, out})) return {StatusCode::bad_value, "workspace overlaps a tensor"};
  return {};
}

}  // namespace detail

/// True if the kernels with 16-byte accesses can take the problem.
inline bool quant_aligned(const QuantProblem& p) {
  return rows_aligned(p.x, p.x_strides, p.inner_rows, p.spec.x) &&
         rows_aligned(p.out, p.out_strides, p.inner_rows, p.spec.out) && rows_aligned(p.smooth, {}, 1, p.spec.x);
}

/// Checks every rule that a problem must satisfy on an architecture.
inline Status quant_check(const QuantProblem& p, const ArchFacts& facts) {
  const QuantSpec& s = p.spec;
  const bool quantises = s.kind() == QuantKind::quantise;
  if (Status status = quant_check_spec(s, facts); !status.ok()) return status;
  if (Status status = check_row_extent(p.rows, p.columns, p.inner_rows); !status.ok()) return status;
  if (p.find_scale && !(quantises && s.scale == Scaling::per_tensor)) {
    return {StatusCode::bad_value, "find_scale is for quantising with one scale a tensor"};
  }
  if (!quantises && p.smooth != nullptr) return {StatusCode::bad_value, "smooth is for quantising"};
  if (p.rows == 0 || p.columns == 0) return {};  // nothing to read or write
  if (p.x == nullptr) return {StatusCode::null_pointer, "x is null"};
  if (!element_aligned(p.x, s.x)) return {StatusCode::misaligned, "x is not aligned to its elements"};
  if (!element_aligned(p.smooth, s.x)) return {StatusCode::misaligned, "smooth is not aligned to its elements"};
  const std::size_t needed = quant_workspace_size(p);
  if (Status status = check_workspace(p.workspace, p.workspace_bytes, needed); !status.ok()) return status;
  if (Status status = check_row_output_tensors(p.out, p.scale, s.out, s.scale); !status.ok()) return status;
  if (Status status = check_scale_layout(p, quant_aligned(p)); !status.ok()) return status;
  return detail::check_quant_regions(p);
}

namespace detail {

/// Queues the two launches that leave the scale of the tensor in output.scale.
template <class B, QuantSpec S, QuantPolicy P>
Status find_scale(const QuantArgs& args, void* workspace, hipStream_t stream) {
  using Amax = QuantAmax<B, S, P>;
  static_assert(Amax::waves % 4 == 0 && quant_partials % Amax::waves == 0,
                "waves leave their partials in whole 16 bytes, and blocks fill the workspace evenly");
  auto* partials = static_cast<float*>(workspace);
  const std::int32_t grid = min_of(ceil_div(args.extent.rows, P.rows), quant_partials / Amax::waves);
  if (Status s = B::template launch<Amax>({grid, Amax::block_threads}, {args, partials, grid * P.rows}, stream);
      !s.ok())
    return s;
  using Scale = QuantScale<B, S.out>;
  return B::template launch<Scale>({1, Scale::block_threads},
                                   {partials, grid * Amax::waves, static_cast<float*>(args.output.scale)}, stream);
}

}  // namespace detail

/// Returns the arguments of the kernels.
inline QuantArgs quant_args(const QuantProblem& p) {
  return {.x = p.x,
          .smooth = p.smooth,
          .extent = {p.rows, p.columns, FastDiv::by(p.inner_rows)},
          .x_strides = p.x_strides,
          .output = row_output_args(p)};
}

/// Queues the kernel on the stream, after the two that find the scale of the tensor if it has to be found. Nothing is
/// allocated, synchronised or read from the device. Errors: those of quant_check; no_matching_entry if the entry is of
/// another spec or its policy does not take the rows; launch_failed with the runtime's reason.
template <class B, QuantSpec S, QuantPolicy P>
Status quant_launch(const QuantProblem& p, hipStream_t stream) {
  if (Status s = check_row_launch(S, P, p, B::facts, quant_check, quant_aligned); !s.ok()) return s;
  if (p.rows == 0 || p.columns == 0) return {};
  const QuantArgs args = quant_args(p);
  if constexpr (S.output().scale == Scaling::per_tensor) {
    if (p.find_scale) {
      if (Status s = detail::find_scale<B, S, P>(args, p.workspace, stream); !s.ok()) return s;
    }
  }
  return B::template launch<Quant<B, S, P>>(row_grid(P, p.rows), args, stream);
}

}  // namespace tilewave
