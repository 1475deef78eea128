// SPDX-License-Identifier: MIT
// Activation functions in double: the oracle of tests and benchmarks, independent of the kernels' code.
#pragma once

#include <cmath>

#include "tilewave/tile/activation.hpp"

namespace tilewave::reference {

/// Of one value. Of swigluoai, which takes two, it is not.
inline double activated(ActivationKind kind, double x) {
  switch (kind) {
    case ActivationKind::none: break;
    case ActivationKind::relu: return x < 0 ? 0 : x;
    case ActivationKind::relu2: return x < 0 ? 0 : x * x;
    case ActivationKind::silu: return x / (1 + std::exp(-x));
    case ActivationKind::gelu: return 0.5 * x * std::erfc(-x / std::sqrt(2.0));
    case ActivationKind::gelu_tanh: {  // 0.5 (1 + tanh(u)) = 1 / (1 + exp(-2 u)), which keeps its digits far below 0
      const double u = std::sqrt(2 / std::acos(-1.0)) * (x + 0.044715 * x * x * x);
      return x / (1 + std::exp(-2 * u));
    }
    case ActivationKind::swigluoai: break;
  }
  return x;
}

/// A value times another, or swigluoai of both.
inline double gated(ActivationKind kind, double gate, double up, double alpha, double limit) {
  if (kind != ActivationKind::swigluoai) return activated(kind, gate) * up;
  if (gate > limit) gate = limit;
  if (up > limit) up = limit;
  if (up < -limit) up = -limit;
  return gate / (1 + std::exp(-alpha * gate)) * (up + 1);
}

}  // namespace tilewave::reference
