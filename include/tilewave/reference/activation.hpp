// SPDX-License-Identifier: MIT
// Activation functions in double. They are the oracle of tests and benchmarks, and independent of the kernels' code.
#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

#include "tilewave/ops/activation/problem.hpp"
#include "tilewave/reference/rows.hpp"

namespace tilewave::reference {

/// Returns the function of one value, so not swigluoai, which takes two. For -inf it returns the limit, which is 0: the
/// formulas there are -inf times 0.
inline double activated(ActivationKind kind, double x) {
  if (std::isinf(x) && x < 0 && kind != ActivationKind::none) return 0;
  switch (kind) {
    case ActivationKind::none: break;
    case ActivationKind::relu: return x < 0 ? 0 : x;
    case ActivationKind::relu2: return x < 0 ? 0 : x * x;
    case ActivationKind::silu: return x / (1 + std::exp(-x));
    case ActivationKind::gelu: return 0.5 * x * std::erfc(-x / std::sqrt(2.0));
    case ActivationKind::gelu_tanh: {  // 0.5 (1 + tanh(u)) = 1 / (1 + exp(-2 u)) keeps its digits far below 0
      const double u = std::sqrt(2 / std::acos(-1.0)) * (x + 0.044715 * x * x * x);
      return x / (1 + std::exp(-2 * u));
    }
    case ActivationKind::swigluoai: break;
  }
  return x;
}

/// Returns the activated gate times up, or swigluoai of both. The limit of swigluoai for a gate of -inf is 0 where
/// alpha is above 0.
inline double gated(ActivationKind kind, double gate, double up, double alpha, double limit) {
  if (kind != ActivationKind::swigluoai) return activated(kind, gate) * up;
  if (gate > limit) gate = limit;
  if (up > limit) up = limit;
  if (up < -limit) up = -limit;
  const double sigmoid = 1 / (1 + std::exp(-alpha * gate));
  return (sigmoid == 0 ? 0 : gate * sigmoid) * (up + 1);
}

/// Returns the error that f32 may cause, relative to the value: roundings, the fit of gelu, and the rounded exponent of
/// an exponential.
inline double activation_error(ActivationKind kind, double x) {
  if (kind == ActivationKind::gelu) return 1.5e-6 + 1.5e-7 * std::min(x * x, 2e4);
  if (kind == ActivationKind::gelu_tanh) return 2e-6 + 2e-7 * std::min(x * x, 2e4);
  return 5e-7 + 2e-7 * std::min(2 * std::abs(x), 2e2);
}

struct ActivationRow {
  std::vector<double> values;  // values before the output's rounding or quantisation
  std::vector<double> errors;  // error of each value, see activation_error
};

/// Returns one row of a problem whose tensors are on the host.
inline ActivationRow activation_row(const ActivationProblem& p, std::int32_t row) {
  const ActivationSpec& s = p.spec;
  const std::int64_t x = row_offset(row, p.inner_rows, p.x_strides);
  const std::int64_t step = s.gating == Gating::interleaved ? 2 : 1;
  ActivationRow r;
  for (std::int32_t c = 0; c < p.columns; ++c) {
    const double gate = element(s.x, p.x, x + step * c);
    if (s.gating == Gating::plain) {
      r.values.push_back(activated(s.kind, gate));
    } else {
      const double up = s.gating == Gating::interleaved ? element(s.x, p.x, x + step * c + 1)
                        : p.up == nullptr               ? element(s.x, p.x, x + p.columns + c)
                                          : element(s.x, p.up, row_offset(row, p.inner_rows, p.up_strides) + c);
      r.values.push_back(gated(s.kind, gate, up, p.alpha, p.limit));
    }
    r.errors.push_back(activation_error(s.kind, s.kind == ActivationKind::swigluoai ? std::min(gate, 7.0) : gate));
  }
  return r;
}

}  // namespace tilewave::reference
