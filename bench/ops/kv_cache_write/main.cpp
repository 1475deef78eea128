// SPDX-License-Identifier: MIT
// bench_kv_cache_write: correctness and speed of writes into a paged KV cache, plain and fused with norms and rotary
// embeddings, one row per config and policy. See docs/reference/benchmarking.md.
#include "bench/harness/rows/main.hpp"

#include "bench/ops/kv_cache_write/sweep.hpp"

int main(int argc, char** argv) {
  using namespace tilewave::bench;
  return run_tool("bench_kv_cache_write", [&] {
    return row_op_main<KvCacheWriteOp>("Correctness and speed of writes into a paged KV cache.", argc, argv);
  });
}
