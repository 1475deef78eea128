// SPDX-License-Identifier: MIT
// The spec says what an activation computes. Changing it changes the answer.
#pragma once

#include <string>

#include "tilewave/tile/activation.hpp"
#include "tilewave/tile/row_output.hpp"

namespace tilewave {

/// The position of the values that multiply the activated ones (the gates). plain: there are none. halves: they are in
/// columns of their own behind all gates, or in a tensor of their own. interleaved: one follows each gate.
enum class Gating : int { plain, halves, interleaved };

constexpr bool is_gating(Gating g) { return g >= Gating::plain && g <= Gating::interleaved; }
constexpr const char* name_of(Gating g) {
  constexpr const char* names[] = {"plain", "halves", "interleaved"};
  return is_gating(g) ? names[static_cast<int>(g)] : "unknown";
}

/// out = f(x), or f(gate) up; f = none only multiplies. All arithmetic is f32, and RowOutput quantises the result. The
/// bounds of swigluoai are values of the Problem.
struct ActivationSpec {
  ActivationKind kind = ActivationKind::silu;
  Gating gating = Gating::halves;
  DType x = DType::bf16;          // f32, f16 or bf16
  DType out = DType::bf16;        // x's type, or i8, the architecture's fp8, or fp4
  Scaling scale = Scaling::none;  // per_tensor: the scale is given

  friend constexpr bool operator==(const ActivationSpec&, const ActivationSpec&) = default;

  constexpr bool gated() const { return gating != Gating::plain; }
  constexpr RowOutputSpec output() const { return {out, scale}; }
  /// True if a block may take a part of a row, because no value needs the others.
  constexpr bool tiled() const { return scale != Scaling::per_token; }
};

/// The name is like `silu.halves.bf16.fp8_e4m3fn.per_token`: function, gating, type of x, type of out, and the mode of
/// its scales if it has any.
inline std::string name_of(const ActivationSpec& s) {
  return std::string(name_of(s.kind)) + "." + name_of(s.gating) + "." + std::string(name_of(s.x)) + "." +
         std::string(name_of(s.out)) + (s.scale == Scaling::none ? "" : std::string(".") + name_of(s.scale));
}

}  // namespace tilewave
