// SPDX-License-Identifier: MIT
// Square products of 8 bytes a lane: all that CDNA3 has. CDNA4 has them, too, at half of its rate or less.
#pragma once

#include "tilewave/arch/lds.hpp"

#if defined(__HIP__)

namespace tilewave::gfx9 {

/// Returns sums + kv x rows, for operands of bf16, f16, i8 or the chip's own flavour of fp8.
template <DType type, int side, class Sums>
TILEWAVE_DEVICE Sums half_product(const Vec<std::uint32_t, 2>& kv, const Vec<std::uint32_t, 2>& rows,
                                  const Sums& sums) {
  using Registers = ProductSum<type> __attribute__((ext_vector_type(side * side / 64)));
  const auto c = __builtin_bit_cast(Registers, sums);
  if constexpr (type == DType::bf16) {
    using Shorts = short __attribute__((ext_vector_type(4)));
    const auto a = __builtin_bit_cast(Shorts, kv), b = __builtin_bit_cast(Shorts, rows);
    if constexpr (side == 16) {
      return __builtin_bit_cast(Sums, __builtin_amdgcn_mfma_f32_16x16x16bf16_1k(a, b, c, 0, 0, 0));
    } else {
      return __builtin_bit_cast(Sums, __builtin_amdgcn_mfma_f32_32x32x8bf16_1k(a, b, c, 0, 0, 0));
    }
  } else if constexpr (type == DType::f16) {
    using Halves = _Float16 __attribute__((ext_vector_type(4)));
    const auto a = __builtin_bit_cast(Halves, kv), b = __builtin_bit_cast(Halves, rows);
    if constexpr (side == 16) {
      return __builtin_bit_cast(Sums, __builtin_amdgcn_mfma_f32_16x16x16f16(a, b, c, 0, 0, 0));
    } else {
      return __builtin_bit_cast(Sums, __builtin_amdgcn_mfma_f32_32x32x8f16(a, b, c, 0, 0, 0));
    }
  } else if constexpr (type == DType::i8) {
    const auto a = __builtin_bit_cast(long, kv), b = __builtin_bit_cast(long, rows);
    if constexpr (side == 16) {
      return __builtin_bit_cast(Sums, __builtin_amdgcn_mfma_i32_16x16x32_i8(a, b, c, 0, 0, 0));
    } else {
      return __builtin_bit_cast(Sums, __builtin_amdgcn_mfma_i32_32x32x16_i8(a, b, c, 0, 0, 0));
    }
  } else {
    static_assert(is_fp8(type), "products of 8 bytes a lane are of bf16, f16, i8 and fp8");
    const auto a = __builtin_bit_cast(long, kv), b = __builtin_bit_cast(long, rows);
    if constexpr (side == 16) {
      return __builtin_bit_cast(Sums, __builtin_amdgcn_mfma_f32_16x16x32_fp8_fp8(a, b, c, 0, 0, 0));
    } else {
      return __builtin_bit_cast(Sums, __builtin_amdgcn_mfma_f32_32x32x16_fp8_fp8(a, b, c, 0, 0, 0));
    }
  }
}

}  // namespace tilewave::gfx9

#endif
