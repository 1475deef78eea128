// SPDX-License-Identifier: MIT
// MXFP4 that is widened to bf16 with a quarter of its scale, exactly: the least value is a subnormal then, and the
// largest, 6 times 2^127, fits. Sums are multiplied by four at the end.
#pragma once

#include "tilewave/core/vec.hpp"

namespace tilewave {

template <class B>
struct GemmScaledFp4 {
  static constexpr float factor = 4.0f;  // what makes sums of these weights those of B

  /// Says whether a code times a quarter of the scale is zero or a normal number of bf16, as conversions that scale
  /// have it.
  TILEWAVE_DEVICE static bool converts(std::uint32_t scale) { return scale >= 4 && scale <= 254; }
  /// Returns eight codes times a quarter of their e8m0 scale. `by_conversion`: all scales of the wave are such that
  /// `converts` says yes.
  template <bool by_conversion>
  TILEWAVE_DEVICE static Chunk widened(std::uint32_t codes, std::uint32_t scale) {
    if constexpr (by_conversion) return B::widen_fp4_scaled(codes, scale - 2);
    const std::uint32_t bits = scale > 254 ? 0x7fc00000u : scale > 2 ? (scale - 2) << 23 : 0x00100000u << scale;
    return multiplied(B::widen_fp4(codes), __builtin_bit_cast(float, bits));
  }

 private:
  /// Returns pairs of bf16 times a factor, exactly: what lies below bf16 is zero.
  TILEWAVE_DEVICE static Chunk multiplied(Chunk pairs, float factor) {
    TILEWAVE_UNROLL
    for (int i = 0; i < 4; ++i) {
      const float low = __builtin_bit_cast(float, pairs[i] << 16) * factor;
      const float high = __builtin_bit_cast(float, pairs[i] & 0xffff0000u) * factor;
      pairs[i] = B::template pick_bytes<2, 3, 6, 7>(__builtin_bit_cast(std::uint32_t, low),
                                                    __builtin_bit_cast(std::uint32_t, high));
    }
    return pairs;
  }
};

}  // namespace tilewave
