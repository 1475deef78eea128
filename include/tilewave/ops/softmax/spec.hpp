// SPDX-License-Identifier: MIT
// The spec says what a softmax computes. Changing it changes the answer.
#pragma once

#include <string>

#include "tilewave/tile/row_output.hpp"

namespace tilewave {

enum class SoftmaxKind : int {
  softmax,      // exp(x scale - lse)
  log_softmax,  // x scale - lse
};

constexpr const char* name_of(SoftmaxKind k) { return k == SoftmaxKind::softmax ? "softmax" : "log_softmax"; }
constexpr bool is_kind(SoftmaxKind k) { return k == SoftmaxKind::softmax || k == SoftmaxKind::log_softmax; }

/// Input and output have one type; all arithmetic is f32. Scale and masks are run-time values of the Problem.
struct SoftmaxSpec {
  SoftmaxKind kind = SoftmaxKind::softmax;
  DType x = DType::bf16;  // f32, f16 or bf16

  friend constexpr bool operator==(const SoftmaxSpec&, const SoftmaxSpec&) = default;
};

/// The name is like `log_softmax.bf16`.
inline std::string name_of(const SoftmaxSpec& s) {
  return std::string(name_of(s.kind)) + "." + std::string(name_of(s.x));
}

}  // namespace tilewave
