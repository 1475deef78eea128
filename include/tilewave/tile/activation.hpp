// SPDX-License-Identifier: MIT
// Activation functions of one f32 value. Epilogues and the activation operation share them.
#pragma once

#include "tilewave/core/math.hpp"

namespace tilewave {

/// relu2 is the square of relu. swigluoai takes a gate and an up value, as in GPT-OSS: the gate is clamped from above
/// and up from both sides; the result is gate sigmoid(alpha gate) (up + 1).
enum class ActivationKind : int { none, relu, silu, gelu, gelu_tanh, relu2, swigluoai };

constexpr bool is_activation_kind(ActivationKind k) {
  return k >= ActivationKind::none && k <= ActivationKind::swigluoai;
}
constexpr const char* name_of(ActivationKind k) {
  constexpr const char* names[] = {"none", "relu", "silu", "gelu", "gelu_tanh", "relu2", "swigluoai"};
  return is_activation_kind(k) ? names[static_cast<int>(k)] : "unknown";
}

/// NaN stays NaN. Infinities take the limit: -inf gives 0 and inf gives inf, except that swigluoai clamps inf. The
/// result is also 0 where the factor of a finite x underflows. The relative error of gelu is 1.5e-6 + 1.5e-7 x^2, in
/// the tails too. That of the others is 5e-7 + 1.3e-7 times the exponent of their exponential.
template <class B>
struct ActivationOf {
  template <ActivationKind kind>
  TILEWAVE_DEVICE static float apply(float x) {
    if constexpr (kind == ActivationKind::relu) return x < 0.0f ? 0.0f : x;
    if constexpr (kind == ActivationKind::relu2) return x < 0.0f ? 0.0f : x * x;
    if constexpr (kind == ActivationKind::silu) return scaled(x, sigmoid(x, 1.0f));
    if constexpr (kind == ActivationKind::gelu) {
      const float tail = upper_tail(abs_of(x));
      return scaled(x, x > 0.0f ? 1.0f - tail : tail);
    }
    if constexpr (kind == ActivationKind::gelu_tanh) {
      // The kernel uses 0.5 (1 + tanh(u)) = sigmoid(2 u) with u = sqrt(2 / pi) (x + 0.044715 x^3).
      constexpr float linear = -2.0f * 0.7978845608f * log2_e, cubic = 0.044715f * linear;
      return scaled(x, B::reciprocal(1.0f + B::exp2(x * (cubic * x * x + linear))));
    }
    return x;
  }

  /// Values are clamped by selections, because a minimum would lose a NaN. A gate of -inf gives 0 where alpha is above
  /// 0.
  TILEWAVE_DEVICE static float swigluoai(float gate, float up, float alpha, float limit) {
    gate = gate > limit ? limit : gate;
    up = up > limit ? limit : up < -limit ? -limit : up;
    return scaled(gate, sigmoid(gate, alpha)) * (up + 1.0f);
  }

 private:
  /// Returns x factor, and 0 where the factor is 0: -inf times 0 would be NaN, although the function's limit at -inf is
  /// 0.
  TILEWAVE_DEVICE static float scaled(float x, float factor) { return factor == 0.0f ? 0.0f : x * factor; }
  TILEWAVE_DEVICE static float sigmoid(float x, float factor) {
    return B::reciprocal(1.0f + B::exp2(-log2_e * factor * x));
  }
  /// Returns the part of a normal distribution beyond x standard deviations, for x >= 0. It is exp(-x^2 / 2) p(t) with
  /// t = 1 / (1 + 0.292 x). p was fitted for the least relative error over 1 + x^2 / 10, which is 6e-7, up to x = 13.3,
  /// where the result underflows.
  TILEWAVE_DEVICE static float upper_tail(float x) {
    const float z = 0.849321783f * x;  // exp(-x^2 / 2) = exp2(-z^2)
    const float t = B::reciprocal(1.0f + 0.343803734f * z);
    const float high = ((-0.0934193060f * t + 0.296722561f) * t - 0.116705455f) * t + 0.202899143f;
    return (((high * t + 0.0905064642f) * t + 0.120215587f) * t - 0.000219288195f) * B::exp2(-(z * z));
  }
};

}  // namespace tilewave
