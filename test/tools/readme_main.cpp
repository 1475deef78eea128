// SPDX-License-Identifier: MIT
// The README's example is called where its context is split, so that it needs the workspace: twice alike, then with a
// larger batch, which needs more of it. V is zero, hence the answer.
#include <cmath>
#include <cstdio>
#include <numeric>
#include <vector>

#include "example.hpp"

int main() {
  constexpr PagedAttentionSpec spec{.kv = DType::fp8_e4m3fn, .quant = Scaling::per_token, .head_size = 128};
  constexpr int heads = 8, page = 16, pages = 513, length = 8195, most = 4;
  const std::vector<std::uint16_t> q(most * heads * 128);
  std::vector<std::uint16_t> out(q.size(), 0x7fc0);  // NaN
  const std::vector<std::uint8_t> cache(pages * page * 128);
  const std::vector<float> scales(pages * page, 1.0f);
  std::vector<std::int32_t> table(most * pages), lengths(most, length);
  for (int sequence = 0; sequence < most; ++sequence)  // all of the same pages
    std::iota(table.begin() + sequence * pages, table.begin() + (sequence + 1) * pages, 0);
  PagedAttentionProblem problem{.q = q.data(), .k = cache.data(), .v = cache.data(), .out = out.data()};
  problem.k_scale = problem.v_scale = scales.data();
  problem.block_table = table.data();
  problem.context_lengths = lengths.data();
  problem.softmax_scale = 1.0f / std::sqrt(128.0f);
  problem.num_kv_heads = 1;
  problem.num_q_heads = heads;
  problem.block_size = problem.scale_page_stride = problem.scale_head_stride = page;
  problem.table_columns = problem.num_pages = pages;
  problem.q_row_stride = problem.out_row_stride = heads * 128;
  problem.q_head_stride = problem.out_head_stride = 128;
  problem.k_strides = packed_key_strides(spec, 1, page);
  problem.v_strides = packed_value_strides(spec, 1, page, true);
  problem.table_row_stride = pages;
  Workspace workspace;
  std::size_t first = 0;
  for (const int batch : {1, 1, most}) {
    problem.batch = batch;
    const Status status = decode(problem, workspace, nullptr);
    if (!status.ok()) return std::fprintf(stderr, "%s: %s\n", name_of(status.code).data(), status.reason), 1;
    if (first == 0) first = workspace.bytes;
  }
  for (const std::uint16_t bits : out)
    if (bits != 0) return std::fprintf(stderr, "out is %g\n", static_cast<double>(bf16_to_f32(bits))), 1;
  return first > 0 && workspace.bytes > first ? 0 : 1;
}
