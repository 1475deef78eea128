// SPDX-License-Identifier: MIT
// Floats of 8, 6 and 4 bits, written from their definition and not shared with the library under test.
#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "sim/machine/instruction.hpp"

namespace tilewave::sim {

/// gfx942 has the FNUZ flavours of fp8 and bf8 (bias one higher, no negative zero, 0x80 is the only NaN, no infinity);
/// gfx950 the OCP ones (e4m3fn: no infinity, NaN 0x7f / 0xff; e5m2: IEEE-like) and the MX types, where every code is a
/// number: fp6 (e2m3), bf6 (e3m2), fp4 (e2m1).
struct MicroFormat {
  int exponent_bits, mantissa_bits;
  bool fnuz = false;

  constexpr int bits() const { return 1 + exponent_bits + mantissa_bits; }
  constexpr int bias() const { return (1 << (exponent_bits - 1)) - (fnuz ? 0 : 1); }
  constexpr std::uint32_t sign() const { return 1u << (bits() - 1); }
  /// Magnitude of the largest number's code.
  constexpr int largest() const {
    return bits() < 8 ? (1 << (bits() - 1)) - 1 : fnuz ? 0x7f : mantissa_bits == 2 ? 0x7b : 0x7e;
  }
  constexpr bool operator==(const MicroFormat&) const = default;
};

constexpr MicroFormat fp8_format(Arch arch) { return {4, 3, arch == Arch::gfx942}; }
constexpr MicroFormat bf8_format(Arch arch) { return {5, 2, arch == Arch::gfx942}; }
constexpr MicroFormat fp6_format{2, 3}, bf6_format{3, 2}, fp4_format{2, 1};

/// Returns all values by code; they are decoded once.
const std::array<float, 256>& micro_values(MicroFormat format);

/// A value that is not representable goes to the nearest code, ties to even; with a seed, up as often as it is near the
/// upper neighbour: its fraction plus the seed's top `seed_bits` bits, as a fraction, reaches 1.
struct Rounding {
  bool saturate = false;  // beyond the largest: that one, else NaN (e5m2 OCP: infinity); 4 and 6 bits always saturate
  std::optional<std::uint32_t> seed{};
  int seed_bits = 32;
};
std::uint8_t micro_encode(MicroFormat format, double value, const Rounding& rounding);

}  // namespace tilewave::sim
