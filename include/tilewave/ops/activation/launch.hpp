// SPDX-License-Identifier: MIT
// Launches the kernel for a Problem. Every rule that a problem must satisfy is checked before any work is done.
#pragma once

#include <cmath>

#include "tilewave/ops/activation/kernel.hpp"

namespace tilewave {

/// Returns ok if kernels of a spec can be built for a chip, else the rule that the spec breaks.
constexpr Status activation_check_spec(const ActivationSpec& s, const ArchFacts& facts) {
  if (!is_activation_kind(s.kind)) return {StatusCode::bad_value, "the kind is none of ActivationKind"};
  if (!is_gating(s.gating)) return {StatusCode::bad_value, "the gating is none of Gating"};
  if (s.kind == ActivationKind::swigluoai && !s.gated()) {
    return {StatusCode::bad_value, "swigluoai is of gates and ups: it needs a gating"};
  }
  if (s.kind == ActivationKind::none && !s.gated()) {
    return {StatusCode::bad_value, "neither an activation nor a gating: nothing to compute"};
  }
  if (!is_row_type(s.x)) return {StatusCode::unsupported_dtype, "x must be f32, f16 or bf16"};
  return check_row_output(s.x, s.out, s.scale, facts);
}

namespace detail {

/// The ups of Gating::halves.
struct ActivationUp {
  const void* data;
  RowStrides strides;
};
inline ActivationUp up_of(const ActivationProblem& p) {
  if (p.spec.gating != Gating::halves || p.x == nullptr) return {nullptr, {}};
  if (p.up != nullptr) return {p.up, p.up_strides};
  return {static_cast<const char*>(p.x) + std::int64_t{p.columns} * size_of(p.spec.x), p.x_strides};
}

inline Status check_activation_regions(const ActivationProblem& p) {
  const ActivationSpec& s = p.spec;
  const bool pairs = s.gating == Gating::interleaved;
  const ActivationUp behind = up_of(p);
  const Region x = rows_region(p.x, s.x, p.rows, pairs ? 2 * p.columns : p.columns, p.inner_rows, p.x_strides);
  const Region up = rows_region(behind.data, s.x, p.rows, p.columns, p.inner_rows, behind.strides);
  const Region out = rows_region(p.out, s.out, p.rows, p.columns, p.inner_rows, p.out_strides);
  const Region scale = scale_region(p);
  if (s.gating == Gating::halves && p.up == nullptr) {
    const Region both = rows_region(p.x, s.x, p.rows, 2 * p.columns, p.inner_rows, p.x_strides);
    if (both.addressable() && both.overlaps_itself())
      return {StatusCode::bad_stride, "without up, rows of x are gates and ups: they lie closer than 2 columns"};
  }
  for (const Status& status : {check_absent<"up">(p.up, {p.up_strides.outer, p.up_strides.inner}),
                               check_read<"x">(x, "a stride of x is 0"), check_read<"up">(up, "a stride of up is 0"),
                               check_written<"out">(out, "rows of out overlap"), check_scales(scale)}) {
    if (!status.ok()) return status;
  }
  if (s.scale == Scaling::none && !pairs) {
    if (!in_place_or_clear(out, x)) return {StatusCode::bad_value, "out overlaps x without being it"};
    if (!in_place_or_clear(out, up)) return {StatusCode::bad_value, "out overlaps up without being it"};
  } else if (!clear_of(out, {x, up, scale})) {
    return {StatusCode::bad_value, "out overlaps another tensor"};
  }
  if (s.scale != Scaling::per_tensor && !clear_of(scale, {x, up})) {
    return {StatusCode::bad_value, "scale overlaps another tensor"};
  }
  return {};
}

}  // namespace detail

/// True if the kernels with 16-byte accesses can take the problem, if its columns are whole accesses.
inline bool activation_aligned(const ActivationProblem& p) {
  return rows_aligned(p.x, p.x_strides, p.inner_rows, p.spec.x) &&
         rows_aligned(p.up, p.up_strides, p.inner_rows, p.spec.x) &&
         rows_aligned(p.out, p.out_strides, p.inner_rows, p.spec.out);
}

/// Checks every rule that a problem must satisfy on an architecture.
inline Status activation_check(const ActivationProblem& p, const ArchFacts& facts) {
  const ActivationSpec& s = p.spec;
  if (Status status = activation_check_spec(s, facts); !status.ok()) return status;
  if (Status status = check_row_extent(p.rows, p.columns, p.inner_rows); !status.ok()) return status;
  if (s.gated() && p.columns > (1 << 30) - (1 << 20)) {
    return {StatusCode::bad_extent, "columns of gates must stay below 2^30 - 2^20"};
  }
  if (p.up != nullptr && s.gating != Gating::halves) {
    return {StatusCode::bad_value, "up is given, but the gating is not halves"};
  }
  if (s.kind == ActivationKind::swigluoai) {
    if (!(p.limit > 0.0f)) return {StatusCode::bad_value, "limit must be positive"};
    if (!std::isfinite(p.alpha)) return {StatusCode::bad_value, "alpha must be finite"};
  } else if (p.alpha != ActivationProblem{}.alpha || p.limit != ActivationProblem{}.limit) {
    return {StatusCode::bad_value, "alpha and limit are for swigluoai"};
  }
  if (p.rows == 0 || p.columns == 0) return {};  // nothing to read or write
  if (p.x == nullptr) return {StatusCode::null_pointer, "x is null"};
  if (!element_aligned(p.x, s.x)) return {StatusCode::misaligned, "x is not aligned to its elements"};
  if (!element_aligned(p.up, s.x)) return {StatusCode::misaligned, "up is not aligned to its elements"};
  if (Status status = check_row_output_tensors(p.out, p.scale, s.out, s.scale); !status.ok()) return status;
  if (Status status = check_scale_layout(p, activation_aligned(p)); !status.ok()) return status;
  return detail::check_activation_regions(p);
}

/// Returns the arguments of the kernels of a policy.
inline ActivationArgs activation_args(const ActivationProblem& p, const ActivationPolicy& policy) {
  const detail::ActivationUp up = detail::up_of(p);
  return {.x = p.x,
          .up = up.data,
          .extent = {p.rows, p.columns, FastDiv::by(p.inner_rows)},
          .x_strides = p.x_strides,
          .up_strides = up.strides,
          .output = row_output_args(p),
          .tiles = FastDiv::by(tiles_of(policy, p.spec.x, p.columns)),
          .alpha = p.alpha,
          .limit = p.limit};
}

/// Queues the kernel on the stream. Nothing is allocated, synchronised or read from the device. Errors: those of
/// activation_check; no_matching_entry if the entry is of another spec or its policy does not take the rows;
/// launch_failed with the runtime's reason.
template <class B, ActivationSpec S, ActivationPolicy P>
Status activation_launch(const ActivationProblem& p, hipStream_t stream) {
  constexpr auto check_entry = S.tiled() ? check_tile_launch<ActivationSpec, ActivationProblem>
                                         : check_row_launch<ActivationSpec, ActivationProblem>;
  if (Status s = check_entry(S, P, p, B::facts, activation_check, activation_aligned); !s.ok()) return s;
  if (p.rows == 0 || p.columns == 0) return {};
  const LaunchShape shape = S.tiled() ? tile_grid(P, S.x, p.rows, p.columns) : row_grid(P, p.rows);
  return B::template launch<Activation<B, S, P>>(shape, activation_args(p, P), stream);
}

}  // namespace tilewave
