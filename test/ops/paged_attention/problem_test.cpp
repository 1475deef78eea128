// SPDX-License-Identifier: MIT
// Makers of PagedAttentionProblem: the strides of each layout are those of the shape that its name stands for.
#include "tilewave/ops/paged_attention/problem.hpp"

#include <cmath>

#include "test/catch_compat.hpp"

namespace tilewave::test {
namespace {

PagedAttentionProblem sizes(ValueLayout values, Scaling quant = Scaling::none) {
  const DType kv = quant == Scaling::none ? DType::bf16 : DType::fp8_e4m3fn;
  return {.spec = {.kv = kv, .quant = quant, .head_size = 128, .values = values},
          .batch = 3,
          .mtp = 2,
          .num_q_heads = 8,
          .num_kv_heads = 2,
          .block_size = 16,
          .table_columns = 5,
          .num_pages = 40};
}

}  // namespace

TEST_CASE("NHD is pages, tokens, heads, dimensions, and HND pages, heads, tokens, dimensions") {
  const PagedAttentionProblem nhd = PagedAttentionProblem::nhd(sizes(ValueLayout::token_major));
  CHECK(nhd.k_strides.page == 16 * 2 * 128);
  CHECK(nhd.k_strides.token == 2 * 128);
  CHECK(nhd.k_strides.head == 128);
  CHECK(nhd.k_strides.unit == 8);
  CHECK(nhd.v_strides.page == 16 * 2 * 128);
  CHECK(nhd.v_strides.token == 2 * 128);
  CHECK(nhd.v_strides.head == 128);
  const PagedAttentionProblem hnd = PagedAttentionProblem::hnd(sizes(ValueLayout::token_major));
  CHECK(hnd.k_strides.page == 2 * 16 * 128);
  CHECK(hnd.k_strides.head == 16 * 128);
  CHECK(hnd.k_strides.token == 128);
  CHECK(hnd.v_strides.head == 16 * 128);
  CHECK(hnd.v_strides.token == 128);
}

TEST_CASE("caches in 16-byte units have V shuffled or plain") {
  const PagedAttentionProblem plain = PagedAttentionProblem::in_units(sizes(ValueLayout::dim_major), false);
  CHECK(plain.k_strides.head == 16 * 128);
  CHECK(plain.k_strides.unit == 16 * 8);  // [D / x][token][x]
  CHECK(plain.k_strides.token == 8);
  CHECK(plain.v_strides.dim == 16);  // [D][token]
  CHECK(plain.v_strides.unit == 8);
  const PagedAttentionProblem shuffled = PagedAttentionProblem::in_units(sizes(ValueLayout::dim_major), true);
  CHECK(shuffled.v_strides.dim == 8);  // [token / x][D][x]
  CHECK(shuffled.v_strides.unit == 128 * 8);
}

TEST_CASE("makers fill in queries, outputs, the table and scales, and the scale of the softmax where it is not given") {
  PagedAttentionProblem p = PagedAttentionProblem::hnd(sizes(ValueLayout::token_major, Scaling::per_token));
  CHECK(p.q_row_stride == 8 * 128);
  CHECK(p.out_row_stride == 8 * 128);
  CHECK(p.q_head_stride == 128);
  CHECK(p.table_row_stride == 5);
  CHECK(p.scale_page_stride == 2 * 16);
  CHECK(p.scale_head_stride == 16);
  CHECK(p.softmax_scale == 1.0f / std::sqrt(128.0f));
  p.softmax_scale = 0.25f;
  CHECK(PagedAttentionProblem::nhd(p).softmax_scale == 0.25f);
  CHECK(PagedAttentionProblem::hnd(sizes(ValueLayout::token_major, Scaling::per_head)).scale_head_stride == 1);
}

}  // namespace tilewave::test
