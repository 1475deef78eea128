// SPDX-License-Identifier: MIT
// A call of paged attention on host memory, for tests of the reference.
#pragma once

#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "tilewave/reference/paged_attention.hpp"

namespace tilewave {

/// A small call on host memory whose K, V and Q are set through their logical coordinates.
struct Call {
  PagedAttentionProblem p;
  std::vector<std::uint8_t> k, v;
  std::vector<std::uint16_t> q;
  std::vector<float> k_scale, v_scale;
  std::vector<std::int32_t> table, lengths;

  Call(PagedAttentionSpec spec, std::vector<std::int32_t> sequence_lengths, int mtp = 1, int q_heads = 4,
       int kv_heads = 2, int block_size = 16, bool shuffled = true)
      : lengths(std::move(sequence_lengths)) {
    p.spec = spec;
    p.batch = static_cast<std::int32_t>(lengths.size());
    p.mtp = mtp;
    p.num_q_heads = q_heads;
    p.num_kv_heads = kv_heads;
    p.block_size = block_size;
    p.table_columns = 10;
    p.table_row_stride = p.table_columns;
    p.num_pages = p.batch * p.table_columns;
    p.softmax_scale = 1.0f;
    p.q_row_stride = q_heads * spec.head_size + 8;
    p.q_head_stride = spec.head_size;
    p.k_strides = packed_key_strides(spec, kv_heads, block_size);
    p.v_strides = packed_value_strides(spec, kv_heads, block_size, shuffled);
    p.scale_page_stride = std::int64_t{kv_heads} * block_size;
    p.scale_head_stride = block_size;
    // Whatever is not set is NaN. Pages are handed out from the last to the first.
    const std::size_t elements = p.num_pages * p.k_strides.page;
    k.assign(elements * size_of(spec.kv), 0xff);
    v = k;
    q.assign(p.batch * mtp * p.q_row_stride, 0xffff);
    k_scale.assign(p.num_pages * p.scale_page_stride, std::numeric_limits<float>::quiet_NaN());
    v_scale = k_scale;
    for (std::int64_t i = 0; i < p.num_pages; ++i) table.push_back(static_cast<std::int32_t>(p.num_pages - 1 - i));
    p.q = q.data();
    p.k = k.data();
    p.v = v.data();
    p.k_scale = k_scale.data();
    p.v_scale = v_scale.data();
    p.block_table = table.data();
    p.context_lengths = lengths.data();
  }

  std::int64_t page(int b, int t) const { return table[b * p.table_row_stride + t / p.block_size]; }
  std::size_t scale_at(int b, int h, int t) const {
    return page(b, t) * p.scale_page_stride + h * p.scale_head_stride + t % p.block_size;
  }
  void store(std::vector<std::uint8_t>& cache, std::int64_t element, float value) const {
    if (is_fp8(p.spec.kv)) {
      cache[element] = f32_to_fp8(p.spec.kv, value);
    } else {
      const std::uint16_t bits = f32_to_bf16(value);
      cache[2 * element] = static_cast<std::uint8_t>(bits);
      cache[2 * element + 1] = static_cast<std::uint8_t>(bits >> 8);
    }
  }
  // The cache layouts are written out: K [pages, heads, D/x, bs, x], V [.., bs/x, D, x] or [.., D, bs].
  void set_k(int b, int h, int t, int d, float value) {
    const int x = p.spec.unit(), bs = p.block_size, D = p.spec.head_size;
    store(k, (((page(b, t) * p.num_kv_heads + h) * (D / x) + d / x) * bs + t % bs) * x + d % x, value);
  }
  void set_v(int b, int h, int t, int d, float value, bool shuffled = true) {
    const int x = p.spec.unit(), bs = p.block_size, D = p.spec.head_size, slot = t % bs;
    const std::int64_t head = page(b, t) * p.num_kv_heads + h;
    store(v, shuffled ? ((head * (bs / x) + slot / x) * D + d) * x + slot % x : (head * D + d) * bs + slot, value);
  }
  template <class F>
  void each_token(F f) {
    for (int b = 0; b < p.batch; ++b)
      for (int h = 0; h < p.num_kv_heads; ++h)
        for (int t = 0; t < lengths[b]; ++t) f(b, h, t);
  }
  void fill_q(float value) {
    for (std::int64_t row = 0; row < p.batch * p.mtp; ++row)
      for (int i = 0; i < p.num_q_heads * p.spec.head_size; ++i) q[row * p.q_row_stride + i] = f32_to_bf16(value);
  }
  void set_q(int row, int head, int d, float value) {
    q[row * p.q_row_stride + head * p.q_head_stride + d] = f32_to_bf16(value);
  }
  double out(const reference::PagedAttentionResult& r, int row, int head, int d) const {
    return r.out[(std::size_t(row) * p.num_q_heads + head) * p.spec.head_size + d];
  }
};

}  // namespace tilewave
