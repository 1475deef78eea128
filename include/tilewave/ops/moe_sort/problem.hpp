// SPDX-License-Identifier: MIT
// The problem describes one call of a sort of tokens by expert: raw pointers, extents, and int64 strides in elements.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tilewave/core/status.hpp"
#include "tilewave/ops/moe_sort/spec.hpp"

namespace tilewave {

/// A choice is a slot of a token. Choices are ordered by expert, then by token, then by slot: they are the rows of a
/// grouped product. The rows of each expert end at a multiple of `unit`, and the remaining rows are pads. Experts whose
/// mask is 0, and ids outside [0, experts), belong to another device: their choices get no row. The other experts are
/// local and counted from 0 in order.
///
/// Every element of every output is written, up to the capacity: rows beyond the last expert's are pads, too. Outputs
/// overlap nothing else.
struct MoeSortProblem {
  MoeSortSpec spec{};

  // tensors on the device
  const std::int32_t* topk_ids = nullptr;     // [tokens, topk]: experts
  const float* topk_weights = nullptr;        // [tokens, topk], with sorted_weights
  const std::int32_t* expert_mask = nullptr;  // optional [experts]
  std::int32_t* sorted_ids = nullptr;         // [capacity]: slot << 24 | token; for a pad topk << 24 | tokens
  // [ceil(capacity / unit)]: the local expert of `unit` rows; -1 if all are pads
  std::int32_t* sorted_expert_ids = nullptr;
  std::int32_t* num_tokens_post_pad = nullptr;  // [2]: the rows of all experts with their pads, and tokens
  float* sorted_weights = nullptr;              // optional [capacity]; 0 for a pad
  // optional [capacity]; -1 for a pad; the op `embedding` takes them as ids to gather rows
  std::int32_t* row_tokens = nullptr;
  // optional [experts + 1]: first row of each local expert, then the end of all rows
  std::int32_t* group_offsets = nullptr;
  std::int32_t* group_counts = nullptr;  // optional [experts]: choices of each local expert, then 0
  std::int32_t* rows = nullptr;          // optional [tokens, topk]: the row of each choice, or -1

  std::int32_t tokens = 0;    // below 2^24
  std::int32_t topk = 0;      // 1 to 16
  std::int32_t experts = 0;   // 1 to 1024
  std::int32_t unit = 1;      // 1 to 256
  std::int32_t capacity = 0;  // moe_sort_capacity or more

  std::int64_t ids_stride = 0, weights_stride = 0, rows_stride = 0;  // from one token to the next

  void* workspace = nullptr;  // see moe_sort_workspace_size; 16-byte aligned
  std::size_t workspace_bytes = 0;
};

/// Returns the most rows, pads included, that this many tokens can take.
constexpr std::int64_t moe_sort_capacity(const MoeSortProblem& p) {
  const std::int64_t choices = std::int64_t{p.tokens} * p.topk, experts = choices < p.experts ? choices : p.experts;
  return (choices + experts * (p.unit - 1)) / p.unit * p.unit;
}

}  // namespace tilewave
