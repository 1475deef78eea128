// SPDX-License-Identifier: MIT
// Elements of matrix instructions: their bits, their value, and where in its registers a lane holds them.
#pragma once

#include "sim/machine/lanes.hpp"
#include "sim/numbers/microfloat.hpp"

namespace tilewave::sim::matrix {

using u32 = std::uint32_t;
using i32 = std::int32_t;
using u64 = std::uint64_t;

struct Bf16 {
  using Sum = float;
  static constexpr int bits = 16;
  static float value(u64 x) { return std::bit_cast<float>(static_cast<u32>(x << 16)); }
};
struct F16 {
  using Sum = float;
  static constexpr int bits = 16;
  static float value(u64 x) { return static_cast<float>(Half::from_bits(static_cast<std::uint16_t>(x))); }
};
struct F32 {
  using Sum = float;
  static constexpr int bits = 32;
  static float value(u64 x) { return std::bit_cast<float>(static_cast<u32>(x)); }
};
struct F64 {
  using Sum = double;
  static constexpr int bits = 64;
  static double value(u64 x) { return std::bit_cast<double>(x); }
};
struct I8 {
  using Sum = u32;  // wraps around
  static constexpr int bits = 8;
  static u32 value(u64 x) { return static_cast<u32>(static_cast<i32>(static_cast<std::int8_t>(x))); }
};
template <bool bf8, bool ocp>
struct F8 {
  using Sum = float;
  static constexpr int bits = 8;
  static constexpr Arch arch = ocp ? Arch::gfx950 : Arch::gfx942;
  static inline const std::array<float, 256>& values = micro_values(bf8 ? bf8_format(arch) : fp8_format(arch));
  static float value(u64 x) { return values[x]; }
};

template <class Element>
typename Element::Sum element(const Wave& w, const Operand& a, int lane, int e) {
  if constexpr (Element::bits == 64) {
    return Element::value(w.v[a.reg + 2 * e][lane] | u64{w.v[a.reg + 2 * e + 1][lane]} << 32);
  } else {
    constexpr int per_word = 32 / Element::bits;
    const u64 word = w.v[a.reg + e / per_word][lane];
    return Element::value(word >> Element::bits * (e % per_word) & ((u64{1} << Element::bits) - 1));
  }
}

}  // namespace tilewave::sim::matrix
