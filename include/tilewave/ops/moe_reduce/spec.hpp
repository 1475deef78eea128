// SPDX-License-Identifier: MIT
// The spec says what a reduction of experts' results computes. Changing it changes the answer.
#pragma once

#include <string>

#include "tilewave/core/dtype.hpp"

namespace tilewave {

/// out[t] = sum over k of weight[t, k] x[t, k] + residual[t], in f32, by rising k, with the residual last and one type
/// throughout. The Problem says where rows of x are, and has weights, residual and the slots that count.
struct MoeReduceSpec {
  DType x = DType::bf16;  // f32, f16 or bf16

  friend constexpr bool operator==(const MoeReduceSpec&, const MoeReduceSpec&) = default;
};

/// The name is like `moe_reduce.bf16`.
inline std::string name_of(const MoeReduceSpec& s) { return "moe_reduce." + std::string(name_of(s.x)); }

}  // namespace tilewave
