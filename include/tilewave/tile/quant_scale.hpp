// SPDX-License-Identifier: MIT
// The scales of quantised outputs. Row operations and the epilogue of a GEMM share them.
#pragma once

#include "tilewave/core/config.hpp"
#include "tilewave/core/dtype.hpp"
#include "tilewave/core/scaling.hpp"

namespace tilewave {

/// The scalings of an output. A quantised element times its scale gives the value back.
///   none        the output is plain
///   per_tensor  the caller gives one scale for the tensor
///   per_token   the kernel finds one for each row: amax / largest code, and 1 where amax is below smallest_amax
///   per_group   the same for every 128 columns of a row
///   mx          the kernel finds a power of two (e8m0) for every 32 columns of a row; see mx_scale
constexpr bool is_output_scaling(Scaling s) {
  return s == Scaling::none || s == Scaling::per_tensor || s == Scaling::per_token || s == Scaling::per_group ||
         s == Scaling::mx;
}

inline constexpr int scale_group = 128;  // columns of one per_group scale
inline constexpr int mx_group = 32;      // columns of one mx scale
/// Rows with a smaller amax become zeros: their scale, amax / 448, would not be a normal f32, and its inverse could be
/// infinite.
inline constexpr float smallest_amax = 0x1p-117f;

/// Returns the columns that share one scale, for modes in which a row has several.
TILEWAVE_HOST_DEVICE constexpr int group_of(Scaling s) { return s == Scaling::mx ? mx_group : scale_group; }

/// The layout of mx scales. `rows` is [rows, columns / 32] with a stride. `shuffled` is the order that CDNA4's matrix
/// instructions take, see shuffled_scale: rows are padded to 32 and groups to 8, and the padding is not written.
enum class ScaleLayout : int { rows, shuffled };

/// The rule for the power of two that scales 32 values, where `largest` is their largest magnitude.
///   up       the least power under which no value saturates: largest / largest code, rounded up
///   floor    OCP MX's rule: the power of two of `largest` divided by that of the largest code. Values above the
///            largest code saturate: fp4 by up to 1.33 times, e4m3 and e3m2 by 1.14, e2m3 by 1.07
///   nearest  largest / 4 for fp4 and e2m3, / 16 for e3m2, / 448 for e4m3, rounded down, and up from 1.5 times the
///            power on: e4m3 saturates by up to 1.5 times, and fp6 leaves its largest codes unused
/// The scale is NaN for an infinity or a NaN, and 2^-127 for zeros.
enum class MxRounding : int { up, floor, nearest };

constexpr bool is_mx_rounding(MxRounding r) { return r >= MxRounding::up && r <= MxRounding::nearest; }
constexpr const char* name_of(MxRounding r) {
  constexpr const char* names[] = {"up", "floor", "nearest"};
  return is_mx_rounding(r) ? names[static_cast<int>(r)] : "unknown";
}

/// Returns the largest magnitude that a quantised type can hold.
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

/// quant_scale returns the scale of values whose largest magnitude is `largest`. quant_factor returns the number that
/// multiplies them before they are rounded to the type.
TILEWAVE_HOST_DEVICE constexpr float quant_scale(DType type, float largest) {
  return largest >= smallest_amax ? largest / largest_code(type) : 1.0f;
}
TILEWAVE_HOST_DEVICE constexpr float quant_factor(DType type, float largest) {
  return largest >= smallest_amax ? largest_code(type) / largest : 1.0f;
}

/// Returns what is added to the bits of `largest` so that its exponent becomes the scale's times the largest code's
/// power of two. `up` carries whatever exceeds the mantissa of the largest code. `nearest` carries from 1.5 on; for
/// e4m3 it takes back what is below 1.3125 = 1.5 * 448 / 512.
TILEWAVE_HOST_DEVICE constexpr std::int32_t mx_carry(DType type, MxRounding rounding) {
  constexpr std::int32_t mantissa = 0x7fffff;
  if (rounding == MxRounding::floor) return 0;
  if (rounding == MxRounding::nearest) return is_fp8(type) ? -0x280000 : 0x400000;
  return mantissa - (__builtin_bit_cast(std::int32_t, largest_code(type)) & mantissa);
}
/// Returns the e8m0 scale of 32 values whose largest magnitude is `largest`. `carry` comes from mx_carry.
TILEWAVE_HOST_DEVICE constexpr std::uint8_t mx_scale(DType type, std::int32_t carry, float largest) {
  const auto bits = __builtin_bit_cast(std::int32_t, largest);
  if (bits >= 0x7f800000) return 0xff;
  const int power = (__builtin_bit_cast(std::int32_t, largest_code(type)) >> 23) - 127;
  const int exponent = ((bits + carry) >> 23) - power;
  return static_cast<std::uint8_t>(exponent > 0 ? exponent : 0);
}
/// Returns 1 / scale, which multiplies the values; 0 for a NaN scale.
TILEWAVE_HOST_DEVICE constexpr float mx_factor(std::uint8_t scale) {
  return scale == 0xff ? 0.0f : __builtin_bit_cast(float, (254u - scale) << 23);
}

/// Returns the byte offset of a group's scale in a shuffled tensor with `eights` times 8 groups a row. The tensor has
/// tiles of 32 rows by 8 groups. A word holds four scales: two rows 16 apart by two groups 4 apart.
TILEWAVE_HOST_DEVICE constexpr std::int64_t shuffled_scale(std::int64_t row, int group, int eights) {
  const std::int64_t word = ((row / 32 * eights + group / 8) * 4 + group % 4) * 16 + row % 16;
  return word * 4 + group % 8 / 4 * 2 + row % 32 / 16;
}

}  // namespace tilewave
