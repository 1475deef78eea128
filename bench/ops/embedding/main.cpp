// SPDX-License-Identifier: MIT
// bench_embedding: correctness and speed of embeddings, one row per config and policy. See docs/reference/benchmarking.md.
#include "bench/harness/rows/main.hpp"

#include "bench/ops/embedding/sweep.hpp"

int main(int argc, char** argv) {
  using namespace tilewave::bench;
  return run_tool("bench_embedding",
                  [&] { return row_op_main<EmbeddingOp>("Correctness and speed of embeddings.", argc, argv); });
}
