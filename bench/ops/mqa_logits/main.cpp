// SPDX-License-Identifier: MIT
// bench_mqa_logits: correctness and speed of an indexer's logits, one row per config and policy. See
// docs/reference/benchmarking.md.
#include "bench/harness/rows/main.hpp"

#include "bench/ops/mqa_logits/sweep.hpp"

int main(int argc, char** argv) {
  using namespace tilewave::bench;
  return run_tool("bench_mqa_logits", [&] {
    return row_op_main<MqaLogitsOp>("Correctness and speed of an indexer's logits.", argc, argv);
  });
}
