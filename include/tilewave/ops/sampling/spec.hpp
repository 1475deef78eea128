// SPDX-License-Identifier: MIT
// The spec says what a sampling computes. Changing it changes the answer.
#pragma once

#include <string>

#include "tilewave/core/dtype.hpp"

namespace tilewave {

/// Temperature, filters and seeds are values of the Problem, and each row has its own.
struct SamplingSpec {
  DType x = DType::bf16;  // type of the logits: f32, f16 or bf16

  friend constexpr bool operator==(const SamplingSpec&, const SamplingSpec&) = default;
};

/// The name is that of the type, like `bf16`.
inline std::string name_of(const SamplingSpec& s) { return std::string(name_of(s.x)); }

}  // namespace tilewave
