// SPDX-License-Identifier: MIT
// bench_attention_combine: correctness and speed of combining partial attention results, one row per config and policy.
// See docs/reference/benchmarking.md.
#include "bench/harness/rows/main.hpp"

#include "bench/ops/attention_combine/sweep.hpp"

int main(int argc, char** argv) {
  using namespace tilewave::bench;
  return run_tool("bench_attention_combine", [&] {
    return row_op_main<AttentionCombineOp>("Correctness and speed of combining partial attention results.", argc, argv);
  });
}
