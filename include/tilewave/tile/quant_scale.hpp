// SPDX-License-Identifier: MIT
// The scales of quantised outputs, as row operations and the epilogue of a GEMM have them.
#pragma once

#include "tilewave/core/config.hpp"
#include "tilewave/core/dtype.hpp"

namespace tilewave {

/// What multiplies a quantised element to give the value back: nothing (a plain output), one number for the tensor (an
/// input), one a row, or one for every 128 columns of a row (both outputs: amax / largest code, 1 where amax is below
/// smallest_amax).
enum class ScaleMode : int { none, per_tensor, per_token, per_group };

inline constexpr int scale_group = 128;  // columns of one per_group scale
/// Below it a scale, 448 codes down, would be no normal f32 and its inverse could be infinite: such rows are zeros.
inline constexpr float smallest_amax = 0x1p-117f;

constexpr bool is_scale_mode(ScaleMode m) { return m >= ScaleMode::none && m <= ScaleMode::per_group; }

constexpr const char* name_of(ScaleMode m) {
  constexpr const char* names[] = {"none", "per_tensor", "per_token", "per_group"};
  return is_scale_mode(m) ? names[static_cast<int>(m)] : "unknown";
}

/// The largest magnitude that a quantised type holds.
TILEWAVE_HOST_DEVICE constexpr float largest_code(DType t) {
  return t == DType::i8 ? 127.0f : t == DType::fp8_e4m3fnuz ? 240.0f : 448.0f;
}

/// The scale of values of which `largest` is the largest magnitude, and what they are multiplied by before they are
/// rounded to the type.
TILEWAVE_HOST_DEVICE constexpr float quant_scale(DType type, float largest) {
  return largest >= smallest_amax ? largest / largest_code(type) : 1.0f;
}
TILEWAVE_HOST_DEVICE constexpr float quant_factor(DType type, float largest) {
  return largest >= smallest_amax ? largest_code(type) / largest : 1.0f;
}

}  // namespace tilewave
