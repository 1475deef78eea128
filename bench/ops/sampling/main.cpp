// SPDX-License-Identifier: MIT
// bench_sampling: correctness and speed of sampling, one row per config and policy. See docs/reference/benchmarking.md.
#include "bench/harness/rows/main.hpp"

#include "bench/ops/sampling/sweep.hpp"

int main(int argc, char** argv) {
  using namespace tilewave::bench;
  return run_tool("bench_sampling", [&] {
    return row_op_main<SamplingOp>("Correctness and speed of sampling tokens from logits.", argc, argv);
  });
}
