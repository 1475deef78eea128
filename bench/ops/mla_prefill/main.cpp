// SPDX-License-Identifier: MIT
// bench_mla_prefill, or bench_mla: correctness and speed of prefill of latent attention (MLA), of its launches, of the products beside decode,
// and of whole layers, one row per config and policy. See docs/reference/benchmarking.md.
#include "bench/harness/rows/main.hpp"

#include "bench/ops/mla_prefill/sweep.hpp"

int main(int argc, char** argv) {
  using namespace tilewave::bench;
  return run_tool("bench_mla_prefill", [&] {
    return row_op_main<MlaPrefillOp>("Correctness and speed of prefill of latent attention (MLA), and of layers.", argc,
                                     argv);
  });
}
