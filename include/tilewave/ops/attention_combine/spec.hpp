// SPDX-License-Identifier: MIT
// What a combine of partial attention results computes. Changing a field changes the answer.
#pragma once

#include <string>

#include "tilewave/core/dtype.hpp"

namespace tilewave {

/// out[row, head, :] = sum_p w_p x[p, row, head, :] with w_p = exp(lse_p - lse) and lse = log sum_p exp(lse_p). This is
/// attention over the union of the partials' keys, from each partial's own normalised output and its lse, a natural
/// log. All arithmetic is f32.
struct AttentionCombineSpec {
  DType x = DType::f32;     // of the partial outputs: f32, f16 or bf16
  DType out = DType::bf16;  // f32, f16 or bf16

  friend constexpr bool operator==(const AttentionCombineSpec&, const AttentionCombineSpec&) = default;
};

/// `f32.bf16`: the type of the partials, then of the output.
inline std::string name_of(const AttentionCombineSpec& s) {
  return std::string(name_of(s.x)) + "." + std::string(name_of(s.out));
}

}  // namespace tilewave
