// SPDX-License-Identifier: MIT
// bench_attention_combine: correctness and speed of combining partial attention results, one row per config and policy.
// See docs/benchmarking.md.
#include "bench/shapes/attention_combine.hpp"

#include "bench/harness/row_op_main.hpp"

int main(int argc, char** argv) {
  using namespace tilewave::bench;
  return run_tool("bench_attention_combine", [&] {
    return row_op_main<AttentionCombineOp>("Correctness and speed of combining partial attention results.", argc, argv);
  });
}
