// SPDX-License-Identifier: MIT
// bench_quant: correctness and speed of quantisation and dequantisation, one row per config and policy. See
// docs/reference/benchmarking.md.
#include "bench/harness/rows/main.hpp"

#include "bench/ops/quant/sweep.hpp"

int main(int argc, char** argv) {
  using namespace tilewave::bench;
  constexpr const char* about = "Correctness and speed of quantisation and dequantisation.";
  return run_tool("bench_quant", [&] { return row_op_main<QuantOp>(about, argc, argv); });
}
