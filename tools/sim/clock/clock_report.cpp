// SPDX-License-Identifier: MIT
#include <algorithm>
#include <cmath>
#include <cstdio>

#include "sim/clock/clock.hpp"
#include "sim/trace/wave_trace.hpp"

namespace tilewave::sim {

nlohmann::ordered_json ClockReport::to_json(const CodeObject& object) const {
  nlohmann::ordered_json out{{"chip", chip},
                             {"us", us},
                             {"bound", bound},
                             {"cycles", cycles},
                             {"mhz", mhz},
                             {"launch_us", launch_us},
                             {"matrix_duty", matrix_duty},
                             {"issue_duty", issue_duty},
                             {"tflops", tflops},
                             {"hbm_gbs", hbm_gbs},
                             {"blocks_per_cu", blocks_per_cu},
                             {"waves_per_simd", waves_per_simd},
                             {"limiter", limiter},
                             {"complete", complete},
                             {"whole_chip", whole_chip},
                             {"timed_share", timed_share},
                             {"sampling_spread", spread}};
  for (std::size_t i = 0; i < busy.size(); ++i) out["busy"][std::string(bound_names[i])] = busy[i];
  for (std::size_t i = 0; i < ops.size(); ++i) {
    if (!ops[i].hits) continue;
    nlohmann::ordered_json stalls;
    for (std::size_t s = 1; s < stall_count; ++s)
      if (ops[i].stall[s] > 0) stalls[std::string(stall_names[s])] = ops[i].stall[s];
    out["instructions"].push_back({{"address", object.program.ops[i].address},
                                   {"text", object.program.ops[i].text},
                                   {"hits", ops[i].hits},
                                   {"issue", ops[i].issue},
                                   {"stall", stalls}});
  }
  return out;
}

std::string ClockReport::to_text(const CodeObject& object, int top) const {
  char line[512];
  std::string out;
  const auto add = [&](auto... values) {
    std::snprintf(line, sizeof line, values...);
    out += line;
  };
  add("modelled on %s: %.2f us (%s bound), %.0f clk at %.0f MHz + %.1f us launch; %.1f TFLOP/s, HBM %.0f GB/s\n",
      chip.c_str(), us, bound.c_str(), cycles, mhz, launch_us, tflops, hbm_gbs);
  add("  %d blocks a CU, %d waves a SIMD (limited by %s); timed %.1f %% of the work%s, spread %.1f %%\n  busy:",
      blocks_per_cu, waves_per_simd, limiter.c_str(), 100 * timed_share,
      complete ? whole_chip ? ", all XCDs since blocks wait for each other" : "" : ", the rest extrapolated",
      100 * spread);
  for (std::size_t i = 0; i < busy.size(); ++i) add(" %s %.0f %%", std::string(bound_names[i]).c_str(), 100 * busy[i]);
  out += "\n  clk of all waves: issue, stall (cause), hits, instruction\n";
  std::vector<std::size_t> order;
  const auto total = [&](std::size_t i) {
    double sum = ops[i].issue;
    for (const double s : ops[i].stall) sum += s;
    return sum;
  };
  for (std::size_t i = 0; i < ops.size(); ++i)
    if (ops[i].hits) order.push_back(i);
  std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return total(a) > total(b); });
  if (static_cast<int>(order.size()) > top) order.resize(static_cast<std::size_t>(top));
  for (const std::size_t i : order) {
    const auto worst = std::max_element(ops[i].stall.begin(), ops[i].stall.end()) - ops[i].stall.begin();
    add("  %12.0f %12.0f %-8s %9llu  %s\n", ops[i].issue, total(i) - ops[i].issue,
        std::string(stall_names[static_cast<std::size_t>(worst)]).c_str(), static_cast<unsigned long long>(ops[i].hits),
        object.program.ops[i].text.c_str());
  }
  return out;
}

std::string ClockReport::annotated(const CodeObject& object, const std::string& symbol) const {
  char line[160];
  std::snprintf(line, sizeof line, "; modelled on %s, not measured: %.2f us, %s bound, %.0f clk at %.0f MHz\n",
                chip.c_str(), us, bound.c_str(), cycles, mhz);
  std::string out = line;
  out += ";     hits     issue clk     stall clk  causes, % of the stall             address  instruction\n";
  const auto [first, end] = ops_of_kernel(object, symbol);
  for (std::size_t i = first; i < end; ++i) {
    const OpClock& op = ops[i];
    double stall = 0;
    std::string causes;
    for (const double s : op.stall) stall += s;
    for (std::size_t s = 1; s < stall_count; ++s)
      if (op.stall[s] > 0.005 * stall)
        causes += std::string(stall_names[s]) + " " + std::to_string(std::lround(100 * op.stall[s] / stall)) + " ";
    std::snprintf(line, sizeof line, "%10llu %13.0f %13.0f  %-32s %8llx  ", static_cast<unsigned long long>(op.hits),
                  op.issue, stall, causes.c_str(), static_cast<unsigned long long>(object.program.ops[i].address));
    out += line + object.program.ops[i].text + "\n";
  }
  return out;
}

}  // namespace tilewave::sim
