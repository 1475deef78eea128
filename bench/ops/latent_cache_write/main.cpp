// SPDX-License-Identifier: MIT
// bench_latent_cache_write: correctness and speed of writes into a cache of latent attention, one row per config and
// policy. See docs/reference/benchmarking.md.
#include "bench/harness/rows/main.hpp"

#include "bench/ops/latent_cache_write/sweep.hpp"

int main(int argc, char** argv) {
  using namespace tilewave::bench;
  return run_tool("bench_latent_cache_write", [&] {
    return row_op_main<LatentCacheWriteOp>("Correctness and speed of writes into a latent cache.", argc, argv);
  });
}
