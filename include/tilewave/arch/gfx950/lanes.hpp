// SPDX-License-Identifier: MIT
#pragma once

#include "tilewave/arch/gfx9/lanes.hpp"

#if defined(__HIP__)

namespace tilewave::gfx950 {

struct Lanes : gfx9::Lanes {
  /// v_cvt_pk_bf16_f32, new with CDNA4: round to nearest, ties to even.
  TILEWAVE_DEVICE static std::uint32_t pack_bf16(float low, float high) {
    using Floats = float __attribute__((ext_vector_type(2)));
    using Bf16s = __bf16 __attribute__((ext_vector_type(2)));
    return __builtin_bit_cast(std::uint32_t, __builtin_convertvector((Floats{low, high}), Bf16s));
  }
};

}  // namespace tilewave::gfx950

#endif
