// SPDX-License-Identifier: MIT
// What a sampling computes: changing any of it changes the answer.
#pragma once

#include <string>

#include "tilewave/core/dtype.hpp"

namespace tilewave {

/// Temperature, filters and seeds are values of the Problem, of each row its own.
struct SamplingSpec {
  DType x = DType::bf16;  // of the logits: f32, f16 or bf16

  friend constexpr bool operator==(const SamplingSpec&, const SamplingSpec&) = default;
};

/// `bf16`.
inline std::string name_of(const SamplingSpec& s) { return std::string(name_of(s.x)); }

}  // namespace tilewave
