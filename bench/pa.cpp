// SPDX-License-Identifier: MIT
// bench_pa: correctness and speed of paged-attention decode, one row per config and policy. See docs/benchmarking.md.
#include <benchmark/benchmark.h>

#include <CLI/CLI.hpp>
#include <cmath>
#include <cstdlib>
#include <exception>
#include <iostream>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "bench/harness/bundle.hpp"
#include "bench/harness/entries.hpp"
#include "bench/harness/google_options.hpp"
#include "bench/harness/paged_attention_runner.hpp"
#include "bench/shapes/paged_attention.hpp"

namespace {

using namespace tilewave;
using namespace tilewave::bench;

constexpr int exit_wrong = 1, exit_usage = 2;

struct Options {
  std::vector<std::string> sweeps{"default"};
  std::string arch;
  std::string policies = "selected";
  std::string inputs = "uniform";
  std::string export_bundle;
  int every = 1;
  int splits = 0;
  std::uint64_t seed = 123;
  RunnerOptions runner;
};

int fail(const std::string& message) {
  std::cerr << "bench_pa: " << message << "\n";
  return exit_usage;
}

/// CLI::Range lets NaN pass.
std::string is_a_number(const std::string& text) {
  return std::isnan(std::strtod(text.c_str(), nullptr)) ? text + " is not a number" : "";
}

void declare(CLI::App& app, Options& o) {
  app.add_option("--sweep", o.sweeps, "default, accuracy, decode, emulated, or a comma list (default: default)")
      ->delimiter(',')
      ->check(CLI::IsMember({"default", "accuracy", "decode", "emulated"}));
  app.add_option("--arch", o.arch, "gfx942, gfx950 or sm90: what the emulated device impersonates (default: gfx950)")
      ->check(CLI::IsMember({"gfx942", "gfx950", "sm90"}));
  app.add_option("--every", o.every, "keep every Nth of the rows that the filter leaves, from the first on")
      ->check(CLI::Range(1, 9999));
  app.add_option("--policies", o.policies, "selected: the library's choice; all: every entry that serves the config")
      ->check(CLI::IsMember({"selected", "all"}));
  app.add_option("--splits", o.splits, "split the context this many ways instead of the library's choice")
      ->check(CLI::Range(1, max_splits));
  app.add_option("--seed", o.seed, "of the inputs (default: 123)")->check(CLI::Range(0, 999999));
  app.add_option("--inputs", o.inputs, "uniform, or varied: a different magnitude for every token")
      ->check(CLI::IsMember({"uniform", "varied"}));
  app.add_option("--max-seconds", o.runner.max_seconds, "time cap of a row's cold samples (default: 0.3)")
      ->check(is_a_number)
      ->check(CLI::Range(0.0, 3600.0));
  app.add_option("--threads", o.runner.threads, "of input generator and reference (default: one per core)")
      ->check(CLI::Range(1, 4096));
  app.add_option("--check-pairs", o.runner.check_pairs, "(sequence, kv head) pairs to verify per row (default: all)")
      ->check(CLI::Range(1, 1 << 30));
  app.add_option("--ceiling-gbps", o.runner.ceiling_gbps, "read ceiling to compare with, instead of measuring it")
      ->check(is_a_number)
      ->check(CLI::Range(1.0, 1e9));
  app.add_option("--export-bundle", o.export_bundle, "write a repro bundle of the one matching row to this directory");
  app.add_flag("--inject-error", o.runner.inject_error)->group("");  // hidden: shows that verification works
  app.footer("All --benchmark_* options of Google Benchmark work too; rows are chosen with --benchmark_filter=REGEX.");
}

/// The architecture to run, or a message.
std::optional<ArchId> choose_arch(const std::string& wanted, std::string& error) {
  int devices = 0;
  if (hipGetDeviceCount(&devices) != hipSuccess || devices == 0) {
    error = "no GPU of the kind this build is for";
    return std::nullopt;
  }
  // A build for a GPU holds the entries of one architecture.
  const ArchId built_for = emulated_device ? ArchId::gfx950 : all_paged_attention_entries().front()->arch;
  if (wanted.empty() || wanted == name_of(built_for)) return built_for;
  for (const ArchId arch : {ArchId::gfx942, ArchId::gfx950, ArchId::sm90}) {
    if (emulated_device && wanted == name_of(arch)) return arch;
  }
  error = "--arch " + wanted + ": this build is for " + std::string(name_of(built_for));
  return std::nullopt;
}

struct Row {
  PagedAttentionCase config;
  PagedAttentionPlan plan;
  int config_id;
  std::string name;
  std::string refusal;  // why the library has no plan for the config; empty if it has
};

/// The rows of a sweep, in the order of its configs, then of the entries.
std::vector<Row> rows_of(Sweep sweep, ArchId arch, const Options& o) {
  const std::span<const PagedAttentionEntry* const> entries = all_paged_attention_entries();
  std::vector<Row> rows;
  int config_id = first_config_id(sweep);
  for (PagedAttentionCase c : cases_of(sweep, arch)) {
    c.seed = o.seed;
    if (o.inputs == name_of(Inputs::varied)) c.inputs = Inputs::varied;
    // Selection looks at shapes only, but a problem without tensors is not a valid one.
    alignas(16) static std::byte somewhere[16];
    PagedAttentionProblem p = shape_of(c);
    p.q = p.k = p.v = p.out = somewhere;
    p.k_scale = p.v_scale = reinterpret_cast<const float*>(somewhere);
    p.block_table = p.context_lengths = reinterpret_cast<const std::int32_t*>(somewhere);
    std::vector<PagedAttentionPlan> plans;
    std::string refusal;
    const auto select = [&](std::span<const PagedAttentionEntry* const> candidates) {
      PagedAttentionPlan plan;
      const Status status = paged_attention_select(p, candidates, facts_of(arch), plan);
      if (!status.ok()) {
        refusal = std::string(name_of(status.code)) + ": " + status.reason;
        return;
      }
      if (o.splits > 0) plan.num_splits = o.splits;
      plans.push_back(plan);
    };
    if (o.policies == "all") {
      for (std::size_t i = 0; i < entries.size(); ++i) select(entries.subspan(i, 1));
    } else {
      select(entries);
    }
    if (plans.empty()) plans.push_back({});
    for (const PagedAttentionPlan& plan : plans) {
      const std::string policy = plan.entry != nullptr ? name_of(plan) : "none";
      rows.push_back(
          {c, plan, config_id, "pa_decode/" + name_of(c) + "/" + policy, plan.entry != nullptr ? "" : refusal});
    }
    ++config_id;
  }
  return rows;
}

/// The rows of all sweeps that the filter and --every leave. What several sweeps have is one row, of the first of them.
std::vector<Row> chosen_rows(ArchId arch, const Options& o, const std::string& filter) {
  const auto wanted = row_filter(filter);
  std::vector<Row> rows;
  std::set<std::string> names;  // of what the filter leaves
  for (const std::string& sweep : o.sweeps) {
    for (Row& row : rows_of(*sweep_named(sweep), arch, o)) {
      if (!wanted(row.name) || !names.insert(row.name).second) continue;
      if ((names.size() - 1) % o.every == 0) rows.push_back(std::move(row));
    }
  }
  return rows;
}

int run_rows(const std::vector<Row>& rows, const RunnerOptions& options) {
  std::string current = "bench_pa";
  const auto log = [&](const std::string& text) { std::cerr << current << ": " << text << "\n"; };
  PagedAttentionRunner runner(options, log);
  bool all_ok = true;
  for (const Row& row : rows) {
    benchmark::RegisterBenchmark(
        row.name.c_str(),
        [&](benchmark::State& state) {
          current = row.name;
          if (!row.refusal.empty()) log(row.refusal);
          const PagedAttentionRow result = runner.run(row.config, row.plan, row.config_id);
          all_ok = all_ok && result.ok;
          for (auto _ : state) state.SetIterationTime(result.timing.cold.median * 1e-6);
          for (const auto& [name, value] : result.counters()) state.counters[name] = value;
          state.SetLabel(row.plan.entry != nullptr ? name_of(row.plan.entry->spec) + "/" + name_of(row.plan) : "none");
        })
        ->UseManualTime()
        ->Iterations(1)
        ->Unit(benchmark::kMicrosecond);
  }
  benchmark::RunSpecifiedBenchmarks(".");  // the rows are filtered already
  if (!std::cout.flush()) return fail("cannot write to stdout");
  return all_ok ? 0 : exit_wrong;
}

int run(int argc, char** argv) {
  Options o;
  CLI::App app("Correctness and speed of paged-attention decode.", "bench_pa");
  declare(app, o);
  app.allow_extras();
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    std::cout << app.help();
    return 0;
  } catch (const CLI::ParseError& error) {
    return fail(error.what());
  }
  if (std::set<std::string>(o.sweeps.begin(), o.sweeps.end()).size() < o.sweeps.size()) {
    return fail("--sweep names a sweep twice");
  }
  std::vector<std::string> rest = app.remaining();
  check_google_options(rest);
  const std::string output = output_file(rest);
  rest.insert(rest.begin(), "bench_pa");
  std::vector<char*> rest_argv;
  for (std::string& argument : rest) rest_argv.push_back(argument.data());
  rest_argv.push_back(nullptr);
  int rest_argc = static_cast<int>(rest.size());
  benchmark::Initialize(&rest_argc, rest_argv.data(), [] {  // called for a bad value, in place of exit(0)
    std::exit(fail("a --benchmark_ option has a value that Google Benchmark refuses"));
  });
  if (rest_argc > 1) return fail(std::string("unknown option ") + rest_argv[1]);

  const bool exporting = !o.export_bundle.empty();
  if (exporting && !emulated_device) {
    return fail("--export-bundle needs the build of the host preset, build/host/bench/bench_pa, and no GPU");
  }
  std::string error;
  const std::optional<ArchId> arch = choose_arch(o.arch, error);
  if (!arch) return fail(error);
  const std::string filter = benchmark::GetBenchmarkFilter();
  const std::vector<Row> rows = chosen_rows(*arch, o, filter);
  if (rows.empty()) return fail("--benchmark_filter=" + filter + ": matches no row");
  if (exporting && rows.size() > 1) {
    return fail("--export-bundle takes one row, --benchmark_filter leaves " + std::to_string(rows.size()));
  }
  if (exporting) return export_bundle(o.export_bundle, rows[0].config, rows[0].plan);
  if (!output.empty() && !writable(output)) return fail("--benchmark_out=" + output + ": cannot write");
  benchmark::AddCustomContext("tilewave_arch", std::string(name_of(*arch)) + (emulated_device ? " (emulated)" : ""));
  return run_rows(rows, o.runner);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const std::exception& error) {
    return fail(error.what());
  }
}
