// SPDX-License-Identifier: MIT
// tilewave: what an optimizer drives around the benchmarks. docs/guide/optimise.md is the contract.
#include "tools/tilewave/common/command.hpp"

int main(int argc, char** argv) {
  using namespace tilewave::tool;
  return run_commands(argc, argv, [](Command& tilewave) {
    add_compare(tilewave);
    add_specs(tilewave);
    add_roofline(tilewave);
    add_gpu(tilewave);
    add_isa(tilewave);
    add_campaign(tilewave);
    add_trace(tilewave);
    add_tune(tilewave);
    add_report(tilewave);
  });
}
