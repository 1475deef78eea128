// SPDX-License-Identifier: MIT
// Activation functions of one f32 value, as epilogues and the activation operation have them.
#pragma once

#include "tilewave/core/math.hpp"

namespace tilewave {

/// relu2: the square of relu. swigluoai is of a gate and an up value: gate clamped from above, up from both sides,
/// gate sigmoid(alpha gate) (up + 1), as GPT-OSS has it.
enum class ActivationKind : int { none, relu, silu, gelu, gelu_tanh, relu2, swigluoai };

constexpr bool is_activation_kind(ActivationKind k) {
  return k >= ActivationKind::none && k <= ActivationKind::swigluoai;
}
constexpr const char* name_of(ActivationKind k) {
  constexpr const char* names[] = {"none", "relu", "silu", "gelu", "gelu_tanh", "relu2", "swigluoai"};
  return is_activation_kind(k) ? names[static_cast<int>(k)] : "unknown";
}

/// NaN stays NaN. Of -inf, silu and both gelu are NaN, as x times a factor of 0 is; far below 0 they are -0. Relative
/// errors in the tails too: about 1e-6 for gelu, of exponentials 1e-7 times the exponent.
template <class B>
struct ActivationOf {
  template <ActivationKind kind>
  TILEWAVE_DEVICE static float apply(float x) {
    if constexpr (kind == ActivationKind::relu) return x < 0.0f ? 0.0f : x;
    if constexpr (kind == ActivationKind::relu2) return x < 0.0f ? 0.0f : x * x;
    if constexpr (kind == ActivationKind::silu) return x * sigmoid(x, 1.0f);
    if constexpr (kind == ActivationKind::gelu) {
      // For x above 0 that is x less what it would be of -x, which is small there.
      const float magnitude = min_of(abs_of(x), 1e30f);
      const float tail = magnitude * upper_tail(magnitude);
      return (x < 0.0f ? 0.0f * x : x) - tail;
    }
    if constexpr (kind == ActivationKind::gelu_tanh) {
      // 0.5 (1 + tanh(u)) = sigmoid(2 u)
      return x * sigmoid(x * (1.0f + 0.044715f * x * x), 2.0f * 0.7978845608f);
    }
    return x;
  }

  /// Clamped by selections: a minimum would lose a NaN.
  TILEWAVE_DEVICE static float swigluoai(float gate, float up, float alpha, float limit) {
    gate = gate > limit ? limit : gate;
    up = up > limit ? limit : up < -limit ? -limit : up;
    return gate * sigmoid(gate, alpha) * (up + 1.0f);
  }

 private:
  TILEWAVE_DEVICE static float sigmoid(float x, float factor) {
    return B::reciprocal(1.0f + B::exp2(-log2_e * factor * x));
  }
  /// The share of a normal distribution beyond x standard deviations, x >= 0: exp(-x^2 / 2) t p(t) with
  /// t = 1 / (1 + 0.36 x), p fitted for the least relative error up to x = 13.5, 8e-7, where it underflows.
  TILEWAVE_DEVICE static float upper_tail(float x) {
    const float t = B::reciprocal(1.0f + 0.36f * x);
    const float high = ((0.0473610498f * t - 0.180806965f) * t + 0.182370886f) * t + 0.0255751312f;
    const float p = ((high * t + 0.140074357f) * t + 0.141707763f) * t + 0.143717632f;
    return t * p * B::exp2(-0.5f * log2_e * x * x);
  }
};

}  // namespace tilewave
