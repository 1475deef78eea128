// SPDX-License-Identifier: MIT
// bench_topk_gating: correctness and speed of choosing experts, one row per config and policy. See
// docs/reference/benchmarking.md.
#include "bench/harness/rows/main.hpp"

#include "bench/ops/topk_gating/sweep.hpp"

int main(int argc, char** argv) {
  using namespace tilewave::bench;
  return run_tool("bench_topk_gating", [&] {
    return row_op_main<TopkGatingOp>("Correctness and speed of choosing each token's experts.", argc, argv);
  });
}
