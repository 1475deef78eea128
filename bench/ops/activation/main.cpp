// SPDX-License-Identifier: MIT
// bench_activation: correctness and speed of activations, one row per config and policy. See docs/reference/benchmarking.md.
#include "bench/harness/rows/main.hpp"

#include "bench/ops/activation/sweep.hpp"

int main(int argc, char** argv) {
  using namespace tilewave::bench;
  return run_tool("bench_activation",
                  [&] { return row_op_main<ActivationOp>("Correctness and speed of activations.", argc, argv); });
}
