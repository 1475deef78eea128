// SPDX-License-Identifier: MIT
#pragma once

#include "tilewave/arch/gfx9/lanes.hpp"

#if defined(__HIP__)

namespace tilewave::gfx942 {

struct Lanes : gfx9::Lanes {
  /// CDNA3 has no bf16 convert. Adding half an ulp rounds to nearest with ties away from zero, in 3 operations a pair.
  TILEWAVE_DEVICE static std::uint32_t pack_bf16(float low, float high) {
    const auto rounded = [](float x) {
      return __builtin_bit_cast(float, __builtin_bit_cast(std::uint32_t, x) + 0x8000u);
    };
    return high_halves(rounded(low), rounded(high));
  }
  TILEWAVE_DEVICE static std::uint32_t round_bf16(float low, float high) {
    const auto rounded = [](float x) {
      const std::uint32_t bits = __builtin_bit_cast(std::uint32_t, x);
      return __builtin_bit_cast(float, x == x ? bits + 0x7fffu + ((bits >> 16) & 1u) : 0x7fc00000u);
    };
    return high_halves(rounded(low), rounded(high));
  }
  TILEWAVE_DEVICE static Vec<std::uint32_t, 2> widen_i4_to_fp8(std::uint32_t word) {
    return widen_i4_to_fp8_of<DType::fp8_e4m3fnuz>(word);
  }
  TILEWAVE_DEVICE static std::uint32_t pack_fp8(float a, float b, float c, float d) {
    return pack_fp8_of<DType::fp8_e4m3fnuz>(a, b, c, d);
  }

  /// v_cvt_pk_f32_fp8 decodes the chip's own flavour. Every fp8 value is exact in bf16, so the low half is zero.
  TILEWAVE_DEVICE static Vec<std::uint32_t, 2> widen_fp8(std::uint32_t word) {
    const auto low = __builtin_amdgcn_cvt_pk_f32_fp8(static_cast<int>(word), false);
    const auto high = __builtin_amdgcn_cvt_pk_f32_fp8(static_cast<int>(word), true);
    return {{high_halves(low[0], low[1]), high_halves(high[0], high[1])}};
  }

  /// The values are exact in f16, so rounding toward zero does no harm: v_cvt_pkrtz_f16_f32 takes a pair.
  TILEWAVE_DEVICE static Vec<std::uint32_t, 2> widen_fp8_to_f16(std::uint32_t word) {
    const auto low = __builtin_amdgcn_cvt_pk_f32_fp8(static_cast<int>(word), false);
    const auto high = __builtin_amdgcn_cvt_pk_f32_fp8(static_cast<int>(word), true);
    return {{__builtin_bit_cast(std::uint32_t, __builtin_amdgcn_cvt_pkrtz(low[0], low[1])),
             __builtin_bit_cast(std::uint32_t, __builtin_amdgcn_cvt_pkrtz(high[0], high[1]))}};
  }
};

}  // namespace tilewave::gfx942

#endif
