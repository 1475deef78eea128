// SPDX-License-Identifier: MIT
// Launches a repack of weights. Every rule is checked before any work is done.
#pragma once

#include "tilewave/core/hip.hpp"
#include "tilewave/core/math.hpp"
#include "tilewave/ops/gemm/repack/kernel.hpp"
#include "tilewave/tile/row_tensors.hpp"

namespace tilewave {

namespace detail {

/// Checks types, extents and the tensors that `shipped` has.
inline Status check_gemm_repack_form(const GemmRepackProblem& p) {
  const bool mxfp4 = p.shipped == GemmShipped::mxfp4, bf16 = p.shipped == GemmShipped::bf16;
  const auto is_scale = [&](DType t) { return mxfp4 ? t == DType::e8m0 : t == DType::f16 || t == DType::bf16; };
  if (p.shipped < GemmShipped::mxfp4 || p.shipped > GemmShipped::bf16)
    return {StatusCode::bad_value, "shipped is none of GemmShipped"};
  if ((!bf16 && !is_scale(p.scale)) || !is_scale(p.out_scale))
    return {StatusCode::unsupported_dtype, "scales of mxfp4 are e8m0, others f16 or bf16"};
  if (p.bias_type != DType::bf16 && p.bias_type != DType::f16 && p.bias_type != DType::f32)
    return {StatusCode::unsupported_dtype, "a bias is bf16, f16 or f32"};
  if (p.weights != GemmWeights::preshuffled && (p.weights != GemmWeights::fragments || !mxfp4))
    return {StatusCode::unsupported_layout, "codes are written preshuffled, or those of mxfp4 as fragments"};
  if (p.group_index != nullptr)
    return {StatusCode::unsupported_layout, "K sorted by activations (act-order): sort K, and A's, by group first"};
  if (p.scale_k != 32 && (mxfp4 || (p.scale_k != 64 && p.scale_k != 128)))
    return {StatusCode::bad_value, "scale_k must be 32, 64 or 128, and 32 for mxfp4"};
  if (p.layers < 0 || p.n < 0 || p.k < 0) return {StatusCode::bad_extent, "layers, n or k is negative"};
  if (p.n % 16 != 0 || p.k % p.scale_k != 0)
    return {StatusCode::bad_extent, "n must be a multiple of 16, and k of scale_k"};
  if (p.interleaved && p.n % 32 != 0)
    return {StatusCode::bad_extent, "gates and ups apart are whole strips of 16 rows"};
  if (std::int64_t{p.k} * 2 > 0x7fffffff || std::int64_t{p.layers} * (p.n / 16) > 0x7fffffff)
    return {StatusCode::bad_extent, "k must stay below 2^30, and there are at most 2^31 - 1 strips"};
  if (p.zero_offset != 0 && (p.shipped != GemmShipped::gptq || p.zero_offset != 1))
    return {StatusCode::bad_value, "zero_offset is 0, or 1 for gptq"};
  if ((mxfp4 || bf16) && (p.zeros != nullptr || p.out_zeros != nullptr))
    return {StatusCode::bad_value, "mxfp4 and bf16 have no zero points"};
  if (bf16 && p.scales != nullptr) return {StatusCode::bad_value, "weights of bf16 have no scales yet"};
  return {};
}

}  // namespace detail

/// Checks every rule that a problem must satisfy.
inline Status gemm_repack_check(const GemmRepackProblem& p, const ArchFacts&) {
  if (Status s = detail::check_gemm_repack_form(p); !s.ok()) return s;
  if (p.layers == 0 || p.n == 0) return {};
  if ((p.zeros == nullptr) != (p.out_zeros == nullptr))
    return {StatusCode::null_pointer, "zero points are read and written, or neither"};
  if ((p.bias == nullptr) != (p.out_bias == nullptr))
    return {StatusCode::null_pointer, "a bias is read and written, or neither"};
  const bool bf16 = p.shipped == GemmShipped::bf16;
  if (p.k > 0 &&
      (p.codes == nullptr || (p.scales == nullptr && !bf16) || p.out_codes == nullptr || p.out_scales == nullptr))
    return {StatusCode::null_pointer, "codes, scales, out_codes or out_scales is null"};
  if (!is_aligned(p.codes, 4) || !is_aligned(p.zeros, 4) || !is_aligned(p.scales, size_of(p.scale)) ||
      !is_aligned(p.bias, size_of(p.bias_type)) || !is_aligned(p.out_bias, size_of(p.bias_type)))
    return {StatusCode::misaligned, "codes and zero points need 4-byte alignment, scales and bias that of an element"};
  if (!is_aligned(p.out_codes, 16) || !is_aligned(p.out_scales, 8) || !is_aligned(p.out_zeros, 8))
    return {StatusCode::misaligned, "out_codes need 16-byte alignment, out_scales and out_zeros 8-byte"};
  const std::int64_t rows = std::int64_t{p.layers} * p.n, groups = p.k / p.scale_k;
  const auto region = [](const void* at, DType type, std::int64_t count, std::int64_t each) {
    return Region(at, size_of(type), each, {{count, each}});
  };
  const Region in[] = {region(p.codes, DType::i8, rows, bf16 ? std::int64_t{2} * p.k : p.k / 2),
                       region(p.scales, p.scale, rows, groups), region(p.zeros, DType::i8, rows / 2, groups),
                       region(p.bias, p.bias_type, rows, 1)};
  const Region out[] = {region(p.out_codes, DType::i8, rows, p.k / 2), region(p.out_scales, p.out_scale, rows, groups),
                        region(p.out_zeros, DType::i8, rows, groups), region(p.out_bias, p.bias_type, rows, 1)};
  for (int i = 0; i < 4; ++i) {
    if (!clear_of(out[i], {in[0], in[1], in[2], in[3]}))
      return {StatusCode::bad_value, "what is written overlaps what is read"};
    for (int j = 0; j < i; ++j)
      if (!clear_of(out[i], {out[j]})) return {StatusCode::bad_value, "two tensors that are written overlap"};
  }
  return {};
}

/// Queues the repack on the stream. Nothing is allocated, synchronised or read from the device. Errors: those of
/// gemm_repack_check; launch_failed with the runtime's reason.
template <class B>
Status gemm_repack(const GemmRepackProblem& p, hipStream_t stream) {
  if (Status s = gemm_repack_check(p, B::facts); !s.ok()) return s;
  if (p.layers == 0 || p.n == 0) return {};
  const auto launch = [&]<GemmShipped shipped>() {
    using Kernel = GemmRepackKernel<B, shipped>;
    return B::template launch<Kernel>({std::int64_t{p.layers} * (p.n / 16), Kernel::block_threads}, p, stream);
  };
  switch (p.shipped) {
    case GemmShipped::mxfp4: return launch.template operator()<GemmShipped::mxfp4>();
    case GemmShipped::gptq: return launch.template operator()<GemmShipped::gptq>();
    case GemmShipped::awq: return launch.template operator()<GemmShipped::awq>();
    case GemmShipped::bf16: return launch.template operator()<GemmShipped::bf16>();
  }
  return {StatusCode::bad_value, "shipped is none of GemmShipped"};
}

}  // namespace tilewave
