// SPDX-License-Identifier: MIT
// One call of a reduction of experts' results: raw pointers, extents, int64 element strides.
#pragma once

#include "tilewave/core/status.hpp"
#include "tilewave/ops/moe_reduce/spec.hpp"

namespace tilewave {

inline constexpr std::int32_t moe_reduce_most_slots = 16;  // of a token

/// A slot is left out, its row of x and its weight NaN or not, where `slots` names no row of x, or where the mask of
/// its expert is 0 or topk_ids names no expert. A token without slots is its residual, or 0. Tables are packed.
struct MoeReduceProblem {
  MoeReduceSpec spec{};

  // tensors on the device; columns contiguous
  const void* x = nullptr;                    // [rows, topk, columns]; with slots [x_rows, columns]
  const std::int32_t* slots = nullptr;        // optional [rows, topk]: the row of x
  const float* weights = nullptr;             // optional [rows, topk]
  const std::int32_t* topk_ids = nullptr;     // [rows, topk], with expert_mask: the slot's expert
  const std::int32_t* expert_mask = nullptr;  // optional [experts]: 0 where it does not count
  const void* residual = nullptr;             // optional [rows, columns]
  void* out = nullptr;                        // [rows, columns]; may be residual, with its stride

  std::int32_t rows = 0, columns = 0;  // rows: tokens
  std::int32_t topk = 0;               // slots of a token: 1 to moe_reduce_most_slots
  std::int32_t x_rows = 0;             // with slots
  std::int32_t experts = 0;            // with expert_mask
  std::int64_t x_stride = 0;           // between rows of x: tokens, or with slots rows
  std::int64_t x_slot_stride = 0;      // between the slots of a token, without slots
  std::int64_t residual_stride = 0, out_stride = 0;
};

}  // namespace tilewave
