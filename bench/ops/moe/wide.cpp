// SPDX-License-Identifier: MIT
// bench_moe_wide: bench_moe with the layers of the wide list, those that combine what others have: int4, on CDNA MXFP4
// and weights in strips.
#include "bench/harness/rows/main.hpp"
#include "bench/ops/moe/sweep.hpp"

int main(int argc, char** argv) {
  using namespace tilewave;
  using namespace tilewave::bench;
  MoeLists& lists = moe_lists();
  lists.wide = true;
  MoeLists::add(lists.layers, all_moe_wide_entries());
  MoeLists::add(lists.products, all_gemm_moe_wide_entries());
  return run_tool("bench_moe_wide",
                  [&] { return row_op_main<MoeOp>("Correctness and speed of layers of experts.", argc, argv); });
}
