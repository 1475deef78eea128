// SPDX-License-Identifier: MIT
// Rows with times that are made up, written as every benchmark writes its own: `timed_rows TIMES --benchmark_...` has three,
// of 1, 2 and 3 us, times TIMES. What reads the files needs no GPU.
#include <cstdlib>
#include <string>
#include <vector>

#include "bench/harness/tool.hpp"

namespace {

using namespace tilewave;
using namespace tilewave::bench;

int run(int argc, char** argv) {
  if (argc < 2) return fail("usage: timed_rows TIMES --benchmark_...");
  const double times = std::strtod(argv[1], nullptr);
  const GoogleOptions google = initialize_google(std::vector<std::string>(argv + 2, argv + argc));
  RowLog log;
  const auto row = [](std::size_t i) {
    return RowFacts{"made_up/" + std::to_string(i + 1), {}, static_cast<int>(i), "none", ""};
  };
  return run_rows(3, row, ArchId::gfx950, google, log, [&](std::size_t i) {
    Measurement measured;
    measured.ok = true;
    measured.max_abs_err = measured.max_rel_err = 0;
    measured.timing.main.own.cold.median = static_cast<double>(i + 1) * times;
    measured.timing.main.own.cold.count = 10;
    return measured;
  });
}

}  // namespace

int main(int argc, char** argv) {
  return run_tool("timed_rows", [&] { return run(argc, argv); });
}
