// SPDX-License-Identifier: MIT
// bench_moe_sort: correctness and speed of sorting tokens by expert, one row per config and policy. See
// docs/reference/benchmarking.md.
#include "bench/harness/rows/main.hpp"

#include "bench/ops/moe_sort/sweep.hpp"

int main(int argc, char** argv) {
  using namespace tilewave::bench;
  return run_tool("bench_moe_sort", [&] {
    return row_op_main<MoeSortOp>("Correctness and speed of sorting tokens by expert.", argc, argv);
  });
}
