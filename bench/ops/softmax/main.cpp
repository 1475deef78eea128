// SPDX-License-Identifier: MIT
// bench_softmax: correctness and speed of softmax and log softmax, one row per config and policy. See
// docs/reference/benchmarking.md.
#include "bench/harness/rows/main.hpp"

#include "bench/ops/softmax/sweep.hpp"

int main(int argc, char** argv) {
  using namespace tilewave::bench;
  return run_tool("bench_softmax", [&] {
    return row_op_main<SoftmaxOp>("Correctness and speed of softmax and log softmax.", argc, argv);
  });
}
