// SPDX-License-Identifier: MIT
// The problem describes one call of a rotary position embedding of q and k: raw pointers, extents, and int64 strides in
// elements.
#pragma once

#include <cstdint>

#include "tilewave/core/status.hpp"
#include "tilewave/ops/rope/spec.hpp"
#include "tilewave/tile/index_list.hpp"

namespace tilewave {

/// The strides of [tokens, heads, head_size], in elements; the last dimension is contiguous. For slices of a fused qkv
/// tensor `token` is its row.
struct HeadStrides {
  std::int64_t token = 0, head = 0;

  friend constexpr bool operator==(const HeadStrides&, const HeadStrides&) = default;
};

/// The first `rotary` dimensions of each head are rotated by the angles of its token's position, and the others are
/// copied. A position outside [0, table_rows) makes the rotated dimensions NaN, since the host does not read positions.
/// q_out may be q and k_out may be k, with their strides; outputs overlap nothing else.
struct RopeProblem {
  RopeSpec spec{};

  // tensors on the device
  const void* q = nullptr;  // [tokens, q_heads, head_size]
  const void* k = nullptr;  // [tokens, k_heads, head_size]
  void* q_out = nullptr;    // like q
  void* k_out = nullptr;    // like k
  // [table_rows, rotary / 2], or rotary columns in a full table; table_stride is between rows
  const void* cos = nullptr;
  const void* sin = nullptr;        // like cos; cos and sin may be the halves of one tensor's rows
  const void* positions = nullptr;  // [tokens]
  IndexType position_type = IndexType::i32;

  std::int32_t tokens = 0;
  std::int32_t q_heads = 0, k_heads = 0;  // either may be 0; its tensors are then ignored
  std::int32_t head_size = 0;             // even, 2 to 512
  std::int32_t rotary = 0;                // even, 2 to head_size
  std::int32_t table_rows = 0;

  HeadStrides q_strides{}, k_strides{}, q_out_strides{}, k_out_strides{};
  std::int64_t table_stride = 0;
};

/// A row of the row operations is a head of a token here, and its columns are the head's dimensions.
constexpr std::int32_t rows_of(const RopeProblem& p) { return p.tokens * (p.q_heads + p.k_heads); }
constexpr std::int32_t columns_of(const RopeProblem& p) { return p.head_size; }

}  // namespace tilewave
