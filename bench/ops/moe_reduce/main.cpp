// SPDX-License-Identifier: MIT
// bench_moe_reduce: correctness and speed of sums of experts' results, one row per config and policy. See docs/reference/benchmarking.md.
#include "bench/harness/rows/main.hpp"

#include "bench/ops/moe_reduce/sweep.hpp"

int main(int argc, char** argv) {
  using namespace tilewave::bench;
  return run_tool("bench_moe_reduce", [&] {
    return row_op_main<MoeReduceOp>("Correctness and speed of sums of experts' results.", argc, argv);
  });
}
