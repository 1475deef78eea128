// SPDX-License-Identifier: MIT
// The problem describes one call of a reduction of experts' results: raw pointers, extents, and int64 strides in
// elements.
#pragma once

#include "tilewave/core/status.hpp"
#include "tilewave/ops/moe_reduce/spec.hpp"

namespace tilewave {

inline constexpr std::int32_t moe_reduce_most_slots = 16;  // slots of a token

/// A slot is left out, whether its row of x and its weight are NaN or not, in three cases: `slots` names no row of x,
/// topk_ids names no expert, or the mask of its expert is 0. A token without slots is its residual, or 0. Tables are
/// packed.
struct MoeReduceProblem {
  MoeReduceSpec spec{};

  // tensors on the device; columns contiguous
  const void* x = nullptr;                    // [rows, topk, columns]; with slots [x_rows, columns]
  const std::int32_t* slots = nullptr;        // optional [rows, topk]: the row of x
  const float* weights = nullptr;             // optional [rows, topk]
  const std::int32_t* topk_ids = nullptr;     // [rows, topk], with expert_mask: the slot's expert
  const std::int32_t* expert_mask = nullptr;  // optional [experts]: 0 for experts that do not count
  const void* residual = nullptr;             // optional [rows, columns]
  void* out = nullptr;                        // [rows, columns]; may be residual, with its stride

  std::int32_t rows = 0, columns = 0;  // rows are tokens
  std::int32_t topk = 0;               // slots of a token: 1 to moe_reduce_most_slots
  std::int32_t x_rows = 0;             // only with slots
  std::int32_t experts = 0;            // only with expert_mask
  std::int64_t x_stride = 0;           // between rows of x, which are tokens, or with slots rows
  std::int64_t x_slot_stride = 0;      // between the slots of a token, only without slots
  std::int64_t residual_stride = 0, out_stride = 0;
};

}  // namespace tilewave
