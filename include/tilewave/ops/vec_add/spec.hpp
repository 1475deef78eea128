// SPDX-License-Identifier: MIT
// The spec says what a vector addition computes. Changing it changes the answer.
#pragma once

#include <string>

#include "tilewave/tile/element.hpp"

namespace tilewave {

/// out = a + b, with one type throughout. The sum is made in f32, which for f16 and bf16 rounds as if it were exact.
struct VecAddSpec {
  DType x = DType::f32;  // f32, f16 or bf16

  friend constexpr bool operator==(const VecAddSpec&, const VecAddSpec&) = default;
};

/// The name is like `vec_add.f32`.
inline std::string name_of(const VecAddSpec& s) { return "vec_add." + std::string(name_of(s.x)); }

}  // namespace tilewave
