// SPDX-License-Identifier: MIT
#pragma once

#include <type_traits>

#include "tilewave/arch/sm90/codes.hpp"
#include "tilewave/core/math.hpp"

#if defined(__CUDACC__)

namespace tilewave::sm90 {

struct Lanes : Codes {
  static constexpr unsigned all_lanes = 0xffffffffu;

  TILEWAVE_DEVICE static int lane_id() { return static_cast<int>(threadIdx.x & 31u); }
  TILEWAVE_DEVICE static int block_lane_id() { return static_cast<int>(threadIdx.x); }
  TILEWAVE_DEVICE static int wave_id() { return __shfl_sync(all_lanes, static_cast<int>(threadIdx.x >> 5), 0); }
  TILEWAVE_DEVICE static int block_id() { return static_cast<int>(blockIdx.x); }
  TILEWAVE_DEVICE static int cluster_rank() {
    int rank;
    asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    return rank;
  }
  /// mapa takes and returns generic addresses.
  template <class T>
  TILEWAVE_DEVICE static T* remote(T* shared, int rank) {
    T* there;
    asm("mapa.u64 %0, %1, %2;" : "=l"(there) : "l"(shared), "r"(rank));
    return there;
  }

  /// threadIdx.y is 0, which the compiler does not know. An index that depends on it keeps loads out of scalar
  /// registers, each of whose loads is waited for.
  TILEWAVE_DEVICE static int divergent(int value) { return value + static_cast<int>(threadIdx.y); }
  TILEWAVE_DEVICE static int uniform(int value) { return __shfl_sync(all_lanes, value, 0); }
  /// Without it nvcc repeats a pointer's 64-bit arithmetic in front of every access behind a branch.
  template <class T>
  TILEWAVE_DEVICE static T* opaque(T* pointer) {
    asm volatile("" : "+l"(pointer));
    return pointer;
  }
  /// ptxas sees through an empty statement, but it does not know that no grid has a second dimension.
  TILEWAVE_DEVICE static std::uint32_t opaque(std::uint32_t word) {
    asm("{ .reg .u32 zero;\n"
        "  mov.u32 zero, %%ctaid.y;\n"
        "  add.u32 %0, %0, zero; }"
        : "+r"(word));
    return word;
  }
  TILEWAVE_DEVICE static std::int32_t opaque(std::int32_t number) {
    asm volatile("" : "+r"(number));
    return number;
  }

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
  template <int lanes, class Op>
  TILEWAVE_DEVICE static float reduce(float value, Op op) {
    static_assert(lanes >= 1 && lanes <= 32 && (lanes & (lanes - 1)) == 0,
                  "a butterfly is over a power of two of lanes within a warp");
    TILEWAVE_UNROLL
    for (int mask = 1; mask < lanes; mask *= 2) {
      const float other = shuffle_xor(value, mask);
      if constexpr (std::is_same_v<Op, Sum>) {
        value = __fadd_rn(value, other);  // a product contracted into the addition would differ from lane to lane
      } else {
        value = op(value, other);
      }
    }
    return value;
  }
  /// Such integers compare alike as doubles, since none is NaN and f64 has its subnormals. That is one comparison,
  /// outside the unit that selects; for integers ptxas makes four, two for each result.
  TILEWAVE_DEVICE static void order(std::uint64_t& a, std::uint64_t& b) {
    const bool swap = below(a, b);
    const std::uint64_t high = swap ? b : a;
    b = swap ? a : b;
    a = high;
  }
  TILEWAVE_DEVICE static std::uint64_t larger(std::uint64_t a, std::uint64_t b) { return below(a, b) ? b : a; }
  TILEWAVE_DEVICE static void order(std::uint32_t& a, std::uint32_t& b) {
    const std::uint32_t high = larger(a, b);
    b = a < b ? a : b;
    a = high;
  }
  TILEWAVE_DEVICE static std::uint32_t larger(std::uint32_t a, std::uint32_t b) { return a < b ? b : a; }
  template <int m, class T>
  TILEWAVE_DEVICE static T other_half(T value) {
    return shuffle_xor(value, m);
  }
  template <int bits>
  TILEWAVE_DEVICE static Peers peers(std::uint32_t key) {
    unsigned same = all_lanes;
    TILEWAVE_UNROLL
    for (int bit = 0; bit < bits; ++bit) {
      const bool set = (key >> bit & 1) != 0;
      const unsigned of_set = __ballot_sync(all_lanes, set);
      same &= set ? of_set : ~of_set;
    }
    return {__popc(same & ((1u << lane_id()) - 1u)), __popc(same)};
  }
  TILEWAVE_DEVICE static int sum_up_to(int value) {
    TILEWAVE_UNROLL
    for (int step = 1; step < 32; step *= 2) {
      const int other = __shfl_up_sync(all_lanes, value, step);
      value += lane_id() >= step ? other : 0;
    }
    return value;
  }
  /// Each of these is one operation.
  TILEWAVE_DEVICE static std::uint32_t total(std::uint32_t word) { return __reduce_add_sync(all_lanes, word); }
  TILEWAVE_DEVICE static std::uint32_t highest(std::uint32_t word) { return __reduce_max_sync(all_lanes, word); }
  TILEWAVE_DEVICE static bool any(bool predicate) { return __any_sync(all_lanes, predicate); }

  TILEWAVE_DEVICE static void add_shared(std::uint32_t* shared, std::uint32_t n) { atomicAdd(shared, n); }

  TILEWAVE_DEVICE static float subtract(float a, float b) { return __fsub_rn(a, b); }
  TILEWAVE_DEVICE static Vec<float, 2> subtract(const Vec<float, 2>& a, const Vec<float, 2>& b) {
    return {{__fsub_rn(a[0], b[0]), __fsub_rn(a[1], b[1])}};
  }
  TILEWAVE_DEVICE static Vec<float, 2> fused(const Vec<float, 2>& a, const Vec<float, 2>& b, const Vec<float, 2>& c) {
    return {{__fmaf_rn(a[0], b[0], c[0]), __fmaf_rn(a[1], b[1], c[1])}};
  }
  TILEWAVE_DEVICE static Vec<float, 2> canonical(const Vec<float, 2>& a) { return a; }
  template <DType type>
  TILEWAVE_DEVICE static std::uint32_t larger_pair(std::uint32_t a, std::uint32_t b) {
    static_assert(type == DType::bf16 || type == DType::f16, "pairs are of bf16 or f16");
    std::uint32_t pair;
    if constexpr (type == DType::bf16) {
      asm("max.bf16x2 %0, %1, %2;" : "=r"(pair) : "r"(a), "r"(b));
    } else {
      asm("max.f16x2 %0, %1, %2;" : "=r"(pair) : "r"(a), "r"(b));
    }
    return pair;
  }
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

  /// The error is at most 2 ulp (CUDA programming guide, "Intrinsic functions").
  TILEWAVE_DEVICE static float rsqrt(float x) {
    float y;
    asm("rsqrt.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
  }
  TILEWAVE_DEVICE static float reciprocal(float x) {
    float y;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
  }

  TILEWAVE_DEVICE static std::uint32_t pack_bf16(float low, float high) {
    std::uint32_t pair;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
    return pair;
  }
  TILEWAVE_DEVICE static std::uint32_t round_bf16(float low, float high) { return pack_bf16(low, high); }

  TILEWAVE_DEVICE static std::uint32_t pack_f16(float low, float high) {
    std::uint32_t pair;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
    return pair;
  }
  TILEWAVE_DEVICE static Vec<float, 2> widen_f16(std::uint32_t word) {
    Vec<float, 2> wide;
    asm("{ .reg .b16 l, h;\n"
        "  mov.b32 {l, h}, %2;\n"
        "  cvt.f32.f16 %0, l;\n"
        "  cvt.f32.f16 %1, h; }"
        : "=f"(wide[0]), "=f"(wide[1])
        : "r"(word));
    return wide;
  }

  /// satfinite clamps infinities, too, and makes every NaN 0x7f (PTX ISA, cvt).
  TILEWAVE_DEVICE static std::uint32_t pack_fp8(float a, float b, float c, float d) {
    std::uint32_t word;
    asm("{ .reg .b16 l, h;\n"
        "  cvt.rn.satfinite.e4m3x2.f32 l, %2, %1;\n"
        "  cvt.rn.satfinite.e4m3x2.f32 h, %4, %3;\n"
        "  mov.b32 %0, {l, h}; }"
        : "=r"(word)
        : "f"(a), "f"(b), "f"(c), "f"(d));
    return word;
  }
  /// cvt.rzi saturates and makes NaN 0. cvt.pack.sat clamps the upper end; max clamps the lower end, which would
  /// otherwise be -128.
  TILEWAVE_DEVICE static std::uint32_t pack_i8(float a, float b, float c, float d) {
    std::uint32_t word;
    asm("{ .reg .b32 high;\n"
        "  cvt.pack.sat.s8.s32.b32 high, %4, %3, 0;\n"
        "  cvt.pack.sat.s8.s32.b32 %0, %2, %1, high; }"
        : "=r"(word)
        : "r"(truncated(a)), "r"(truncated(b)), "r"(truncated(c)), "r"(truncated(d)));
    return word;
  }

  /// e4m3fn -> f16 is exact and one instruction a pair. f16 -> f32 -> bf16 is exact for these values, NaN included.
  TILEWAVE_DEVICE static Vec<std::uint32_t, 2> widen_fp8(std::uint32_t word) {
    return {{widen_pair(static_cast<std::uint16_t>(word)), widen_pair(static_cast<std::uint16_t>(word >> 16))}};
  }

  TILEWAVE_DEVICE static Vec<std::uint32_t, 2> widen_fp8_to_f16(std::uint32_t word) {
    return {{widen_pair_to_f16(static_cast<std::uint16_t>(word)),
             widen_pair_to_f16(static_cast<std::uint16_t>(word >> 16))}};
  }

  TILEWAVE_DEVICE static std::uint32_t permute_bytes(std::uint32_t low, std::uint32_t high, std::uint32_t selector) {
    std::uint32_t word;
    asm("prmt.b32 %0, %1, %2, %3;" : "=r"(word) : "r"(low), "r"(high), "r"(selector));
    return word;
  }

 private:
  TILEWAVE_DEVICE static bool below(std::uint64_t a, std::uint64_t b) {
    return __builtin_bit_cast(double, a) < __builtin_bit_cast(double, b);
  }
  TILEWAVE_DEVICE static int truncated(float x) {
    int i;
    asm("{ .reg .s32 i;\n"
        "  cvt.rzi.s32.f32 i, %1;\n"
        "  max.s32 %0, i, -127; }"
        : "=r"(i)
        : "f"(x));
    return i;
  }
  TILEWAVE_DEVICE static std::uint32_t widen_pair_to_f16(std::uint16_t codes) {
    std::uint32_t halves;
    asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(halves) : "h"(codes));
    return halves;
  }
  TILEWAVE_DEVICE static std::uint32_t widen_pair(std::uint16_t codes) {
    const std::uint32_t halves = widen_pair_to_f16(codes);
    std::uint32_t pair;
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
