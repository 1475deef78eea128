// SPDX-License-Identifier: MIT
// The choice of rows and the main function of a benchmark of a row operation.
#pragma once

#include <algorithm>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "bench/harness/ranked.hpp"
#include "bench/harness/rows/row_op.hpp"
#include "bench/harness/shapes.hpp"
#include "bench/harness/tool.hpp"

namespace tilewave::bench {

/// Returns the rows of a config that are launched, as launched_rows() counts them or as the config itself does.
template <class Case>
std::int32_t launched_rows_of(const Case& c) {
  if constexpr (requires { c.launched_rows(); }) {
    return c.launched_rows();
  } else {
    return launched_rows(c.config_rows, row_elements(c));
  }
}

/// Returns the rows of the default sweep, or of a user's configs: in the order of its configs, then the most wanted
/// first.
template <class Op>
std::vector<RowOpPlan<Op>> plans_of(ArchId arch, const ToolOptions& o, const ShapeOptions& shapes) {
  using Entry = typename Op::Entry;
  const std::span<const Entry* const> entries = Op::entries();
  std::vector<RowOpPlan<Op>> plans;
  int config_id = 0;
  typename Op::Case start;
  start.arch = arch;
  start.seed = o.seed;
  std::vector<typename Op::Case> cases =
      cases_of(shapes, start, column_names(row_facts(RowOpPlan<Op>{start, nullptr, 0, "", ""})), Op::model_cases);
  if (!shapes.any()) {
    cases = Op::default_sweep(arch);
    for (typename Op::Case& c : cases) c.seed = o.seed;
  }
  for (typename Op::Case c : cases) {
    // The library chooses for the whole config. It looks at shapes and addresses, which are far apart, and not at
    // contents.
    std::uintptr_t tensors = 0;
    const auto problem = Op::problem_of(c, {}, [&](const TwinBuffer&) -> void* { return somewhere(++tensors); });
    c.rows = launched_rows_of(c);
    struct Choice {
      const Entry* entry = nullptr;
    };
    std::string refusal;
    const auto select = [&](std::span<const Entry* const> candidates) {
      Choice choice;
      const Status status = Op::select(problem, candidates, facts_of(arch), choice.entry);
      if (!status.ok()) refusal = std::string(name_of(status.code)) + ": " + status.reason;
      return status.ok() ? choice : Choice{};
    };
    std::vector<Choice> chosen =
        o.policies == "all" ? ranked<Entry>(entries, select) : std::vector<Choice>{select(entries)};
    if (chosen.empty()) chosen.emplace_back();
    for (const auto& [entry] : chosen) {
      const std::string policy = entry != nullptr ? name_of(entry->policy) : "none";
      plans.push_back({c, entry, config_id, name_of(c) + "/" + policy, entry != nullptr ? "" : refusal});
    }
    ++config_id;
  }
  return plans;
}

/// This is the main function of the benchmark of a row operation.
template <class Op>
int row_op_main(const char* about, int argc, char** argv) {
  CommandLine o;
  if (const std::optional<int> status = parse(about, argc, argv, o)) return *status;
  const ArchId arch = choose_arch(o.tool.arch, Op::entries(), o.google);
  const auto wanted = row_filter(o.google.filter);
  std::vector<RowOpPlan<Op>> rows = plans_of<Op>(arch, o.tool, o.shapes);
  keep(rows, wanted, o.tool.every);
  if (rows.empty()) return fail("--benchmark_filter=" + o.google.filter + ": matches no row");
  RowLog log;
  RowOpRunner<Op> runner(o.measure, std::ref(log));
  return run_rows(rows, arch, o.google, log, [&](const RowOpPlan<Op>& row) { return runner.run(row); });
}

}  // namespace tilewave::bench
