// SPDX-License-Identifier: MIT
#pragma once

#include "tilewave/arch/gfx9/lanes.hpp"

#if defined(__HIP__)

namespace tilewave::gfx950 {

struct Lanes : gfx9::Lanes {
  /// v_cvt_pk_bf16_f32, new with CDNA4, rounds to nearest, ties to even.
  TILEWAVE_DEVICE static std::uint32_t pack_bf16(float low, float high) {
    using Bf16s = __bf16 __attribute__((ext_vector_type(2)));
    return __builtin_bit_cast(std::uint32_t, __builtin_convertvector((Floats{low, high}), Bf16s));
  }
  TILEWAVE_DEVICE static std::uint32_t round_bf16(float low, float high) { return pack_bf16(low, high); }
  TILEWAVE_DEVICE static Vec<std::uint32_t, 2> widen_i4_to_fp8(std::uint32_t word) {
    return widen_i4_to_fp8_of<DType::fp8_e4m3fn>(word);
  }
  TILEWAVE_DEVICE static std::uint32_t pack_fp8(float a, float b, float c, float d) {
    return pack_fp8_of<DType::fp8_e4m3fn>(a, b, c, d);
  }

  /// v_cvt_scalef32_pk_fp4_f32 makes one byte at a time.
  TILEWAVE_DEVICE static std::uint32_t pack_fp4(const Vec<float, 8>& v) {
    std::uint32_t word = 0;
    word = __builtin_amdgcn_cvt_scalef32_pk_fp4_f32(word, v[0], v[1], 1.0f, 0);
    word = __builtin_amdgcn_cvt_scalef32_pk_fp4_f32(word, v[2], v[3], 1.0f, 1);
    word = __builtin_amdgcn_cvt_scalef32_pk_fp4_f32(word, v[4], v[5], 1.0f, 2);
    return __builtin_amdgcn_cvt_scalef32_pk_fp4_f32(word, v[6], v[7], 1.0f, 3);
  }

  /// This is v_cvt_scalef32_2xpk16_fp6_f32, and the bf6 form below.
  TILEWAVE_DEVICE static Vec<std::uint32_t, 6> pack_e2m3(const Vec<float, 32>& v) {
    return pack_fp6(v, [](const Sixteen& even, const Sixteen& odd) TILEWAVE_INLINE_LAMBDA {
      return __builtin_amdgcn_cvt_scalef32_2xpk16_fp6_f32(even, odd, 1.0f);
    });
  }
  TILEWAVE_DEVICE static Vec<std::uint32_t, 6> pack_e3m2(const Vec<float, 32>& v) {
    return pack_fp6(v, [](const Sixteen& even, const Sixteen& odd) TILEWAVE_INLINE_LAMBDA {
      return __builtin_amdgcn_cvt_scalef32_2xpk16_bf6_f32(even, odd, 1.0f);
    });
  }

  /// v_cvt_scalef32_pk_bf16_fp8, new with CDNA4, converts a pair exactly in one operation; its scale is 1.
  TILEWAVE_DEVICE static Vec<std::uint32_t, 2> widen_fp8(std::uint32_t word) {
    return {{__builtin_bit_cast(std::uint32_t, __builtin_amdgcn_cvt_scalef32_pk_bf16_fp8(word, 1.0f, false)),
             __builtin_bit_cast(std::uint32_t, __builtin_amdgcn_cvt_scalef32_pk_bf16_fp8(word, 1.0f, true))}};
  }
  TILEWAVE_DEVICE static Vec<std::uint32_t, 2> widen_fp8_to_f16(std::uint32_t word) {
    return {{__builtin_bit_cast(std::uint32_t, __builtin_amdgcn_cvt_scalef32_pk_f16_fp8(word, 1.0f, false)),
             __builtin_bit_cast(std::uint32_t, __builtin_amdgcn_cvt_scalef32_pk_f16_fp8(word, 1.0f, true))}};
  }

  /// v_cvt_scalef32_pk_bf16_fp4 converts the two codes of a byte, the lower one first. It reads the
  /// exponent of its scale.
  TILEWAVE_DEVICE static Chunk widen_fp4_scaled(std::uint32_t word, std::uint32_t scale) {
    const float power = __builtin_bit_cast(float, scale << 23);
    const NeighbouringFp4 codes(word);
    return {{__builtin_bit_cast(std::uint32_t, __builtin_amdgcn_cvt_scalef32_pk_bf16_fp4(codes.first, power, 0)),
             __builtin_bit_cast(std::uint32_t, __builtin_amdgcn_cvt_scalef32_pk_bf16_fp4(codes.first, power, 2)),
             __builtin_bit_cast(std::uint32_t, __builtin_amdgcn_cvt_scalef32_pk_bf16_fp4(codes.last, power, 0)),
             __builtin_bit_cast(std::uint32_t, __builtin_amdgcn_cvt_scalef32_pk_bf16_fp4(codes.last, power, 2))}};
  }
  TILEWAVE_DEVICE static Chunk widen_fp4(std::uint32_t word) { return widen_fp4_scaled(word, 127); }
  TILEWAVE_DEVICE static Chunk widen_fp4_to_f16(std::uint32_t word) {
    const NeighbouringFp4 codes(word);
    return {{__builtin_bit_cast(std::uint32_t, __builtin_amdgcn_cvt_scalef32_pk_f16_fp4(codes.first, 1.0f, 0)),
             __builtin_bit_cast(std::uint32_t, __builtin_amdgcn_cvt_scalef32_pk_f16_fp4(codes.first, 1.0f, 2)),
             __builtin_bit_cast(std::uint32_t, __builtin_amdgcn_cvt_scalef32_pk_f16_fp4(codes.last, 1.0f, 0)),
             __builtin_bit_cast(std::uint32_t, __builtin_amdgcn_cvt_scalef32_pk_f16_fp4(codes.last, 1.0f, 2))}};
  }

 private:
  /// Eight codes in the order of widen_i4, with neighbours in bytes 0 and 2: values 0 to 3 in `first`, the others in
  /// `last`. Both are a v_bfi_b32, and bytes 1 and 3 are of no use.
  struct NeighbouringFp4 {
    std::uint32_t first, last;

    TILEWAVE_DEVICE explicit NeighbouringFp4(std::uint32_t word) {
      constexpr std::uint32_t low = 0x0f0f0f0fu;
      const std::uint32_t odd = word >> 4;
      first = (word & low) | (odd & ~low);
      last = (odd & low) | (word >> 8 & ~low);
    }
  };

  using Sixteen = float __attribute__((ext_vector_type(16)));

  /// The instruction interleaves the two sources. It writes its result before it has read all of them, which clang 22
  /// does not know (LLVM, pull request 188809), so the sources are kept until the result is there.
  template <class Convert>
  TILEWAVE_DEVICE static Vec<std::uint32_t, 6> pack_fp6(const Vec<float, 32>& v, const Convert& convert) {
    using Six = std::uint32_t __attribute__((ext_vector_type(6)));
    Sixteen even, odd;
    TILEWAVE_UNROLL
    for (int i = 0; i < 16; ++i) {
      even[i] = v[2 * i];
      odd[i] = v[2 * i + 1];
    }
    Six codes = convert(even, odd);
    asm("" : "+v"(codes) : "v"(even), "v"(odd));
    return {{codes[0], codes[1], codes[2], codes[3], codes[4], codes[5]}};
  }
};

}  // namespace tilewave::gfx950

#endif
