// SPDX-License-Identifier: MIT
// bench_mla_decode: correctness and speed of decode of latent attention (MLA), one row per config and policy. See
// docs/reference/benchmarking.md.
#include "bench/harness/rows/main.hpp"

#include "bench/ops/mla_decode/sweep.hpp"

int main(int argc, char** argv) {
  using namespace tilewave::bench;
  return run_tool("bench_mla_decode", [&] {
    return row_op_main<MlaDecodeOp>("Correctness and speed of decode of latent attention (MLA).", argc, argv);
  });
}
