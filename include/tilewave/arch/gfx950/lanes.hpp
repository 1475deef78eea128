// SPDX-License-Identifier: MIT
#pragma once

#include "tilewave/arch/gfx9/lanes.hpp"

#if defined(__HIP__)

namespace tilewave::gfx950 {

struct Lanes : gfx9::Lanes {
  /// v_cvt_pk_bf16_f32, new with CDNA4: round to nearest, ties to even.
  TILEWAVE_DEVICE static std::uint32_t pack_bf16(float low, float high) {
    using Bf16s = __bf16 __attribute__((ext_vector_type(2)));
    return __builtin_bit_cast(std::uint32_t, __builtin_convertvector((Floats{low, high}), Bf16s));
  }
  TILEWAVE_DEVICE static std::uint32_t round_bf16(float low, float high) { return pack_bf16(low, high); }
  TILEWAVE_DEVICE static std::uint32_t pack_fp8(float a, float b, float c, float d) {
    return pack_fp8_of<DType::fp8_e4m3fn>(a, b, c, d);
  }

  /// v_cvt_scalef32_pk_fp4_f32, a byte at a time.
  TILEWAVE_DEVICE static std::uint32_t pack_fp4(const Vec<float, 8>& v) {
    std::uint32_t word = 0;
    word = __builtin_amdgcn_cvt_scalef32_pk_fp4_f32(word, v[0], v[1], 1.0f, 0);
    word = __builtin_amdgcn_cvt_scalef32_pk_fp4_f32(word, v[2], v[3], 1.0f, 1);
    word = __builtin_amdgcn_cvt_scalef32_pk_fp4_f32(word, v[4], v[5], 1.0f, 2);
    return __builtin_amdgcn_cvt_scalef32_pk_fp4_f32(word, v[6], v[7], 1.0f, 3);
  }

  /// v_cvt_scalef32_pk_bf16_fp8, new with CDNA4, times a scale of 1: a pair in one operation, exactly.
  TILEWAVE_DEVICE static Vec<std::uint32_t, 2> widen_fp8(std::uint32_t word) {
    return {{__builtin_bit_cast(std::uint32_t, __builtin_amdgcn_cvt_scalef32_pk_bf16_fp8(word, 1.0f, false)),
             __builtin_bit_cast(std::uint32_t, __builtin_amdgcn_cvt_scalef32_pk_bf16_fp8(word, 1.0f, true))}};
  }
  TILEWAVE_DEVICE static Vec<std::uint32_t, 2> widen_fp8_to_f16(std::uint32_t word) {
    return {{__builtin_bit_cast(std::uint32_t, __builtin_amdgcn_cvt_scalef32_pk_f16_fp8(word, 1.0f, false)),
             __builtin_bit_cast(std::uint32_t, __builtin_amdgcn_cvt_scalef32_pk_f16_fp8(word, 1.0f, true))}};
  }
};

}  // namespace tilewave::gfx950

#endif
