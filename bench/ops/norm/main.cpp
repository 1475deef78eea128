// SPDX-License-Identifier: MIT
// bench_norm: correctness and speed of rmsnorm and layernorm, one row per config and policy. See docs/reference/benchmarking.md.
#include "bench/harness/rows/main.hpp"

#include "bench/ops/norm/sweep.hpp"

int main(int argc, char** argv) {
  using namespace tilewave::bench;
  return run_tool("bench_norm",
                  [&] { return row_op_main<NormOp>("Correctness and speed of rmsnorm and layernorm.", argc, argv); });
}
