// SPDX-License-Identifier: MIT
// The rules that a GEMM spec must satisfy on an architecture. They are applied when compiling.
#pragma once

#include "tilewave/arch/facts.hpp"
#include "tilewave/core/status.hpp"
#include "tilewave/ops/gemm/spec.hpp"

namespace tilewave {

namespace detail {

template <class Enum>
constexpr bool in_range(Enum value, Enum last) {
  return static_cast<int>(value) >= 0 && static_cast<int>(value) <= static_cast<int>(last);
}

/// Checks operands with MX scales.
constexpr Status check_mx_spec(const GemmSpec& s, const ArchFacts& facts) {
  if (!facts.mx) return {StatusCode::unsupported_scaling, "this architecture multiplies nothing with mx scales"};
  if (s.a != facts.fp8 && !is_fp6(s.a) && s.a != DType::fp4_e2m1)
    return {StatusCode::unsupported_dtype, "with mx scales a is fp4, fp6 or this architecture's fp8"};
  if (s.b != s.a && s.b != DType::fp4_e2m1)
    return {StatusCode::unsupported_dtype, "with mx scales b is of a's type, or fp4"};
  if (s.weights == GemmWeights::fragments)
    return {StatusCode::unsupported_layout, "weights lie as fragments with scales of groups alone"};
  if (is_fp6(s.b) && s.weights == GemmWeights::preshuffled)
    return {StatusCode::unsupported_layout, "preshuffled weights with mx scales are fp4 or fp8"};
  if (s.scale_k != 0) return {StatusCode::bad_value, "scale_k must be 32, 64 or 128 with weights of i4, else 0"};
  if (s.zero_points) return {StatusCode::unsupported_dtype, "zero points are of weights of i4 with scales of groups"};
  if (s.out_scale == Scaling::per_group)
    return {StatusCode::unsupported_scaling, "with mx scales out has no scales of groups"};
  return {};
}

/// Checks types, scales and weights of the operands.
constexpr Status check_gemm_operands(const GemmSpec& s, const ArchFacts& facts) {
  if (!in_range(s.a, DType::i4) || !in_range(s.b, DType::i4) || !in_range(s.out, DType::i4) || !is_scaling(s.scale) ||
      !in_range(s.layout, GemmLayout::tt) || !in_range(s.weights, GemmWeights::fragments) ||
      !in_range(s.groups, GemmGroups::masked) || !is_activation_kind(s.activation) ||
      !in_range(s.sums, GemmSums::fast)) {
    return {StatusCode::bad_value, "an enum of the spec is out of its range"};
  }
  if (s.scale == Scaling::per_token || s.scale == Scaling::per_head)
    return {StatusCode::unsupported_scaling, "operands take no scales per_token or per_head: per_row is a scale a row"};
  if (s.mx()) return check_mx_spec(s, facts);
  if (s.b == DType::fp4_e2m1 && !s.four_bit())
    return {StatusCode::unsupported_scaling, "weights of fp4 have scales of groups or mx scales"};
  if (s.a != s.b && !s.four_bit())
    return {StatusCode::unsupported_dtype, "a and b must be of one type, or b of i4 or fp4"};
  const bool fp8 = is_fp8(s.a);
  if (fp8 && s.a != facts.fp8) return {StatusCode::unsupported_dtype, "fp8 flavour is not this architecture's"};
  if (!fp8 && s.a != DType::bf16 && s.a != DType::f16 && (s.a != DType::i8 || s.four_bit()))
    return {StatusCode::unsupported_dtype, "a must be bf16, f16, fp8 or i8, and not i8 with weights of four bits"};
  if (s.four_bit() != (s.scale == Scaling::per_group))
    return {StatusCode::unsupported_scaling, "weights of four bits have scales of groups, and no others have"};
  if (s.mxfp4() && s.scale_k != 32) return {StatusCode::bad_value, "scale_k of fp4 weights must be 32"};
  if (s.four_bit() ? s.scale_k != 32 && s.scale_k != 64 && s.scale_k != 128 : s.scale_k != 0)
    return {StatusCode::bad_value, "scale_k must be 32, 64 or 128 with weights of i4, 32 of fp4, else 0"};
  if (s.zero_points && (s.b != DType::i4 || is_fp8(s.a)))
    return {StatusCode::unsupported_dtype, "zero points are of weights of i4 under rows of bf16 or f16"};
  if (s.rounds_weights() && (s.a != DType::bf16 || s.zero_points || s.groups != GemmGroups::one || s.scale_k < 64 ||
                             (s.gated && size_of(s.out) == 1) || facts.matrix != Matrix::mma))
    return {StatusCode::unsupported_dtype,
            "i4 is rounded with its scales (fast sums) on sm90 alone: one product of bf16 rows without zero points, "
            "scale_k 64 or 128, not gated with a quantised out"};
  if (s.weights == GemmWeights::fragments && (!s.mxfp4() || s.a != DType::bf16 || facts.matrix != Matrix::mma))
    return {StatusCode::unsupported_layout, "weights lie as fragments on sm90 alone, mxfp4 under rows of bf16"};
  if (s.four_bit() && !s.in_strips())
    return {StatusCode::unsupported_layout, "weights of four bits with scales of groups must be preshuffled"};
  if (s.four_bit() && s.out_scale == Scaling::per_group)
    return {StatusCode::unsupported_scaling, "with weights of four bits out has no scales of groups"};
  if (s.scale == Scaling::per_block && !fp8)
    return {StatusCode::unsupported_scaling, "block scales are for fp8 operands"};
  return {};
}

/// Checks specs whose rows have ids.
constexpr Status check_gemm_ids(const GemmSpec& s) {
  if (!s.has_ids()) return {};
  if (s.groups != GemmGroups::contiguous)
    return {StatusCode::unsupported_layout, "rows are gathered and scattered in contiguous groups"};
  if (s.layout != GemmLayout::nt) return {StatusCode::unsupported_layout, "gathered and scattered products are nt"};
  if (s.scattered && s.out_scale == Scaling::per_group)
    return {StatusCode::unsupported_scaling, "scattered rows have no scales of groups"};
  return {};
}

/// Checks the output, the layout and the epilogue.
constexpr Status check_gemm_form(const GemmSpec& s, const ArchFacts& facts) {
  if (!is_scaling(s.out_scale)) return {StatusCode::bad_value, "an enum of the spec is out of its range"};
  if (!is_output_scaling(s.out_scale))
    return {StatusCode::unsupported_scaling, "out takes scales per_tensor or per_group"};
  if (is_fp8(s.out) && s.out != facts.fp8)
    return {StatusCode::unsupported_dtype, "fp8 flavour of out is not this architecture's"};
  if ((size_of(s.out) == 1) != (s.out_scale != Scaling::none))
    return {StatusCode::unsupported_scaling, "an out of fp8 or i8 is scaled, and no other"};
  if (s.out_scale == Scaling::mx || packing_of(s.out) > 1)
    return {StatusCode::unsupported_scaling, "an out has neither mx scales nor codes of four or six bits"};
  if (s.out_scale == Scaling::per_token)
    return {StatusCode::unsupported_scaling, "no block has a whole row of out: scale per tensor or per group"};
  if (s.layout != GemmLayout::nt && size_of(s.a) != 2)
    return {StatusCode::unsupported_layout, "layouts other than nt are for 16-bit operands"};
  if (s.layout != GemmLayout::nt && s.in_strips())
    return {StatusCode::unsupported_layout, "preshuffled weights are nt"};
  if (s.layout != GemmLayout::nt && s.gated) return {StatusCode::unsupported_layout, "gated products are nt"};
  if (transposed_a(s.layout) && s.groups == GemmGroups::contiguous)
    return {StatusCode::unsupported_layout, "contiguous groups begin anywhere, and rows of [K, M] lie in 16 bytes"};
  if (s.activation == ActivationKind::swigluoai && !s.gated)
    return {StatusCode::bad_value, "swigluoai is of a gate and an up value: the spec must be gated"};
  if (s.sums != GemmSums::promoted && !s.has_sums_to_choose() && !s.rounds_weights())
    return {StatusCode::bad_value,
            "fast sums are of fp8 operands with scales of none, tensor or row, or by i4 weights"};
  return {};
}

}  // namespace detail

/// Checks whether an architecture computes a spec: types, scales, layout and epilogue. gemm_check begins with it.
/// Errors: unsupported_dtype, unsupported_scaling, unsupported_layout or bad_value, with a reason.
constexpr Status gemm_check_spec(const GemmSpec& s, const ArchFacts& facts) {
  if (const Status status = detail::check_gemm_operands(s, facts); !status.ok()) return status;
  if (const Status status = detail::check_gemm_form(s, facts); !status.ok()) return status;
  return detail::check_gemm_ids(s);
}

}  // namespace tilewave
