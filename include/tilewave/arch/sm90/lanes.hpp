// SPDX-License-Identifier: MIT
#pragma once

#include "tilewave/arch/backend.hpp"

#if defined(__CUDACC__)

namespace tilewave::sm90 {

struct Lanes {
  static constexpr unsigned all_lanes = 0xffffffffu;

  TILEWAVE_DEVICE static int lane_id() { return static_cast<int>(threadIdx.x & 31u); }
  TILEWAVE_DEVICE static int wave_id() { return __shfl_sync(all_lanes, static_cast<int>(threadIdx.x >> 5), 0); }
  TILEWAVE_DEVICE static int block_id() { return static_cast<int>(blockIdx.x); }

  TILEWAVE_DEVICE static int uniform(int value) { return __shfl_sync(all_lanes, value, 0); }

  template <class T>
  TILEWAVE_DEVICE static T shuffle(T value, int lane) {
    return __shfl_sync(all_lanes, value, lane);
  }
  template <class T>
  TILEWAVE_DEVICE static T shuffle_xor(T value, int mask) {
    return __shfl_xor_sync(all_lanes, value, mask);
  }
  template <int position, class T>
  TILEWAVE_DEVICE static T group_broadcast(T value) {
    constexpr AtomFacts atom = sm90_atom;
    return __shfl_sync(all_lanes, value, atom.lane_of(position, atom.group(lane_id())));
  }
  TILEWAVE_DEVICE static bool any(bool predicate) { return __any_sync(all_lanes, predicate); }

  TILEWAVE_DEVICE static float exp2(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
  }
  TILEWAVE_DEVICE static float log2(float x) {
    float y;
    asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
  }

  TILEWAVE_DEVICE static std::uint32_t pack_bf16(float low, float high) {
    std::uint32_t pair;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
    return pair;
  }
  /// e4m3fn -> f16 is exact and one instruction a pair; f16 -> f32 -> bf16 is exact for these values, NaN included.
  TILEWAVE_DEVICE static Vec<std::uint32_t, 2> widen_fp8(std::uint32_t word) {
    return {{widen_pair(static_cast<std::uint16_t>(word)), widen_pair(static_cast<std::uint16_t>(word >> 16))}};
  }

 private:
  TILEWAVE_DEVICE static std::uint32_t widen_pair(std::uint16_t codes) {
    std::uint32_t halves, pair;
    asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(halves) : "h"(codes));
    asm("{ .reg .b16 l, h; .reg .f32 fl, fh;\n"
        "  mov.b32 {l, h}, %1;\n"
        "  cvt.f32.f16 fl, l;\n"
        "  cvt.f32.f16 fh, h;\n"
        "  cvt.rn.bf16x2.f32 %0, fh, fl; }"
        : "=r"(pair)
        : "r"(halves));
    return pair;
  }
};

}  // namespace tilewave::sm90

#endif
