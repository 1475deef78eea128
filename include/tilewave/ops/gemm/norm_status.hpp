// SPDX-License-Identifier: MIT
// Which calls ask for root mean squares of rows (GemmProblem::rms_norm, a_squares, out_squares), and which entries
// serve them.
#pragma once

#include <cmath>

#include "tilewave/core/region.hpp"
#include "tilewave/core/status.hpp"
#include "tilewave/ops/gemm/policy.hpp"
#include "tilewave/ops/gemm/problem.hpp"

namespace tilewave {

/// The neighbours of a row whose squares are one number.
inline constexpr int gemm_squares_columns = 64;

namespace detail {

/// Says whether the entry of a policy serves GemmProblem::rms_norm. One wave finds the factors of rows beside the
/// products: of at most 16 rows it reads the elements, and of up to 64 their squares (`squares`: a_squares is given).
constexpr bool gemm_serves_norm(const GemmSpec& s, const GemmPolicy& p, bool squares = true) {
  if (!gemm_spec_takes_norm(s) || p.path != GemmPath::tensor || p.pingpong || p.stream) return false;
  if (p.rows <= 16 || !squares) return p.rows <= 16;
  return p.rows == 64 && p.waves() == 1 && p.sharers() == 1 && (p.swapped ? p.columns == 64 : s.gated);
}
/// Says whether the entry of a policy writes GemmProblem::out_squares.
constexpr bool gemm_writes_squares(const GemmSpec& s, const GemmPolicy& p) {
  return gemm_spec_takes_norm(s) && !s.gated && size_of(s.out) == 2 && s.out_scale == Scaling::none &&
         p.path == GemmPath::tensor && p.swapped && p.columns == 64 && p.rows >= 16 && p.rows <= 64 && p.waves() == 1 &&
         p.sharers() == 1;
}

/// Says whether an entry serves what a problem asks of root mean squares. Errors: no_matching_entry with the reason.
constexpr Status gemm_norm_status(const GemmProblem& p, const GemmSpec& s, const GemmPolicy& policy) {
  constexpr StatusCode none = StatusCode::no_matching_entry;
  if (p.rms_norm && !gemm_serves_norm(s, policy, p.a_squares != nullptr))
    return {none, "rms_norm is served by tiles of at most 16 rows on sm90, with a_squares by some of 64"};
  if (p.out_squares != nullptr && !gemm_writes_squares(s, policy))
    return {none, "out_squares is served by tiles of 16 to 64 rows and 64 columns on sm90"};
  if (p.cache_write != nullptr && !gemm_writes_squares(s, policy))
    return {none, "cache_write is served by tiles of 16 to 64 rows and 64 columns on sm90"};
  return {};
}

/// Checks what a problem says of root mean squares.
inline Status check_gemm_norm(const GemmProblem& p) {
  const bool taken = gemm_spec_takes_norm(p.spec);
  if (p.rms_norm && !taken)
    return {StatusCode::unsupported_layout, "rms_norm is for bf16 and f16 without scales and groups, in layout nt"};
  if (p.rms_norm ? !(p.norm_eps >= 0 && std::isfinite(p.norm_eps)) : p.norm_eps != 0)
    return {StatusCode::bad_value, "norm_eps is for rms_norm: finite and not negative"};
  if (p.rms_norm && p.k == 0) return {StatusCode::bad_extent, "rows of no elements have no root mean square"};
  if (p.a_squares == nullptr && p.out_squares == nullptr) return {};
  if (p.a_squares != nullptr && !p.rms_norm) return {StatusCode::bad_value, "a_squares is for rms_norm"};
  if (!taken || (p.out_squares != nullptr && (p.spec.gated || size_of(p.spec.out) != 2)))
    return {StatusCode::unsupported_layout,
            "out_squares is for an out of 16 bits without gates, of what takes rms_norm"};
  if (p.batch != 1) return {StatusCode::bad_extent, "squares are of one batch"};
  if ((p.a_squares != nullptr && p.k % gemm_squares_columns != 0) ||
      (p.out_squares != nullptr && p.n % gemm_squares_columns != 0))
    return {StatusCode::bad_extent, "squares are of rows of whole 64 elements"};
  if (!is_aligned(p.a_squares, 16) || !is_aligned(p.out_squares, 4))
    return {StatusCode::misaligned, "a_squares is aligned to 16 bytes, and out_squares to 4"};
  return {};
}

}  // namespace detail

}  // namespace tilewave
