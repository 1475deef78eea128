// SPDX-License-Identifier: MIT
// The spec says what a choice of experts computes. Changing it changes the answer.
#pragma once

#include <string>

#include "tilewave/core/dtype.hpp"

namespace tilewave {

/// All arithmetic is f32. The kind of score, bias, groups and the number of choices are run-time values of the Problem,
/// since they change only a few operations of one kernel.
struct TopkGatingSpec {
  DType x = DType::bf16;  // type of the logits: f32, f16 or bf16

  friend constexpr bool operator==(const TopkGatingSpec&, const TopkGatingSpec&) = default;
};

/// The name is that of the type, like `bf16`.
inline std::string name_of(const TopkGatingSpec& s) { return std::string(name_of(s.x)); }

/// The score of a logit.
enum class GatingScore : int {
  softmax,  // exp(x - lse of the token's logits)
  sigmoid,  // 1 / (1 + exp(-x))
};
constexpr const char* name_of(GatingScore s) { return s == GatingScore::softmax ? "softmax" : "sigmoid"; }

/// The score of a group of experts.
enum class GroupScore : int {
  best,      // its best expert
  two_best,  // the sum of its two best
};
constexpr const char* name_of(GroupScore s) { return s == GroupScore::best ? "best" : "two_best"; }

inline constexpr int most_gating_experts = 1024, most_gating_choices = 16;

}  // namespace tilewave
