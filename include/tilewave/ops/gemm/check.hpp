// SPDX-License-Identifier: MIT
// Every rule that a GEMM problem must satisfy, whatever the entry.
#pragma once

#include <cmath>
#include <limits>

#include "tilewave/arch/backend.hpp"
#include "tilewave/core/math.hpp"
#include "tilewave/ops/gemm/problem.hpp"

namespace tilewave {

namespace detail {

template <class Enum>
constexpr bool in_range(Enum value, Enum last) {
  return static_cast<int>(value) >= 0 && static_cast<int>(value) <= static_cast<int>(last);
}

inline Status check_gemm_spec(const GemmSpec& s, const ArchFacts& facts) {
  if (!in_range(s.a, DType::i8) || !in_range(s.b, DType::i8) || !in_range(s.out, DType::i8) ||
      !in_range(s.scale, GemmScale::block) || !in_range(s.layout, GemmLayout::tt) ||
      !in_range(s.weights, GemmWeights::preshuffled) || !in_range(s.groups, GemmGroups::masked) ||
      !in_range(s.activation, ActivationKind::relu2)) {
    return {StatusCode::bad_value, "an enum of the spec is out of its range"};
  }
  if (s.a != s.b) return {StatusCode::unsupported_dtype, "a and b must be of one type"};
  const bool fp8 = is_fp8(s.a);
  if (fp8 && s.a != facts.fp8) return {StatusCode::unsupported_dtype, "fp8 flavour is not this architecture's"};
  if (!fp8 && s.a != DType::bf16 && s.a != DType::f16)
    return {StatusCode::unsupported_dtype, "a and b must be bf16, f16 or fp8"};
  if (s.out != DType::bf16 && s.out != DType::f16 && s.out != DType::f32)
    return {StatusCode::unsupported_dtype, "out must be bf16, f16 or f32"};
  if (s.layout != GemmLayout::nt) return {StatusCode::unsupported_layout, "only nt is there"};
  if (s.scale == GemmScale::block && !fp8)
    return {StatusCode::unsupported_quant_mode, "block scales are for fp8 operands"};
  return {};
}

inline Status check_gemm_extents(const GemmProblem& p) {
  constexpr std::int32_t most = std::numeric_limits<std::int32_t>::max() - 65536;  // tiles run past the end
  if (p.m < 0 || p.n < 0 || p.k < 0) return {StatusCode::bad_extent, "m, n or k is negative"};
  if (p.m > most || p.n > most || p.k > most)
    return {StatusCode::bad_extent, "m, n and k must stay below 2^31 - 65536"};
  if (p.spec.groups == GemmGroups::one) {
    if (p.batch < 1) return {StatusCode::bad_extent, "batch must be positive"};
    if (p.groups != 0) return {StatusCode::bad_value, "groups is for specs with groups"};
  } else {
    if (p.groups < 0) return {StatusCode::bad_extent, "groups is negative"};
    if (p.batch != 1) return {StatusCode::bad_value, "batch is for specs without groups"};
  }
  if (p.spec.weights == GemmWeights::preshuffled && (p.n % 16 != 0 || p.k % 32 != 0))
    return {StatusCode::bad_extent, "preshuffled weights need n a multiple of 16 and k of 32"};
  return {};
}

/// `count` times |stride| bytes, and what lies between, stays below 2^62.
inline bool reaches(std::int64_t stride, std::int64_t count, int bytes) {
  constexpr std::int64_t most = std::int64_t{1} << 62;
  return stride >= 0 && (count <= 1 || stride <= most / bytes / count);
}

/// Rows of `columns` elements, `layers` of them: apart, aligned as tensor copies and 16-byte loads want them.
inline Status check_gemm_rows(const void* data, DType type, std::int64_t rows, std::int64_t columns,
                              std::int64_t layers, std::int64_t stride, std::int64_t layer_stride, bool wide,
                              const char* null_reason) {
  if (data == nullptr) return {StatusCode::null_pointer, null_reason};
  if (!reaches(stride, rows, size_of(type)) || !reaches(layer_stride, layers, size_of(type)))
    return {StatusCode::bad_stride, "a stride is negative, or reaches beyond 2^62 bytes"};
  const auto at = reinterpret_cast<std::uintptr_t>(data);
  if (wide) {
    const int unit = 16 / size_of(type);
    if (at % 16 != 0) return {StatusCode::misaligned, "a and b need 16-byte alignment"};
    if ((rows > 1 && stride % unit != 0) || (layers > 1 && layer_stride % unit != 0))
      return {StatusCode::bad_stride, "rows of a and b need strides that are multiples of 16 bytes"};
    if (rows > 1 && stride < columns) return {StatusCode::bad_stride, "rows of a or b overlap"};
  } else {
    if (at % size_of(type) != 0) return {StatusCode::misaligned, "out or residual is not aligned to its elements"};
  }
  return {};
}

inline Status check_gemm_scales(const GemmProblem& p) {
  const auto bad = [](const void* at) { return reinterpret_cast<std::uintptr_t>(at) % 4 != 0; };
  if (p.spec.scale == GemmScale::none) {
    if (p.a_scale != nullptr || p.b_scale != nullptr) return {StatusCode::bad_value, "this spec has no scales"};
  } else if (p.a_scale == nullptr || p.b_scale == nullptr) {
    return {StatusCode::null_pointer, "a_scale or b_scale is null"};
  }
  if (bad(p.a_scale) || bad(p.b_scale)) return {StatusCode::misaligned, "scales need 4-byte alignment"};
  if (p.spec.scale != GemmScale::block) {
    if (p.a_scale_stride != 0 || p.a_scale_k_stride != 0 || p.b_scale_stride != 0 || p.b_scale_k_stride != 0)
      return {StatusCode::bad_value, "strides of scales within a product are for block scales"};
    return {};
  }
  const std::int64_t blocks = ceil_div(p.k, gemm_scale_block), rows = ceil_div(p.n, gemm_scale_block);
  if (!reaches(p.a_scale_stride, p.m, 4) || !reaches(p.a_scale_k_stride, blocks, 4) ||
      !reaches(p.b_scale_stride, rows, 4) || !reaches(p.b_scale_k_stride, blocks, 4)) {
    return {StatusCode::bad_stride, "a stride of scales is negative, or reaches beyond 2^62 bytes"};
  }
  if (!disjoint(p.a_scale_stride, p.m, p.a_scale_k_stride, blocks, 1) ||
      !disjoint(p.b_scale_stride, rows, p.b_scale_k_stride, blocks, 1)) {
    return {StatusCode::bad_stride, "block scales overlap: their strides must be given"};
  }
  return {};
}

}  // namespace detail

/// Checks a problem; the tables of groups are on the device and are not read.
inline Status gemm_check(const GemmProblem& p, const ArchFacts& facts) {
  const GemmSpec& s = p.spec;
  if (Status status = detail::check_gemm_spec(s, facts); !status.ok()) return status;
  if (Status status = detail::check_gemm_extents(p); !status.ok()) return status;
  if (!std::isfinite(p.alpha)) return {StatusCode::bad_value, "alpha must be finite"};
  const bool contiguous = s.groups == GemmGroups::contiguous, groups = s.groups != GemmGroups::one;
  if (p.group_offsets != nullptr && !contiguous)
    return {StatusCode::bad_value, "group_offsets is for contiguous groups"};
  if (p.expected_group_rows < 0 || (p.expected_group_rows > 0 && s.groups != GemmGroups::masked))
    return {StatusCode::bad_value, "expected_group_rows is for masked groups, and not negative"};
  if (p.group_rows != nullptr && s.groups != GemmGroups::masked)
    return {StatusCode::bad_value, "group_rows is for masked groups"};
  if (p.m == 0 || p.n == 0 || (groups && p.groups == 0)) return {};  // nothing to write
  if (groups && (contiguous ? p.group_offsets : p.group_rows) == nullptr)
    return {StatusCode::null_pointer, "group_offsets or group_rows is null"};
  const std::int64_t layers = groups ? p.groups : p.batch, a_layers = contiguous ? 1 : layers;
  if (p.k > 0) {
    if (Status status =
            detail::check_gemm_rows(p.a, s.a, p.m, p.k, a_layers, p.a_stride, p.a_batch_stride, true, "a is null");
        !status.ok()) {
      return status;
    }
    const bool shuffled = s.weights == GemmWeights::preshuffled;
    if (shuffled && p.b_stride != 0) return {StatusCode::bad_value, "preshuffled weights have no b_stride"};
    if (Status status = detail::check_gemm_rows(p.b, s.b, shuffled ? 1 : p.n, p.k, layers, p.b_stride, p.b_batch_stride,
                                                true, "b is null");
        !status.ok()) {
      return status;
    }
  }
  if (Status status = detail::check_gemm_rows(p.out, s.out, p.m, p.n, a_layers, p.out_stride, p.out_batch_stride, false,
                                              "out is null");
      !status.ok()) {
    return status;
  }
  if (!disjoint(p.out_stride, p.m, p.out_batch_stride, a_layers, p.n))
    return {StatusCode::bad_stride, "rows of out overlap"};
  if (p.residual != nullptr) {
    if (Status status = detail::check_gemm_rows(p.residual, s.out, p.m, p.n, a_layers, p.residual_stride,
                                                p.residual_batch_stride, false, "residual is null");
        !status.ok()) {
      return status;
    }
  }
  if (reinterpret_cast<std::uintptr_t>(p.bias) % size_of(s.out) != 0)
    return {StatusCode::misaligned, "bias is not aligned to its elements"};
  return detail::check_gemm_scales(p);
}

}  // namespace tilewave
