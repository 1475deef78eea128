// SPDX-License-Identifier: MIT
// The scales of quantised outputs, as row operations and the epilogue of a GEMM have them.
#pragma once

#include "tilewave/core/config.hpp"
#include "tilewave/core/dtype.hpp"
#include "tilewave/core/scaling.hpp"

namespace tilewave {

// Row operations and the epilogue of a GEMM take Scaling none (a plain output), per_tensor (the caller gives the
// scale), per_token and per_group (the kernel finds it: amax / largest code, or 1 if amax is below smallest_amax), and
// mx (a power of two, see mx_scale).

inline constexpr int scale_group = 128;  // columns of one per_group scale
inline constexpr int mx_group = 32;      // of one mx scale
/// Below it a scale, 448 codes down, would be no normal f32 and its inverse could be infinite: such rows are zeros.
inline constexpr float smallest_amax = 0x1p-117f;

constexpr bool is_output_scaling(Scaling s) {
  return s == Scaling::none || s == Scaling::per_tensor || s == Scaling::per_token || s == Scaling::per_group ||
         s == Scaling::mx;
}
/// Columns of a scale that a row has several of.
TILEWAVE_HOST_DEVICE constexpr int group_of(Scaling m) { return m == Scaling::mx ? mx_group : scale_group; }

/// Where mx scales lie. Rows: [rows, columns / 32], with a stride. Shuffled: as matrix instructions of CDNA4 take them,
/// see shuffled_scale; rows are padded to 32 and groups to 8, whose scales are not written.
enum class ScaleLayout : int { rows, shuffled };

/// Which power of two the scale of 32 values is, of which `largest` is the largest magnitude.
///   up       the least under which none saturates: largest / largest code, to the power of two at or above it
///   floor    OCP MX: largest's power of two by the largest code's. What is above that code saturates: fp4 by up to
///            1.33 times it, e4m3 and e3m2 1.14, e2m3 1.07
///   nearest  largest by 4 of fp4 and e2m3, 16 of e3m2 or 448 of e4m3, to the power of two below, or above from 1.5
///            times that on: e4m3 saturates by up to 1.5 times, and fp6 leaves its largest codes unused
/// NaN of an infinity or a NaN, 2^-127 of zeros.
enum class MxRounding : int { up, floor, nearest };

constexpr bool is_mx_rounding(MxRounding r) { return r >= MxRounding::up && r <= MxRounding::nearest; }
constexpr const char* name_of(MxRounding r) {
  constexpr const char* names[] = {"up", "floor", "nearest"};
  return is_mx_rounding(r) ? names[static_cast<int>(r)] : "unknown";
}

/// The largest magnitude that a quantised type holds.
TILEWAVE_HOST_DEVICE constexpr float largest_code(DType t) {
  switch (t) {
    case DType::i8: return 127.0f;
    case DType::fp8_e4m3fnuz: return 240.0f;
    case DType::fp4_e2m1: return 6.0f;
    case DType::fp6_e2m3: return 7.5f;
    case DType::fp6_e3m2: return 28.0f;
    default: return 448.0f;
  }
}

/// The scale of values of which `largest` is the largest magnitude, and what they are multiplied by before they are
/// rounded to the type.
TILEWAVE_HOST_DEVICE constexpr float quant_scale(DType type, float largest) {
  return largest >= smallest_amax ? largest / largest_code(type) : 1.0f;
}
TILEWAVE_HOST_DEVICE constexpr float quant_factor(DType type, float largest) {
  return largest >= smallest_amax ? largest_code(type) / largest : 1.0f;
}

/// What is added to the bits of `largest` so that its exponent becomes that of the scale times the largest code's power
/// of two: up carries what is above the largest code's mantissa, nearest 1.5 (of e4m3: takes back what is below
/// 1.3125 = 1.5 * 448 / 512).
TILEWAVE_HOST_DEVICE constexpr std::int32_t mx_carry(DType type, MxRounding rounding) {
  constexpr std::int32_t mantissa = 0x7fffff;
  if (rounding == MxRounding::floor) return 0;
  if (rounding == MxRounding::nearest) return is_fp8(type) ? -0x280000 : 0x400000;
  return mantissa - (__builtin_bit_cast(std::int32_t, largest_code(type)) & mantissa);
}
/// The e8m0 scale of 32 values of which `largest` is the largest magnitude; `carry` is mx_carry's.
TILEWAVE_HOST_DEVICE constexpr std::uint8_t mx_scale(DType type, std::int32_t carry, float largest) {
  const auto bits = __builtin_bit_cast(std::int32_t, largest);
  if (bits >= 0x7f800000) return 0xff;
  const int power = (__builtin_bit_cast(std::int32_t, largest_code(type)) >> 23) - 127;
  const int exponent = ((bits + carry) >> 23) - power;
  return static_cast<std::uint8_t>(exponent > 0 ? exponent : 0);
}
/// 1 / scale, by which values are multiplied; 0 of NaN.
TILEWAVE_HOST_DEVICE constexpr float mx_factor(std::uint8_t scale) {
  return scale == 0xff ? 0.0f : __builtin_bit_cast(float, (254u - scale) << 23);
}

/// Where the scale of a group of columns is in a shuffled tensor of `eights` times 8 groups a row: of tiles of 32 rows
/// and 8 groups, four to a word, two rows 16 apart by two groups 4 apart.
TILEWAVE_HOST_DEVICE constexpr std::int64_t shuffled_scale(std::int64_t row, int group, int eights) {
  const std::int64_t word = ((row / 32 * eights + group / 8) * 4 + group % 4) * 16 + row % 16;
  return word * 4 + group % 8 / 4 * 2 + row % 32 / 16;
}

}  // namespace tilewave
