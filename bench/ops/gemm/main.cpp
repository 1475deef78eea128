// SPDX-License-Identifier: MIT
// bench_gemm measures correctness and speed of matrix products, with one row for each config and policy. See
// docs/reference/benchmarking.md.
#include <CLI/CLI.hpp>
#include <functional>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "bench/harness/ranked.hpp"
#include "bench/harness/shapes.hpp"
#include "bench/harness/tool.hpp"
#include "bench/ops/gemm/runner.hpp"
#include "bench/ops/gemm/sweep.hpp"
#include "entries/gemm.hpp"

namespace {

using namespace tilewave;
using namespace tilewave::bench;

struct Options : ToolOptions {
  std::vector<std::string> sweeps{"default"};
  int splits = 0;
  GemmOptions measure;
  ShapeOptions shapes;
};

void declare(CLI::App& app, Options& o) {
  std::vector<std::string> sweeps;
  std::string listed;
  for (const GemmSweep sweep : all_gemm_sweeps) listed += sweeps.emplace_back(name_of(sweep)) + ", ";
  auto* sweep = app.add_option("--sweep", o.sweeps, listed + "or a comma list (default: default)")
                    ->delimiter(',')
                    ->check(CLI::IsMember(sweeps));
  declare(app, o.shapes);
  for (const char* own : {"--shapes", "--config", "--model"}) sweep->excludes(app.get_option(own));
  app.add_option("--splits", o.splits,
                 "blocks that share K, where the policy lets as many, instead of the library's choice")
      ->check(CLI::Range(1, 64));
  app.add_option_function<std::string>(
         "--peer", [&o](const std::string& peer) { o.measure.vendor = peer == "vendor"; },
         "vendor: beside each row cuBLASLt or hipBLASLt, in turns by sample on the same tensors; none (default)")
      ->check(CLI::IsMember({"none", "vendor"}));
  app.add_option_function<std::int64_t>(
         "--rotate", [&o](std::int64_t mib) { o.measure.rotated = mib << 20; },
         "MiB of copies of the weights that calls take in turns (default: 4 times the last cache up to M 128, else 0)")
      ->check(CLI::Range(0, 65536));
  declare(app, o, o.measure);
}

/// Returns the entries of all lists: one product, features, groups, gates, int4 weights and MX scales. No two lists
/// have a spec in common.
std::span<const GemmEntry* const> every_entry() {
  static const std::vector<const GemmEntry*> entries = [] {
    std::vector<const GemmEntry*> all;
    for (const auto list : {all_gemm_entries(), all_gemm_feature_entries(), all_gemm_grouped_entries(),
                            all_gemm_gated_entries(), all_gemm_int4_entries(), all_gemm_mx_entries()})
      all.insert(all.end(), list.begin(), list.end());
#ifdef TILEWAVE_GENERATED  // A tuner or the ladder of docs/reference/gemm.md adds these.
    const auto generated = all_gemm_generated_entries();
    all.insert(all.end(), generated.begin(), generated.end());
#endif
    return all;
  }();
  return entries;
}

/// Returns the plans of an entry that --policies and --splits ask for. `chosen`, the library's own plan, comes first.
std::vector<GemmPlan> plans_of(const GemmProblem& p, const GemmPlan& chosen, const Options& o) {
  const GemmPolicy& policy = chosen.entry->policy;
  if (o.splits > 0) return {{chosen.entry, std::min(o.splits, policy.splits)}};
  if (o.policies != "all") return {chosen};
  std::vector<GemmPlan> plans{chosen};
  const int steps = ceil_div(bytes_of(p.spec.a, p.k), policy.depth_bytes);
  for (const int splits : {1, 2, 3, 4, 6, 8, 12, 16}) {
    if (splits == chosen.splits) continue;
    if (splits == 1 || (splits <= policy.splits && 2 * splits <= steps)) plans.push_back({chosen.entry, splits});
  }
  return plans;
}

/// Returns the rows of configs in their order. The rows of a config begin with the entry that the library would choose.
std::vector<GemmRow> rows_of(const std::vector<GemmCase>& configs, int config_id, ArchId arch, const Options& o) {
  const std::span<const GemmEntry* const> entries = every_entry();
  std::vector<GemmRow> rows;
  for (GemmCase c : configs) {
    // The library chooses for the whole config. It looks at extents only, but its check needs tensors that do not
    // overlap.
    std::uintptr_t region = 0;
    const GemmProblem p = problem_of(c, {}, [&](const TwinBuffer&) -> void* { return somewhere(++region); });
    c = launched(c);
    std::string refusal;
    const auto select = [&](std::span<const GemmEntry* const> candidates) {
      GemmPlan plan;
      const Status status = gemm_select(p, candidates, facts_of(arch), plan);
      if (!status.ok()) refusal = std::string(name_of(status.code)) + ": " + status.reason;
      return plan;
    };
    std::vector<GemmPlan> plans;
    for (const GemmPlan& plan : o.policies == "all" ? ranked<GemmEntry>(entries, select) : std::vector{select(entries)})
      for (const GemmPlan& variant : plan.entry != nullptr ? plans_of(p, plan, o) : std::vector<GemmPlan>{})
        plans.push_back(variant);
    if (plans.empty()) plans.push_back({});
    for (const GemmPlan& plan : plans) {
      rows.push_back({c, plan, config_id, name_of(c) + "/" + plan.name(), plan.entry != nullptr ? "" : refusal});
    }
    ++config_id;
  }
  return rows;
}

/// Returns the rows of the user's configs, or of all sweeps, that the filter and --every leave. A row that several
/// sweeps have belongs to the first of them.
std::vector<GemmRow> chosen_rows(ArchId arch, const Options& o, const std::string& filter) {
  const auto wanted = row_filter(filter);
  std::vector<GemmRow> rows;
  std::set<std::string> names;  // of the rows that the filter leaves
  const auto take = [&](const std::vector<GemmCase>& configs, int first) {
    for (GemmRow& row : rows_of(configs, first, arch, o)) {
      if (!wanted(row.name) || !names.insert(row.name).second) continue;
      if ((names.size() - 1) % o.every == 0) rows.push_back(std::move(row));
    }
  };
  if (o.shapes.any()) {
    GemmCase start;
    start.arch = arch;
    start.seed = o.seed;
    take(cases_of(o.shapes, start, column_names(row_facts(GemmRow{start, {}, 0, "", ""})), gemm_model_cases), 0);
    return rows;
  }
  for (const GemmSweep sweep : all_gemm_sweeps) {
    if (std::find(o.sweeps.begin(), o.sweeps.end(), name_of(sweep)) == o.sweeps.end()) continue;
    std::vector<GemmCase> cases = cases_of(sweep, arch);
    for (GemmCase& c : cases) c.seed = o.seed;
    take(cases, first_config_id(sweep));
  }
  return rows;
}

int run(int argc, char** argv) {
  Options o;
  CLI::App app("Correctness and speed of matrix products.", tool_name);
  declare(app, o);
  if (const std::optional<int> status = parse(app, argc, argv)) return *status;
  if (std::set<std::string>(o.sweeps.begin(), o.sweeps.end()).size() < o.sweeps.size()) {
    return fail("--sweep names a sweep twice");
  }
  const GoogleOptions google = initialize_google(app.remaining());
  if (o.measure.vendor && vendor_name().empty()) return fail("--peer=vendor: this build has no library of the vendor");
  const ArchId arch = choose_arch(o.arch, every_entry(), google);
  const std::vector<GemmRow> rows = chosen_rows(arch, o, google.filter);
  if (rows.empty()) return fail("--benchmark_filter=" + google.filter + ": matches no row");
  RowLog log;
  GemmRunner runner(o.measure, std::ref(log));
  return run_rows(rows, arch, google, log, [&](const GemmRow& row) { return runner.run(row); });
}

}  // namespace

int main(int argc, char** argv) {
  return run_tool("bench_gemm", [&] { return run(argc, argv); });
}
