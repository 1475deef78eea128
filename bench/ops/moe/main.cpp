// SPDX-License-Identifier: MIT
// bench_moe: correctness and speed of layers of experts and of their stages, one row per config and policy. See
// docs/reference/benchmarking.md.
#include "bench/harness/rows/main.hpp"

#include "bench/ops/moe/sweep.hpp"

int main(int argc, char** argv) {
  using namespace tilewave::bench;
  return run_tool("bench_moe",
                  [&] { return row_op_main<MoeOp>("Correctness and speed of layers of experts.", argc, argv); });
}
