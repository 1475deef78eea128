// SPDX-License-Identifier: MIT
// bench_flash_attention: correctness and speed of attention over many queries of a sequence (prefill), one row per
// config and policy. See docs/reference/benchmarking.md.
#include "bench/harness/rows/main.hpp"

#include "bench/ops/flash_attention/sweep.hpp"

int main(int argc, char** argv) {
  using namespace tilewave::bench;
  return run_tool("bench_flash_attention", [&] {
    return row_op_main<FlashAttentionOp>("Correctness and speed of flash attention (prefill).", argc, argv);
  });
}
