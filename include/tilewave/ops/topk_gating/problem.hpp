// SPDX-License-Identifier: MIT
// The problem describes one call of a choice of experts: raw pointers, extents, and int64 strides in elements.
#pragma once

#include "tilewave/core/status.hpp"
#include "tilewave/ops/topk_gating/spec.hpp"

namespace tilewave {

/// Chooses for every token the topk experts with the best scores, best first, and of equals the one with the lower
/// index. With a bias, experts are chosen by score + bias in f32, and their scores without it are the weights. Without
/// one, the order is that of the logits, because f32 scores may lose some differences. With groups > 1, group g has
/// experts [g, g + 1) * experts / groups. Only the kept_groups groups with the best scores count, again by score +
/// bias, and the lower one of equals. With two_best the order is that of scores, with or without a bias. A group's
/// score is the sum of its best two; for +inf and -inf it is +inf, so an expert that the bias forces wins, whether its
/// neighbours are masked or not.
///
/// A NaN ranks last, behind -inf, and NaNs by index: indices are distinct and in range whatever the logits are. Its
/// weight is NaN, and so are all weights of the token that are renormalised with it; where it is not chosen it counts
/// for nothing. An infinite logit makes softmax weights NaN; weights of nothing but -inf are 0. Outputs overlap nothing
/// else.
struct TopkGatingProblem {
  TopkGatingSpec spec{};

  // tensors on the device; the columns of a token's row are contiguous
  const void* logits = nullptr;                  // [tokens, experts]
  const float* bias = nullptr;                   // optional [experts]
  float* weights = nullptr;                      // [tokens, topk]
  std::int32_t* indices = nullptr;               // [tokens, topk]
  std::int32_t* token_expert_indices = nullptr;  // optional [tokens, topk]: slot * tokens + token

  GatingScore score = GatingScore::softmax;
  bool renormalise = false;  // a token's weights are divided by their sum, or by 1e-20 if that is less
  float scale = 1.0f;        // multiplies all weights after that

  std::int32_t tokens = 0;
  std::int32_t experts = 0;  // 1 to 1024
  std::int32_t topk = 0;     // 1 to 16, and no more than the experts in the groups that are kept
  std::int32_t groups = 1, kept_groups = 1;
  GroupScore group_score = GroupScore::best;

  std::int64_t logits_stride = 0, weights_stride = 0, indices_stride = 0;  // from one token to the next
  std::int64_t token_expert_stride = 0;
};

/// A token is a row, and its experts are the columns.
constexpr std::int32_t rows_of(const TopkGatingProblem& p) { return p.tokens; }
constexpr std::int32_t columns_of(const TopkGatingProblem& p) { return p.experts; }

}  // namespace tilewave
