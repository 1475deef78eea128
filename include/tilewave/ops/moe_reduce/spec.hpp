// SPDX-License-Identifier: MIT
// What a reduction of experts' results computes: changing any of it changes the answer.
#pragma once

#include <string>

#include "tilewave/core/dtype.hpp"

namespace tilewave {

/// out[t] = sum over k of weight[t, k] x[t, k] + residual[t], in f32, by rising k, the residual last; one type
/// throughout. Where rows of x are, weights, which slots count and the residual are values of the Problem.
struct MoeReduceSpec {
  DType x = DType::bf16;  // f32, f16 or bf16

  friend constexpr bool operator==(const MoeReduceSpec&, const MoeReduceSpec&) = default;
};

/// `moe_reduce.bf16`.
inline std::string name_of(const MoeReduceSpec& s) { return "moe_reduce." + std::string(name_of(s.x)); }

}  // namespace tilewave
