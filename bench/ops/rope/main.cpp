// SPDX-License-Identifier: MIT
// bench_rope: correctness and speed of rotary position embeddings, one row per config and policy. See
// docs/reference/benchmarking.md.
#include "bench/harness/rows/main.hpp"

#include "bench/ops/rope/sweep.hpp"

int main(int argc, char** argv) {
  using namespace tilewave::bench;
  return run_tool("bench_rope", [&] {
    return row_op_main<RopeOp>("Correctness and speed of rotary position embeddings.", argc, argv);
  });
}
