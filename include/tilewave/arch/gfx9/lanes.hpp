// SPDX-License-Identifier: MIT
// Lane ids, exchanges and number conversions that both CDNA rooms share.
#pragma once

#include <type_traits>

#include "tilewave/arch/backend.hpp"
#include "tilewave/core/dtype.hpp"
#include "tilewave/core/math.hpp"

#if defined(__HIP__)

namespace tilewave::gfx9 {

struct Lanes {
  TILEWAVE_DEVICE static int lane_id() { return static_cast<int>(__builtin_amdgcn_workitem_id_x() & 63u); }
  TILEWAVE_DEVICE static int block_lane_id() { return static_cast<int>(__builtin_amdgcn_workitem_id_x()); }
  TILEWAVE_DEVICE static int wave_id() {
    return __builtin_amdgcn_readfirstlane(static_cast<int>(__builtin_amdgcn_workitem_id_x() >> 6));
  }
  TILEWAVE_DEVICE static int block_id() { return static_cast<int>(__builtin_amdgcn_workgroup_id_x()); }
  TILEWAVE_DEVICE static int cluster_rank() { return 0; }
  template <class T>
  TILEWAVE_DEVICE static T* remote(T* shared, int) {
    return shared;
  }

  TILEWAVE_DEVICE static int uniform(int value) { return __builtin_amdgcn_readfirstlane(value); }
  /// A pointer needs nothing: LLVM keeps one that is used again.
  template <class T>
  TILEWAVE_DEVICE static T* opaque(T* pointer) {
    return pointer;
  }
  TILEWAVE_DEVICE static std::uint32_t opaque(std::uint32_t word) {
    asm("" : "+v"(word));
    return word;
  }
  /// It is volatile, because LLVM would otherwise move a loop-invariant value out of the loop.
  TILEWAVE_DEVICE static std::int32_t opaque(std::int32_t number) {
    asm volatile("" : "+v"(number));
    return number;
  }

  template <class T>
  TILEWAVE_DEVICE static T shuffle(T value, int lane) {
    static_assert(sizeof(T) == 4, "a lane exchanges one register of 4 bytes");
    return __builtin_bit_cast(T, __builtin_amdgcn_ds_bpermute(lane << 2, __builtin_bit_cast(int, value)));
  }
  template <class T>
  TILEWAVE_DEVICE static T shuffle_xor(T value, int mask) {
    return shuffle(value, lane_id() ^ mask);
  }
  /// DPP row_newbcast broadcasts within a row of 16 lanes, which is exactly one lane group of the atoms.
  template <int position, class T>
  TILEWAVE_DEVICE static T group_broadcast(T value) {
    static_assert(sizeof(T) == 4 && position >= 0 && position < 16,
                  "a DPP broadcast is of 4 bytes from one of a group's 16 lanes");
    return dpp<0x150 + position>(value);
  }
  /// This is a butterfly in DPP operands. After each step the lanes of a half group hold the same value, so any lane of
  /// the other half stands for the one at lane ^ mask.
  template <int lanes, class Op>
  TILEWAVE_DEVICE static float reduce(float value, Op op) {
    static_assert(lanes >= 1 && lanes <= 64 && (lanes & (lanes - 1)) == 0,
                  "a butterfly is over a power of two of lanes within a wave");
    if constexpr (lanes >= 2) value = step<0xb1>(value, op);    // quad_perm:[1,0,3,2]
    if constexpr (lanes >= 4) value = step<0x4e>(value, op);    // quad_perm:[2,3,0,1]
    if constexpr (lanes >= 8) value = step<0x141>(value, op);   // row_half_mirror
    if constexpr (lanes >= 16) value = step<0x128>(value, op);  // row_ror:8
    if constexpr (lanes <= 16) return value;
    value = step<0x142>(value, op);  // row_bcast:15 goes to the next row of 16 lanes; the odd rows are right then
    if constexpr (lanes == 32) {
      const float lower = read_lane<31>(value), upper = read_lane<63>(value);  // both at once, not one in each branch
      return lane_id() < 32 ? lower : upper;
    }
    value = step<0x143>(value, op);  // row_bcast:31 goes to the rows above; the last row is right then
    return read_lane<63>(value);
  }
  /// Such integers compare alike as doubles, in one operation at the full rate: none is NaN, and f64 has its
  /// subnormals. std::max would cost an operation for each operand, which LLVM makes quiet first.
  TILEWAVE_DEVICE static void order(std::uint64_t& a, std::uint64_t& b) {
    const std::uint64_t high = larger(a, b);
    asm("v_min_f64 %0, %1, %2" : "=v"(b) : "v"(a), "v"(b));
    a = high;
  }
  TILEWAVE_DEVICE static std::uint64_t larger(std::uint64_t a, std::uint64_t b) {
    std::uint64_t high;
    asm("v_max_f64 %0, %1, %2" : "=v"(high) : "v"(a), "v"(b));
    return high;
  }
  TILEWAVE_DEVICE static void order(std::uint32_t& a, std::uint32_t& b) {
    const std::uint32_t high = larger(a, b);
    b = a < b ? a : b;
    a = high;
  }
  TILEWAVE_DEVICE static std::uint32_t larger(std::uint32_t a, std::uint32_t b) { return a < b ? b : a; }
  /// This performs the steps of `reduce` as moves.
  template <int m, class T>
  TILEWAVE_DEVICE static T other_half(T value) {
    static_assert(sizeof(T) == 4 && m >= 1 && m < 64 && (m & (m - 1)) == 0,
                  "a DPP move is of 4 bytes, by a step of the butterfly");
    return dpp < m == 1 ? 0xb1 : m == 2 ? 0x4e : m == 4 ? 0x141 : m == 8 ? 0x128 : m == 16 ? 0x142 : 0x143 > (value);
  }
  /// Each bit of the key takes one vote of the wave.
  template <int bits>
  TILEWAVE_DEVICE static Peers peers(std::uint32_t key) {
    std::uint64_t same = ~std::uint64_t{0};
    TILEWAVE_UNROLL
    for (int bit = 0; bit < bits; ++bit) {
      const bool set = (key >> bit & 1u) != 0;
      const std::uint64_t others = __builtin_amdgcn_ballot_w64(set);
      same &= set ? others : ~others;
    }
    const auto low = static_cast<std::uint32_t>(same), high = static_cast<std::uint32_t>(same >> 32);
    const std::uint32_t before = __builtin_amdgcn_mbcnt_hi(high, __builtin_amdgcn_mbcnt_lo(low, 0u));
    return {static_cast<int>(before), __builtin_popcountll(same)};
  }
  TILEWAVE_DEVICE static int sum_up_to(int value) {
    value += shifted<0x111>(value);  // row_shr:1
    value += shifted<0x112>(value);
    value += shifted<0x114>(value);
    value += shifted<0x118>(value);
    value += shifted<0x142, 0xa>(value);        // row_bcast:15, to the odd rows
    return value + shifted<0x143, 0xc>(value);  // row_bcast:31, to the upper two
  }
  TILEWAVE_DEVICE static std::uint32_t total(std::uint32_t word) {
    return reduce_words(word, [](std::uint32_t a, std::uint32_t b) { return a + b; });
  }
  TILEWAVE_DEVICE static std::uint32_t highest(std::uint32_t word) {
    return reduce_words(word, [](std::uint32_t a, std::uint32_t b) { return larger(a, b); });
  }
  TILEWAVE_DEVICE static bool any(bool predicate) { return __builtin_amdgcn_ballot_w64(predicate) != 0; }

  TILEWAVE_DEVICE static void add_shared(std::uint32_t* shared, std::uint32_t n) {
    __hip_atomic_fetch_add(shared, n, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_WORKGROUP);
  }

  TILEWAVE_DEVICE static float subtract(float a, float b) {
#pragma clang fp contract(off)
    return a - b;
  }
  TILEWAVE_DEVICE static Vec<float, 2> subtract(const Vec<float, 2>& a, const Vec<float, 2>& b) {
#pragma clang fp contract(off)
    const Floats less = Floats{a[0], a[1]} - Floats{b[0], b[1]};
    return {{less[0], less[1]}};
  }
  TILEWAVE_DEVICE static Vec<float, 2> fused(const Vec<float, 2>& a, const Vec<float, 2>& b, const Vec<float, 2>& c) {
    const Floats sum = __builtin_elementwise_fma(Floats{a[0], a[1]}, Floats{b[0], b[1]}, Floats{c[0], c[1]});
    return {{sum[0], sum[1]}};
  }
  /// A product is quiet, see step(); LLVM knows that, so it does not make the value quiet again.
  TILEWAVE_DEVICE static Vec<float, 2> canonical(const Vec<float, 2>& a) {
    float one = 1.0f;
    asm("" : "+v"(one));
    const Floats same = Floats{a[0], a[1]} * Floats{one, one};
    return {{same[0], same[1]}};
  }
  TILEWAVE_DEVICE static float exp2(float x) { return __builtin_amdgcn_exp2f(x); }
  TILEWAVE_DEVICE static float log2(float x) { return __builtin_amdgcn_logf(x); }

  TILEWAVE_DEVICE static float rsqrt(float x) { return __builtin_amdgcn_rsqf(x); }       // 1 ulp
  TILEWAVE_DEVICE static float reciprocal(float x) { return __builtin_amdgcn_rcpf(x); }  // 1 ulp

  TILEWAVE_DEVICE static std::uint32_t pack_f16(float low, float high) {
    return __builtin_bit_cast(std::uint32_t, __builtin_convertvector((Floats{low, high}), Halves));
  }
  TILEWAVE_DEVICE static Vec<float, 2> widen_f16(std::uint32_t word) {
    const auto wide = __builtin_convertvector(__builtin_bit_cast(Halves, word), Floats);
    return {{wide[0], wide[1]}};
  }

  TILEWAVE_DEVICE static std::uint32_t pack_i8(float a, float b, float c, float d) {
    // Values are clamped first, as C++ has no cast of what an int cannot hold; v_med3_f32 makes a NaN the lowest.
    const auto narrow = [](float x) {
      return static_cast<std::uint32_t>(static_cast<int>(x == x ? __builtin_amdgcn_fmed3f(x, -127.0f, 127.0f) : 0.0f));
    };
    const std::uint32_t low = __builtin_amdgcn_perm(narrow(b), narrow(a), 0x0c0c0400u);
    const std::uint32_t high = __builtin_amdgcn_perm(narrow(d), narrow(c), 0x04000c0cu);
    return low | high;
  }

  template <int a, int b, int c, int d>
  TILEWAVE_DEVICE static std::uint32_t pick_bytes(std::uint32_t low, std::uint32_t high) {
    constexpr std::uint32_t selector = a | b << 8 | c << 16 | d << 24;
    return __builtin_amdgcn_perm(high, low, selector);
  }

  /// v_cvt_off_f32_i4 takes the low four bits of a byte and makes sixteenths of them. The high halves of its results
  /// are bf16.
  static constexpr float i4_unit = 0.0625f;
  template <DType type>
  TILEWAVE_DEVICE static std::uint32_t i4_zeros(int zero) {
    if constexpr (type == DType::bf16) return __builtin_bit_cast(std::uint32_t, 0.0625f * static_cast<float>(zero));
    return (0x6408u + static_cast<std::uint32_t>(zero)) * 0x10001u;
  }
  TILEWAVE_DEVICE static Chunk widen_i4(std::uint32_t word, std::uint32_t zeros = 0) {
    const float less = __builtin_bit_cast(float, zeros);
    const auto pair = [less](std::uint32_t codes) {
      return high_halves(__builtin_amdgcn_cvt_off_f32_i4(codes) - less,
                         __builtin_amdgcn_cvt_off_f32_i4(codes >> 8) - less);
    };
    const std::uint32_t high = opaque(word >> 4);  // LLVM would shift each code on its own
    return {{pair(word), pair(word >> 16), pair(high), pair(high >> 16)}};
  }
  /// The f16 1024 + 8 + value has the high byte 0x64 and the code below it.
  TILEWAVE_DEVICE static Chunk widen_i4_to_f16(std::uint32_t word, std::uint32_t zeros = 0x64086408u) {
    const auto less = [zeros](std::uint32_t pair) {
      return __builtin_bit_cast(std::uint32_t, __builtin_bit_cast(Halves, pair) - __builtin_bit_cast(Halves, zeros));
    };
    constexpr std::uint32_t high = 0x64646464u;
    const std::uint32_t codes = word ^ 0x88888888u, first = codes & 0x0f0f0f0fu, second = codes >> 4 & 0x0f0f0f0fu;
    return {{less(pick_bytes<0, 4, 1, 4>(first, high)), less(pick_bytes<2, 4, 3, 4>(first, high)),
             less(pick_bytes<0, 4, 1, 4>(second, high)), less(pick_bytes<2, 4, 3, 4>(second, high))}};
  }

  /// The low three bits of a code choose a byte of two tables, of 0 to 7 and of -8 to -1. `type` is the chip's fp8.
  template <DType type>
  TILEWAVE_DEVICE static Vec<std::uint32_t, 2> widen_i4_to_fp8_of(std::uint32_t word) {
    constexpr auto four = [](int first) {
      std::uint32_t bytes = 0;
      for (int i = 0; i < 4; ++i) bytes |= std::uint32_t{f32_to_fp8(type, static_cast<float>(first + i))} << 8 * i;
      return bytes;
    };
    constexpr std::uint32_t of0 = four(0), of4 = four(4), of_minus8 = four(-8), of_minus4 = four(-4);
    Vec<std::uint32_t, 2> wide;
    TILEWAVE_UNROLL
    for (int half = 0; half < 2; ++half) {
      const std::uint32_t codes = half == 0 ? word : word >> 4, chosen = codes & 0x07070707u;
      const std::uint32_t sign = codes >> 3 & 0x01010101u, negative = (sign << 8) - sign;
      wide[half] = (__builtin_amdgcn_perm(of_minus4, of_minus8, chosen) & negative) |
                   (__builtin_amdgcn_perm(of4, of0, chosen) & ~negative);
    }
    return wide;
  }

  /// The low three bits of a code, its magnitude, choose a byte of a table: the high bytes of bf16 and f16, and the low
  /// bytes of bf16. The low bytes of f16 are 0.
  TILEWAVE_DEVICE static Chunk widen_fp4(std::uint32_t word) {
    Chunk wide;
    TILEWAVE_UNROLL
    for (int half = 0; half < 2; ++half) {
      const std::uint32_t codes = half == 0 ? word : word >> 4, chosen = codes & 0x07070707u;
      const std::uint32_t high = __builtin_amdgcn_perm(0x40404040u, 0x3f3f3f00u, chosen) | (codes << 4 & 0x80808080u);
      const std::uint32_t low = __builtin_amdgcn_perm(0xc0804000u, 0xc0800000u, chosen);
      wide[2 * half] = pick_bytes<0, 4, 1, 5>(low, high);
      wide[2 * half + 1] = pick_bytes<2, 6, 3, 7>(low, high);
    }
    return wide;
  }
  /// The same from a table of bf16 to whose exponents the scale's is added. The code 0 stays 0.
  TILEWAVE_DEVICE static Chunk widen_fp4_scaled(std::uint32_t word, std::uint32_t scale) {
    using Pair = std::uint16_t __attribute__((ext_vector_type(2)));
    const auto add = static_cast<std::uint16_t>((scale - 127) << 7);
    const auto entries = [add](std::uint32_t two, bool first) TILEWAVE_INLINE_LAMBDA {
      return __builtin_bit_cast(std::uint32_t,
                                __builtin_bit_cast(Pair, two) + Pair{first ? std::uint16_t{0} : add, add});
    };
    const std::uint32_t of01 = entries(0x3f000000u, true), of23 = entries(0x3fc03f80u, false),
                        of45 = entries(0x40404000u, false), of67 = entries(0x40c04080u, false);
    const std::uint32_t high_of03 = pick_bytes<1, 3, 5, 7>(of01, of23), low_of03 = pick_bytes<0, 2, 4, 6>(of01, of23);
    const std::uint32_t high_of47 = pick_bytes<1, 3, 5, 7>(of45, of67), low_of47 = pick_bytes<0, 2, 4, 6>(of45, of67);
    Chunk wide;
    TILEWAVE_UNROLL
    for (int half = 0; half < 2; ++half) {
      const std::uint32_t codes = half == 0 ? word : word >> 4, chosen = codes & 0x07070707u;
      const std::uint32_t high = __builtin_amdgcn_perm(high_of47, high_of03, chosen) | (codes << 4 & 0x80808080u);
      const std::uint32_t low = __builtin_amdgcn_perm(low_of47, low_of03, chosen);
      wide[2 * half] = pick_bytes<0, 4, 1, 5>(low, high);
      wide[2 * half + 1] = pick_bytes<2, 6, 3, 7>(low, high);
    }
    return wide;
  }
  TILEWAVE_DEVICE static Chunk widen_fp4_to_f16(std::uint32_t word) {
    Chunk wide;
    TILEWAVE_UNROLL
    for (int half = 0; half < 2; ++half) {
      const std::uint32_t codes = half == 0 ? word : word >> 4;
      const std::uint32_t high =
          __builtin_amdgcn_perm(0x46444240u, 0x3e3c3800u, codes & 0x07070707u) | (codes << 4 & 0x80808080u);
      wide[2 * half] = pick_bytes<0, 4, 1, 5>(0, high);
      wide[2 * half + 1] = pick_bytes<2, 6, 3, 7>(0, high);
    }
    return wide;
  }

 protected:
  using Floats = float __attribute__((ext_vector_type(2)));
  using Halves = _Float16 __attribute__((ext_vector_type(2)));

  /// v_cvt_pk_fp8_f32 encodes the chip's own flavour, but makes NaN of values beyond the largest unless the MODE
  /// register says otherwise. v_med3_f32, which clamps, loses a NaN.
  template <DType type>
  TILEWAVE_DEVICE static std::uint32_t pack_fp8_of(float a, float b, float c, float d) {
    const auto clamped = [](float x) {
      return x == x ? __builtin_amdgcn_fmed3f(x, -fp8_max(type), fp8_max(type)) : __builtin_nanf("");
    };
    const int low = __builtin_amdgcn_cvt_pk_fp8_f32(clamped(a), clamped(b), 0, false);
    return static_cast<std::uint32_t>(__builtin_amdgcn_cvt_pk_fp8_f32(clamped(c), clamped(d), low, true));
  }
  TILEWAVE_DEVICE static std::uint32_t high_halves(float low, float high) {
    return __builtin_amdgcn_perm(__builtin_bit_cast(std::uint32_t, high), __builtin_bit_cast(std::uint32_t, low),
                                 0x07060302u);
  }

 private:
  /// Returns what a DPP control brings to the rows of a mask, and 0 elsewhere.
  template <int control, int rows = 0xf>
  TILEWAVE_DEVICE static int shifted(int value) {
    return __builtin_amdgcn_update_dpp(0, value, control, rows, 0xf, false);
  }
  /// Returns the value of the lane that a DPP control names, or 0 where there is none, in a form that fuses into its
  /// user.
  template <int control, class T>
  TILEWAVE_DEVICE static T dpp(T value) {
    const int bits = __builtin_bit_cast(int, value);
    return __builtin_bit_cast(T, __builtin_amdgcn_update_dpp(bits, bits, control, 0xf, 0xf, true));
  }
  template <int control, class Op>
  TILEWAVE_DEVICE static float step(float value, Op op) {
    if constexpr (std::is_same_v<Op, Max>) {
      // In IEEE mode v_max_f32 lets a signalling NaN win, so LLVM makes its operands quiet with a v_max_f32 each, into
      // which DPP does not fuse. A product is quiet, and DPP does fuse into it where the factor is a register.
      float one = 1.0f;
      asm("" : "+v"(one));
      return op(value, dpp<control>(value) * one);
    } else {
      asm("" : "+v"(value));  // a product contracted into the addition would differ from lane to lane
      return op(value, dpp<control>(value));
    }
  }
  /// Applies `reduce` over the wave, moving words as floats.
  template <class Op>
  TILEWAVE_DEVICE static std::uint32_t reduce_words(std::uint32_t word, const Op& op) {
    const auto of_bits = [&](float a, float b) {
      return __builtin_bit_cast(float, op(__builtin_bit_cast(std::uint32_t, a), __builtin_bit_cast(std::uint32_t, b)));
    };
    return __builtin_bit_cast(std::uint32_t, reduce<64>(__builtin_bit_cast(float, word), of_bits));
  }
  template <int lane>
  TILEWAVE_DEVICE static float read_lane(float value) {
    return __builtin_bit_cast(float, __builtin_amdgcn_readlane(__builtin_bit_cast(int, value), lane));
  }
};

}  // namespace tilewave::gfx9

#endif
