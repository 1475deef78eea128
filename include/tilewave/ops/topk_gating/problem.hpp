// SPDX-License-Identifier: MIT
// One call of a choice of experts: raw pointers, extents, int64 element strides.
#pragma once

#include "tilewave/core/status.hpp"
#include "tilewave/ops/topk_gating/spec.hpp"

namespace tilewave {

/// For every token the topk experts that score best, best first, of equals that with the lower index. With a bias,
/// score + bias in f32 is what they are chosen by, and their scores without it are the weights; without one the order
/// is that of the logits, of which f32 scores may lose some. With groups > 1, group g being experts
/// [g, g + 1) * experts / groups, only the kept_groups groups that score best count, again by score + bias, of equals
/// the lower. With two_best the order is that of scores, bias or not; a group's score is the sum of its best two, of
/// +inf and -inf +inf: an expert that the bias forces wins, its neighbours masked or not.
///
/// A NaN ranks last, behind -inf and by index: indices are distinct and in range whatever the logits are. Its weight is
/// NaN, and so are all weights of the token that are renormalised with it; where it is not chosen it counts nothing.
/// An infinite logit makes softmax weights NaN; weights of nothing but -inf are 0. Outputs overlap nothing else.
struct TopkGatingProblem {
  TopkGatingSpec spec{};

  // tensors on the device; of a token's row columns are contiguous
  const void* logits = nullptr;                  // [tokens, experts]
  const float* bias = nullptr;                   // optional [experts]
  float* weights = nullptr;                      // [tokens, topk]
  std::int32_t* indices = nullptr;               // [tokens, topk]
  std::int32_t* token_expert_indices = nullptr;  // optional [tokens, topk]: slot * tokens + token

  GatingScore score = GatingScore::softmax;
  bool renormalise = false;  // a token's weights are divided by their sum, or 1e-20 if that is less
  float scale = 1.0f;        // of all weights, after that

  std::int32_t tokens = 0;
  std::int32_t experts = 0;  // 1 to 1024
  std::int32_t topk = 0;     // 1 to 16, and not more than there are experts in the groups that are kept
  std::int32_t groups = 1, kept_groups = 1;
  GroupScore group_score = GroupScore::best;

  std::int64_t logits_stride = 0, weights_stride = 0, indices_stride = 0;  // from a token to the next
  std::int64_t token_expert_stride = 0;
};

/// A token is a row, its experts the columns.
constexpr std::int32_t rows_of(const TopkGatingProblem& p) { return p.tokens; }
constexpr std::int32_t columns_of(const TopkGatingProblem& p) { return p.experts; }

}  // namespace tilewave
