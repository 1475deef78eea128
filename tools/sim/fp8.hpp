// SPDX-License-Identifier: MIT
// The 8-bit floats of the two chips, written from their definition and not shared with the library under test.
#pragma once

#include <array>
#include <cstdint>

#include "op.hpp"

namespace isa_sim {

/// gfx942 has the FNUZ flavours (bias one higher, no negative zero, 0x80 is the only NaN, no infinity); gfx950 the OCP
/// ones (e4m3fn: no infinity, NaN 0x7f / 0xff; e5m2: IEEE-like).
struct Fp8Format {
  int mantissa_bits;
  bool fnuz;

  constexpr int exponent_bits() const { return 7 - mantissa_bits; }
  constexpr int bias() const { return (1 << (exponent_bits() - 1)) - (fnuz ? 0 : 1); }
};

constexpr Fp8Format fp8_format(Arch arch) { return {3, arch == Arch::gfx942}; }
constexpr Fp8Format bf8_format(Arch arch) { return {2, arch == Arch::gfx942}; }

float fp8_decode(Fp8Format format, std::uint8_t code);
/// Nearest code, ties to even. Beyond the largest: the largest if `saturate`, else NaN (e5m2 OCP: infinity).
std::uint8_t fp8_encode(Fp8Format format, float value, bool saturate);

/// All 256 values, decoded once.
const std::array<float, 256>& fp8_values(Fp8Format format);

}  // namespace isa_sim
