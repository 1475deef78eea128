// SPDX-License-Identifier: MIT
// bench_pa: correctness and speed of paged-attention decode, one row per config and policy. See
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
#include "bench/ops/paged_attention/bundle.hpp"
#include "bench/ops/paged_attention/runner.hpp"
#include "bench/ops/paged_attention/sweep.hpp"
#include "entries/paged_attention.hpp"

namespace {

using namespace tilewave;
using namespace tilewave::bench;

struct Options : ToolOptions {
  std::vector<std::string> sweeps{"default"};
  std::string inputs = "uniform";
  int splits = 0;
  RunnerOptions runner;
  ShapeOptions shapes;
};

void declare(CLI::App& app, Options& o) {
  std::vector<std::string> sweeps;
  std::string listed;
  for (const Sweep sweep : all_sweeps) listed += sweeps.emplace_back(name_of(sweep)) + ", ";
  auto* sweep = app.add_option("--sweep", o.sweeps, listed + "or a comma list (default: default)")
                    ->delimiter(',')
                    ->check(CLI::IsMember(sweeps));
  declare(app, o.shapes);
  for (const char* own : {"--shapes", "--config", "--model"}) sweep->excludes(app.get_option(own));
  app.add_option("--splits", o.splits, "split the context this many ways instead of the library's choice")
      ->check(CLI::Range(1, max_splits));
  app.add_option("--inputs", o.inputs, "uniform, or varied: a different magnitude for every token")
      ->check(CLI::IsMember({"uniform", "varied"}));
  app.add_option("--check-pairs", o.runner.check_pairs, "(sequence, kv head) pairs to verify per row (default: all)")
      ->check(CLI::Range(1, 1 << 30));
  declare(app, o, o.runner);
}

using Row = PagedAttentionBenchPlan;

/// The default entries, those of features, those of native products, and those with soft cap or ALiBi. No two of these
/// lists have a spec in common.
std::span<const PagedAttentionEntry* const> every_entry() {
  static const std::vector<const PagedAttentionEntry*> entries = [] {
    std::vector<const PagedAttentionEntry*> all;
    for (const auto list : {all_paged_attention_entries(), all_paged_attention_feature_entries(),
                            all_paged_attention_native_entries(), all_paged_attention_score_entries()}) {
      all.insert(all.end(), list.begin(), list.end());
    }
#ifdef TILEWAVE_GENERATED  // by a tuner
    const auto generated = all_paged_attention_generated_entries();
    all.insert(all.end(), generated.begin(), generated.end());
#endif
    return all;
  }();
  return entries;
}

/// The rows of configs, in the order of the configs, then in that of the entries.
std::vector<Row> rows_of(const std::vector<PagedAttentionCase>& cases, int config_id, ArchId arch, const Options& o) {
  const std::span<const PagedAttentionEntry* const> entries = every_entry();
  std::vector<Row> rows;
  for (const PagedAttentionCase& c : cases) {
    // Selection looks at shapes only, but a problem without tensors, or with tensors in one place, is not a valid one.
    PagedAttentionProblem p = shape_of(c);
    p.q = somewhere(1);
    p.k = somewhere(2);
    p.v = somewhere(3);
    p.out = somewhere(4);
    p.k_scale = static_cast<const float*>(somewhere(5));
    p.v_scale = static_cast<const float*>(somewhere(6));
    p.block_table = static_cast<const std::int32_t*>(somewhere(7));
    p.context_lengths = static_cast<const std::int32_t*>(somewhere(8));
    if (c.sinks) p.sinks = p.k_scale;
    if (c.alibi) p.alibi_slopes = p.k_scale;
    if (c.stage_starts) p.stage_starts = p.block_table;
    std::string refusal;
    const auto select = [&](std::span<const PagedAttentionEntry* const> candidates) {
      PagedAttentionPlan plan;
      const Status status = paged_attention_select(p, candidates, facts_of(arch), plan);
      if (!status.ok()) {
        refusal = std::string(name_of(status.code)) + ": " + status.reason;
        return PagedAttentionPlan{};
      }
      if (o.splits > 0 && !plan.entry->policy.balanced()) plan.splits = o.splits;
      return plan;
    };
    std::vector<PagedAttentionPlan> plans =
        o.policies == "all" ? ranked<PagedAttentionEntry>(entries, select) : std::vector{select(entries)};
    if (plans.empty()) plans.push_back({});
    for (const PagedAttentionPlan& plan : plans) {
      const std::string policy = plan.entry != nullptr ? plan.name() : "none";
      rows.push_back(
          {c, plan, config_id, "pa_decode/" + name_of(c) + "/" + policy, plan.entry != nullptr ? "" : refusal});
    }
    ++config_id;
  }
  return rows;
}

/// The configs of a sweep, or those that the user gave.
std::vector<PagedAttentionCase> configs_of(const std::string& sweep, const PagedAttentionCase& start,
                                           const Options& o) {
  if (o.shapes.any()) {
    return cases_of(o.shapes, start, column_names(row_facts(Row{start, {}, 0, "", ""})), model_cases);
  }
  std::vector<PagedAttentionCase> cases = cases_of(*sweep_named(sweep), start.arch);
  for (PagedAttentionCase& c : cases) {
    c.seed = start.seed;
    if (start.inputs == Inputs::varied) c.inputs = Inputs::varied;
  }
  return cases;
}

/// The rows of all sweeps that the filter and --every leave. A row that several sweeps have is a row of the first of
/// them.
std::vector<Row> chosen_rows(ArchId arch, const Options& o, const std::string& filter) {
  const auto wanted = row_filter(filter);
  std::vector<Row> rows;
  std::set<std::string> names;                              // of what the filter leaves
  PagedAttentionCase start = case_of(arch, Scaling::none);  // as far as users leave it out
  start.block_size = 64;
  start.batch = start.context_length = start.num_q_heads = start.num_kv_heads = 0;
  start.seed = o.seed;
  if (o.inputs == name_of(Inputs::varied)) start.inputs = Inputs::varied;
  for (const std::string& sweep : o.sweeps) {
    const int first = o.shapes.any() ? 0 : first_config_id(*sweep_named(sweep));
    for (Row& row : rows_of(configs_of(sweep, start, o), first, arch, o)) {
      if (!wanted(row.name) || !names.insert(row.name).second) continue;
      if ((names.size() - 1) % o.every == 0) rows.push_back(std::move(row));
    }
  }
  return rows;
}

int run(int argc, char** argv) {
  Options o;
  CLI::App app("Correctness and speed of paged-attention decode.", tool_name);
  declare(app, o);
  if (const std::optional<int> status = parse(app, argc, argv)) return *status;
  if (std::set<std::string>(o.sweeps.begin(), o.sweeps.end()).size() < o.sweeps.size()) {
    return fail("--sweep names a sweep twice");
  }
  const GoogleOptions google = initialize_google(app.remaining());
  const bool exporting = bundle_request.on();
  if (exporting && !emulated_device) {
    return fail("--export-bundle needs the build of the host preset, build/host/bench/bench_pa, and no GPU");
  }
  const ArchId arch = choose_arch(o.arch, every_entry(), google);
  const std::vector<Row> rows = chosen_rows(arch, o, google.filter);
  if (rows.empty()) return fail("--benchmark_filter=" + google.filter + ": matches no row");
  if (exporting && rows.size() > 1) {
    return fail("--export-bundle takes one row, --benchmark_filter leaves " + std::to_string(rows.size()));
  }
  if (exporting) return export_bundle(bundle_request.directory, rows[0].config, rows[0].plan);
  RowLog log;
  PagedAttentionRunner runner(o.runner, std::ref(log));
  return run_rows(rows, arch, google, log, [&](const Row& row) { return runner.run(row.config, row.plan); });
}

}  // namespace

int main(int argc, char** argv) {
  return run_tool(called(argv[0]).c_str(), [&] { return run(argc, argv); });
}
