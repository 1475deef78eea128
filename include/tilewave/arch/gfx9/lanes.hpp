// SPDX-License-Identifier: MIT
// Lane ids, exchanges and number conversions both CDNA rooms share.
#pragma once

#include "tilewave/arch/backend.hpp"

#if defined(__HIP__)

namespace tilewave::gfx9 {

struct Lanes {
  TILEWAVE_DEVICE static int lane_id() { return static_cast<int>(__builtin_amdgcn_workitem_id_x() & 63u); }
  TILEWAVE_DEVICE static int wave_id() {
    return __builtin_amdgcn_readfirstlane(static_cast<int>(__builtin_amdgcn_workitem_id_x() >> 6));
  }
  TILEWAVE_DEVICE static int block_id() { return static_cast<int>(__builtin_amdgcn_workgroup_id_x()); }

  TILEWAVE_DEVICE static int uniform(int value) { return __builtin_amdgcn_readfirstlane(value); }

  template <class T>
  TILEWAVE_DEVICE static T shuffle(T value, int lane) {
    static_assert(sizeof(T) == 4);
    return __builtin_bit_cast(T, __builtin_amdgcn_ds_bpermute(lane << 2, __builtin_bit_cast(int, value)));
  }
  template <class T>
  TILEWAVE_DEVICE static T shuffle_xor(T value, int mask) {
    return shuffle(value, lane_id() ^ mask);
  }
  /// DPP row_newbcast: a lane group of the atoms is exactly one DPP row of 16 lanes.
  template <int position, class T>
  TILEWAVE_DEVICE static T group_broadcast(T value) {
    static_assert(sizeof(T) == 4 && position >= 0 && position < 16);
    const int bits = __builtin_bit_cast(int, value);
    return __builtin_bit_cast(T, __builtin_amdgcn_update_dpp(bits, bits, 0x150 + position, 0xf, 0xf, true));
  }
  TILEWAVE_DEVICE static bool any(bool predicate) { return __builtin_amdgcn_ballot_w64(predicate) != 0; }

  TILEWAVE_DEVICE static float exp2(float x) { return __builtin_amdgcn_exp2f(x); }
  TILEWAVE_DEVICE static float log2(float x) { return __builtin_amdgcn_logf(x); }

  /// v_cvt_pk_f32_fp8 decodes the chip's own flavour; every fp8 value is exact in bf16, so the low half is zero.
  TILEWAVE_DEVICE static Vec<std::uint32_t, 2> widen_fp8(std::uint32_t word) {
    const auto low = __builtin_amdgcn_cvt_pk_f32_fp8(static_cast<int>(word), false);
    const auto high = __builtin_amdgcn_cvt_pk_f32_fp8(static_cast<int>(word), true);
    return {{high_halves(low[0], low[1]), high_halves(high[0], high[1])}};
  }

 protected:
  TILEWAVE_DEVICE static std::uint32_t high_halves(float low, float high) {
    return __builtin_amdgcn_perm(__builtin_bit_cast(std::uint32_t, high), __builtin_bit_cast(std::uint32_t, low),
                                 0x07060302u);
  }
};

}  // namespace tilewave::gfx9

#endif
