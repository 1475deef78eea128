// SPDX-License-Identifier: MIT
// The spec says what a quantisation or a dequantisation computes. Changing it changes the answer.
#pragma once

#include <string>

#include "tilewave/tile/row_output.hpp"

namespace tilewave {

enum class QuantKind : int {
  quantise,    // x (smooth) / scale as codes
  dequantise,  // codes * scale
};

constexpr const char* name_of(QuantKind k) { return k == QuantKind::quantise ? "quant" : "dequant"; }

/// One side holds values (f32, f16 or bf16), the other codes (i8, the architecture's fp8, or as an output fp4 or fp6).
/// The type of x decides which way the conversion goes. All arithmetic is f32. i8 codes are truncated toward zero;
/// others are rounded to nearest, ties to even. A value beyond the largest code becomes that code. Smooth scales and
/// the source of a tensor's scale are run-time choices of the Problem.
struct QuantSpec {
  DType x = DType::bf16;
  DType out = DType::fp8_e4m3fn;
  Scaling scale = Scaling::per_token;  // never none

  friend constexpr bool operator==(const QuantSpec&, const QuantSpec&) = default;

  constexpr QuantKind kind() const { return x == DType::i8 || is_fp8(x) ? QuantKind::dequantise : QuantKind::quantise; }
  /// Returns the output as the kernel sees it: dequantised values have no scale of their own.
  constexpr RowOutputSpec output() const { return {out, kind() == QuantKind::quantise ? scale : Scaling::none}; }
};

/// The name is like `quant.bf16.fp8_e4m3fn.per_token`: kind, type of x, type of out, scaling.
inline std::string name_of(const QuantSpec& s) {
  return std::string(name_of(s.kind())) + "." + std::string(name_of(s.x)) + "." + std::string(name_of(s.out)) + "." +
         name_of(s.scale);
}

}  // namespace tilewave
