// SPDX-License-Identifier: MIT
// bench_ceiling: how fast memory can be read, copied, written and added up, and what a launch costs, one row per config
// and policy. See docs/reference/benchmarking.md.
#include <functional>
#include <vector>

#include "bench/harness/shapes.hpp"
#include "bench/harness/tool.hpp"
#include "bench/ops/vec_add/sweep.hpp"

namespace {

using namespace tilewave;
using namespace tilewave::bench;

/// The rows of the sweep, in the order of its configs, then of the entries. `selected` takes the first of those.
std::vector<CeilingPlan> plans_of(ArchId arch, const ToolOptions& o, const ShapeOptions& shapes) {
  std::vector<CeilingPlan> plans;
  int config_id = 0;
  const CeilingCase start{.arch = arch, .seed = o.seed};
  const VecAddEntry any{};
  std::vector<CeilingCase> cases =
      cases_of(shapes, start, column_names(row_facts(CeilingPlan{start, nullptr, &any, 0, "", ""})),
               [](ArchId, const ModelStep&) { return std::vector<CeilingCase>(); });
  if (!shapes.any()) {
    cases = ceiling_sweep(arch);
    for (CeilingCase& c : cases) c.seed = o.seed;
  }
  for (const CeilingCase& c : cases) {
    const std::size_t before = plans.size();
    const auto add = [&](const TrafficEntry* traffic, const VecAddEntry* vec_add) {
      if (o.policies == "selected" && plans.size() > before) return;
      plans.push_back({c, traffic, vec_add, config_id, "", ""});
      plans.back().name = name_of(c) + "/" + name_of(plans.back().policy());
    };
    if (c.kind == CeilingKind::vec_add) {
      for (const VecAddEntry* e : all_vec_add_entries()) {
        if (e->arch == arch && e->spec.x == c.x) add(nullptr, e);
      }
    } else {
      for (const TrafficEntry* e : all_traffic_entries()) {
        if (e->arch == arch && e->spec.kind == static_cast<TrafficKind>(c.kind)) add(e, nullptr);
      }
    }
    ++config_id;
  }
  return plans;
}

int run(int argc, char** argv) {
  CommandLine o;
  const char* about = "The speed of memory and of a launch: what other benchmarks divide by.";
  if (const std::optional<int> status = parse(about, argc, argv, o)) return *status;
  o.measure.measure_ceilings = false;  // the rows are the measurement
  const ArchId arch = choose_arch(o.tool.arch, all_traffic_entries(), o.google);
  const auto wanted = row_filter(o.google.filter);
  std::vector<CeilingPlan> rows = plans_of(arch, o.tool, o.shapes);
  keep(rows, wanted, o.tool.every);
  if (rows.empty()) return fail("--benchmark_filter=" + o.google.filter + ": matches no row");
  RowLog log;
  CeilingRunner runner(o.measure, std::ref(log));
  return run_rows(rows, arch, o.google, log, [&](const CeilingPlan& row) { return runner.run(row); });
}

}  // namespace

int main(int argc, char** argv) {
  return run_tool(called(argv[0]).c_str(), [&] { return run(argc, argv); });
}
