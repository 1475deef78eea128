// SPDX-License-Identifier: MIT
// What the kernels of a cache write take.
#pragma once

#include "tilewave/core/math.hpp"
#include "tilewave/ops/kv_cache_write/problem.hpp"

namespace tilewave {

struct KvCacheWriteArgs {
  const void* q;
  const void* k;
  const void* v;
  void* q_out;
  HeadStrides q_strides, k_strides, v_strides, q_out_strides;
  void* k_cache;
  void* v_cache;
  PagedKeyStrides k_cache_strides;
  PagedValueStrides v_cache_strides;
  void* k_scale;
  float* v_scale;
  std::int64_t scale_page_stride, scale_head_stride;  // the latter 0 where all heads share a scale
  IndexList slots;
  std::int32_t slot_limit;  // pages * block_size
  FastDiv block_size;

  void* q_scale;
  const void* q_norm;  // of the weights that are not there some memory that is
  const void* k_norm;
  bool q_weighted, k_weighted, dim_major;
  float eps, per_column;  // 1 / head_size
  const void* cos;
  const void* sin;
  IndexList positions;
  std::int64_t table_stride;
  std::int32_t table_rows, rotary, rotary_first, head_size;

  std::int32_t q_heads, head_rows, head_blocks;  // rows of q and k
  FastDiv heads;                                 // of q and k of a token
  std::int32_t value_rows;
  FastDiv inner_values;  // dim_major: tokens of a head, else heads of a token
};

}  // namespace tilewave
