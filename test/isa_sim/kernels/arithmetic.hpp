// SPDX-License-Identifier: MIT
// One function per kind of arithmetic, compiled for the chip and for the test: the simulator must agree with the CPU
// bit for bit. Only operations that both round the same way (no contraction, no transcendentals).
#pragma once

using u32 = unsigned;
using i32 = int;
using u64 = unsigned long long;
using i64 = long long;

#if defined(__HIP__)
#define BOTH __attribute__((device)) inline
#else
#define BOTH inline
#endif

BOTH u32 float_bits(float x) { return __builtin_bit_cast(u32, x); }
BOTH u64 double_bits(double x) { return __builtin_bit_cast(u64, x); }

BOTH u64 integers(u32 a, u32 b, u32 c) {
  const i32 sa = static_cast<i32>(a), sb = static_cast<i32>(b);
  u64 h = a + b * c;
  h = h * 31 + (a < b ? a - b : b - a);
  h = h * 31 + (a > b ? a - b : 0u);
  h = h * 31 + (sa < sb ? sa : sb) + (a > c ? a : c);
  h = h * 31 + (a >> (b & 31)) + (a << (c & 31)) + static_cast<u32>(sa >> (c & 31));
  h = h * 31 + (b ? a / b : 7u) + (c ? a % c : 9u);
  h = h * 31 + static_cast<u32>(sb > 1 ? sa / sb : 5) + static_cast<u32>(sb > 1 ? sa % sb : 3);
  h = h * 31 + static_cast<u32>(__builtin_popcount(a)) + (b ? static_cast<u32>(__builtin_clz(b)) : 32u) +
      (c ? static_cast<u32>(__builtin_ctz(c)) : 32u);
  h = h * 31 + ((a & b) | (~a & c)) + (a ^ ~b) + ((a | b) & ~c);
  h = h * 31 + (a >> 8 & 0xff) * (b & 0xff) + (a >> 24) + static_cast<u32>(static_cast<signed char>(c));
  h = h * 31 + static_cast<u32>(static_cast<short>(a) * static_cast<short>(b)) + (a >> 5 & 0x3ff) + (b << 3 | c >> 29);
  h = h * 31 + static_cast<unsigned short>(static_cast<unsigned short>(a) + static_cast<unsigned short>(b));
  return h;
}

BOTH u64 wide_integers(u64 a, u64 b, u32 c) {
  const i64 sa = static_cast<i64>(a), sb = static_cast<i64>(b);
  u64 h = a * b + c;
  h = h * 37 + (a >> (c & 63)) + (b << (c & 63)) + static_cast<u64>(sa >> (c & 63));
  h = h * 37 + (sa < sb ? a : b) + (a > b ? a - b : b - a);
  h = h * 37 + (b >> 32 ? a / (b >> 32) : 11) + (b ? a % b : 13);
  h = h * 37 + static_cast<u64>(i64{static_cast<i32>(c)} * static_cast<i32>(a >> 7));
  h = h * 37 + (a << 4) + b + ((b << 3) + a) * 5 + ((a << 1) + (b << 2)) * 7;
  const auto wide = (static_cast<unsigned __int128>(a) << 64 | b) - (static_cast<unsigned __int128>(b) << 64 | c);
  h = h * 37 + static_cast<u64>(wide >> 64) + static_cast<u64>((wide + a) >> 64) * 3;
  h = h * 37 + u64{c} * static_cast<u32>(b) + static_cast<u64>(__builtin_popcountll(a)) +
      (a ? static_cast<u64>(__builtin_clzll(a) + __builtin_ctzll(a)) : 0);
  return h;
}

BOTH u64 floats(float a, float b, float c) {
  u64 h = float_bits(a + b);
  h = h * 41 + float_bits(a * b) + float_bits(a - c);
  h = h * 41 + float_bits(__builtin_fmaf(a, b, c));
  h = h * 41 + float_bits(a / b);
  h = h * 41 + float_bits(__builtin_sqrtf(__builtin_fabsf(c)));
  h = h * 41 + float_bits(__builtin_floorf(a)) + float_bits(__builtin_ceilf(b)) + float_bits(__builtin_truncf(c));
  h = h * 41 + float_bits(__builtin_rintf(a)) + float_bits(__builtin_fabsf(b)) + float_bits(-c);
  h = h * 41 + float_bits(__builtin_copysignf(a, c));
  h = h * 41 + (a < b) + 2 * (a <= b) + 4 * (a == b) + 8 * (a != b) + 16 * (a >= b) + 32 * (a > b) + 64 * !(a < c) +
      128 * __builtin_isnan(a - c);
  h = h * 41 + float_bits(a < b ? c : a) + static_cast<u32>(b > 0 ? 3 : 5);
  const float small = __builtin_fabsf(a) < 1e9f ? a : 1.0f;
  h = h * 41 + static_cast<u32>(static_cast<i32>(small)) + static_cast<u32>(__builtin_fabsf(small));
  h = h * 41 + float_bits(static_cast<float>(float_bits(a))) +
      float_bits(static_cast<float>(static_cast<i32>(float_bits(b))));
  h = h * 41 + float_bits(static_cast<float>(u64{float_bits(a)} << 32 | float_bits(b)));
  return h;
}

BOTH u64 doubles(float a, float b, float c) {
  const double x = a, y = b, z = c;
  u64 h = double_bits(x + y);
  h = h * 43 + double_bits(x * y - z) + double_bits(__builtin_fma(x, y, z));
  h = h * 43 + float_bits(static_cast<float>(x * 1.1)) + (x < y) + 2 * (x == z);
  h = h * 43 + double_bits(__builtin_floor(x)) + double_bits(static_cast<double>(static_cast<i32>(float_bits(c))));
  return h;
}

BOTH u64 halves(float a, float b) {
  const _Float16 x = static_cast<_Float16>(a), y = static_cast<_Float16>(b);
  u64 h = __builtin_bit_cast(unsigned short, x);
  h = h * 47 + float_bits(static_cast<float>(x)) + float_bits(static_cast<float>(y));
  h = h * 47 + __builtin_bit_cast(unsigned short, static_cast<_Float16>(x * y));
  h = h * 47 + __builtin_bit_cast(unsigned short, static_cast<_Float16>(x + y));
  // Products and sums of mixed types, and into either half of a register.
  const float fx = static_cast<float>(x), fy = static_cast<float>(y);
  h = h * 47 + float_bits(__builtin_fmaf(fx, b, fy)) + float_bits(__builtin_fmaf(-fy, __builtin_fabsf(fx), a));
  h = h * 47 + __builtin_bit_cast(unsigned short, static_cast<_Float16>(__builtin_fmaf(fx, b, fy)));
  typedef _Float16 Pair __attribute__((vector_size(4)));
  const Pair pair = {static_cast<_Float16>(__builtin_fmaf(fx, fy, 1.0f)),
                     static_cast<_Float16>(__builtin_fmaf(fy, fy, fx))};
  h = h * 47 + __builtin_bit_cast(u32, pair);
  return h;
}

// Loops, branches inside branches and early exits: what EXEC handling is for.
BOTH u64 divergent(u32 a, u32 b) {
  u64 h = 1;
  for (u32 i = 0; i < (a & 15) + 1; ++i) {
    if ((b >> i & 1) == 0) {
      h = h * 3 + i;
      if (h % 7 == 2) continue;
    } else if (h > (u64{b} << 8)) {
      break;
    }
    for (u32 j = i; j < 9 && (h & 3) != 1; ++j) h += h >> 2 ^ j;
    h ^= a;
  }
  switch (a % 5) {
    case 0: return h * 2;
    case 1: return h + b;
    case 3: return ~h;
    default: return h - a;
  }
}

#undef BOTH
