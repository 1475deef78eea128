// SPDX-License-Identifier: MIT
// Conversions and the two transcendental functions of the host room.
#pragma once

#include "tilewave/core/config.hpp"

#if !TILEWAVE_ON_GPU_COMPILER

#include <array>
#include <cmath>
#include <cstdint>

#include "tilewave/core/dtype.hpp"
#include "tilewave/core/vec.hpp"

namespace tilewave::host {

template <DType Fp8>
struct Numbers {
  static_assert(is_fp8(Fp8));

  static float exp2(float x) { return std::exp2(x); }
  static float log2(float x) { return std::log2(x); }

  /// Two bf16 in one word, `low` in the low half; nearest, ties to even.
  static std::uint32_t pack_bf16(float low, float high) {
    return f32_to_bf16(low) | static_cast<std::uint32_t>(f32_to_bf16(high)) << 16;
  }
  /// Four fp8 codes (lowest byte first) as four bf16, exactly.
  static Vec<std::uint32_t, 2> widen_fp8(std::uint32_t word) {
    const auto widened = [word](int byte) { return std::uint32_t{table[word >> (8 * byte) & 0xffu]}; };
    return {{widened(0) | widened(1) << 16, widened(2) | widened(3) << 16}};
  }

 private:
  static constexpr std::array<std::uint16_t, 256> table = [] {
    std::array<std::uint16_t, 256> bits{};
    for (int code = 0; code < 256; ++code) bits[code] = f32_to_bf16(fp8_to_f32(Fp8, static_cast<std::uint8_t>(code)));
    return bits;
  }();
};

}  // namespace tilewave::host

#endif  // !TILEWAVE_ON_GPU_COMPILER
