// SPDX-License-Identifier: MIT
// What the kernels of a cache write receive.
#pragma once

#include <cstddef>

#include "tilewave/core/launch_arguments.hpp"
#include "tilewave/core/math.hpp"
#include "tilewave/ops/kv_cache_write/problem.hpp"

namespace tilewave {

/// The order is that in which a block needs them. On sm90 the first 176 bytes come with the launch. The others come
/// from memory, which takes up to 0.9 us (docs/notebook/2026-11-22-decode.md). Reads of heads that do not wait for them
/// hide that time.
struct KvCacheWriteArgs {
  std::int32_t head_blocks, head_rows, q_heads;  // rows of q and k
  FastDiv heads;                                 // of q and k of a token
  std::int32_t value_rows;
  FastDiv inner_values;  // dim_major: tokens of a head; else heads of a token
  std::int32_t head_size, rotary, rotary_first;
  bool tables_ready;
  const void* q;
  const void* k;
  const void* v;
  HeadStrides q_strides, k_strides, v_strides;
  IndexList slots, positions;
  const void* q_norm;  // weights that are not given point to other memory, which is read and not used
  const void* k_norm;

  void* k_scale;
  float* v_scale;
  std::int64_t scale_page_stride, scale_head_stride;  // the latter is 0 where all heads share a scale
  std::int64_t table_stride;
  const void* cos;
  const void* sin;
  std::int32_t table_rows;
  bool q_weighted, k_weighted, dim_major;
  float eps, per_column;    // 1 / head_size
  std::int32_t slot_limit;  // pages * block_size
  FastDiv block_size;

  void* k_cache;
  void* v_cache;
  PagedKeyStrides k_cache_strides;
  PagedValueStrides v_cache_strides;
  void* q_out;
  HeadStrides q_out_strides;
  void* q_scale;
  void* k_out;  // may be null
  HeadStrides k_out_strides;
};
static_assert(offsetof(KvCacheWriteArgs, k_scale) == sm90_arguments_with_launch,
              "the first 176 bytes come with a launch: what every block needs");

}  // namespace tilewave
