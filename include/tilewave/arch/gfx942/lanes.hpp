// SPDX-License-Identifier: MIT
#pragma once

#include "tilewave/arch/gfx9/lanes.hpp"

#if defined(__HIP__)

namespace tilewave::gfx942 {

struct Lanes : gfx9::Lanes {
  /// CDNA3 has no bf16 convert: adding half an ulp rounds to nearest with ties away from zero, in 3 operations a pair.
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
  TILEWAVE_DEVICE static std::uint32_t pack_fp8(float a, float b, float c, float d) {
    return pack_fp8_of<DType::fp8_e4m3fnuz>(a, b, c, d);
  }
};

}  // namespace tilewave::gfx942

#endif
