// SPDX-License-Identifier: MIT
// The spec says what a normalisation computes. Changing it changes the answer.
#pragma once

#include <string>

#include "tilewave/tile/row_output.hpp"

namespace tilewave {

enum class NormKind : int {
  rms,    // x / sqrt(mean(x^2) + eps) * weight (+ bias)
  layer,  // (x - mean(x)) / sqrt(var(x) + eps) * weight (+ bias), biased variance
};

constexpr const char* name_of(NormKind k) { return k == NormKind::rms ? "rmsnorm" : "layernorm"; }
constexpr bool is_kind(NormKind k) { return k == NormKind::rms || k == NormKind::layer; }

/// All arithmetic is f32. Residual, bias, smooth scale and the output of statistics are run-time choices of the
/// Problem.
struct NormSpec {
  NormKind kind = NormKind::rms;
  DType x = DType::bf16;       // type of rows, residual and smooth scale: f32, f16 or bf16
  DType weight = DType::bf16;  // type of weight and bias: x's, or f32
  DType out = DType::bf16;     // x's type; with a scale i8, the architecture's fp8, or fp4
  Scaling scale = Scaling::none;

  friend constexpr bool operator==(const NormSpec&, const NormSpec&) = default;
};

/// The name is like `rmsnorm.bf16.w_bf16.fp8_e4m3fn.per_token`.
inline std::string name_of(const NormSpec& s) {
  return std::string(name_of(s.kind)) + "." + std::string(name_of(s.x)) + ".w_" + std::string(name_of(s.weight)) + "." +
         std::string(name_of(s.out)) + "." + name_of(s.scale);
}

}  // namespace tilewave
