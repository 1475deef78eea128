// SPDX-License-Identifier: MIT
// What a vector addition computes: changing any of it changes the answer.
#pragma once

#include <string>

#include "tilewave/tile/element.hpp"

namespace tilewave {

/// out = a + b, one type throughout; the sum is made in f32, which for f16 and bf16 rounds as if it were exact.
struct VecAddSpec {
  DType x = DType::f32;  // f32, f16 or bf16

  friend constexpr bool operator==(const VecAddSpec&, const VecAddSpec&) = default;
};

/// `vec_add.f32`.
inline std::string name_of(const VecAddSpec& s) { return "vec_add." + std::string(name_of(s.x)); }

}  // namespace tilewave
