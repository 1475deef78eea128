// SPDX-License-Identifier: MIT
#include "bench/harness/tool.hpp"

#include <benchmark/benchmark.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <csignal>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <stdexcept>
#include <utility>

#include "bench/harness/bundle_files.hpp"
#include "bench/harness/progress.hpp"
#include "bench/harness/report.hpp"

namespace tilewave::bench {

int fail(const std::string& message) {
  std::cerr << tool_name << ": " << message << "\n";
  return exit_usage;
}

std::string called(const char* path) { return std::filesystem::path(path).filename().string(); }

int run_tool(const char* name, const std::function<int()>& body) {
  tool_name = name;
  std::signal(SIGPIPE, SIG_IGN);  // a pipe without a reader is a file that cannot be written,
  std::signal(SIGXFSZ, SIG_IGN);  // and so is one that may not grow
  try {
    return body();
  } catch (const std::exception& error) {
    return fail(error.what());
  }
}

/// It is needed because CLI::Range accepts NaN.
static std::string is_a_number(const std::string& text) {
  return std::isnan(std::strtod(text.c_str(), nullptr)) ? text + " is not a number" : "";
}

void declare(CLI::App& app, ToolOptions& o, MeasureOptions& measure) {
  std::vector<std::string> archs;
  for (const ArchId arch : all_archs) archs.emplace_back(name_of(arch));
  app.add_option("--arch", o.arch, "gfx942, gfx950 or sm90: what the emulated device impersonates (default: gfx950)")
      ->check(CLI::IsMember(archs));
  app.add_option("--policies", o.policies, "selected: the library's choice; all: every entry that serves the config")
      ->check(CLI::IsMember({"selected", "all"}));
  app.add_option("--every", o.every, "keep every Nth of the rows that the filter leaves, from the first on")
      ->check(CLI::Range(1, 9999));
  app.add_option("--seed", o.seed, "of the inputs (default: 123)")->check(CLI::Range(0, 999999));
  app.add_option("--max-seconds", measure.max_seconds, "time cap of a row's cold samples (default: 0.3)")
      ->check(is_a_number)
      ->check(CLI::Range(0.0, 3600.0));
  app.add_option("--threads", measure.threads, "of input generator and reference (default: one per core)")
      ->check(CLI::Range(1, 4096));
  app.add_option("--ceiling-gbps", measure.ceiling_gbps,
                 "what reading, copying and writing may reach, instead of measuring it")
      ->check(is_a_number)
      ->check(CLI::Range(1.0, 1e9));
  std::vector<std::string> states;
  for (const StateChoice state : all_state_choices) states.emplace_back(name_of(state));
  auto* state =
      app.add_option_function<std::string>(
             "--state",
             [&measure](const std::string& word) {
               for (const StateChoice each : all_state_choices)
                 if (word == name_of(each)) measure.state = each;
             },
             "of the chip: as_is (default), rested: 0.3 s idle before a row, sustained: a second of calls before "
             "it, or both, in columns of their own")
          ->check(CLI::IsMember(states));
  auto* model =
      app.add_flag("--model-time", model_time.on,
                   "model what gfx942 or gfx950 would take, on the host, in columns of their own; run nothing");
  state->excludes(model);
  app.add_option("--model-chip", model_time.chip,
                 "MI300X, MI300A, MI308X, MI325X, MI350X or MI355X (default: MI300X, MI355X)")
      ->needs(model);
  app.add_option("--model-instructions", model_time.instructions,
                 "wave instructions of a launch that are timed, the rest is extrapolated (default: 4000000)")
      ->needs(model)
      ->check(CLI::Range(10'000, 1'000'000'000));
  app.add_option(
         "--model-trace", model_time.trace,
         "folder for a kernel trace and a thread trace of each launch, as rocprofv3 writes them, with source lines")
      ->needs(model);
  app.add_option("--export-bundle", bundle_request.directory,
                 "write the one row that is left as a repro bundle into this folder (docs/reference/bundle.md)")
      ->excludes(model);
  app.add_flag("--inject-error", measure.inject_error)->group("");  // hidden; it shows that verification works
  app.footer("All --benchmark_* options of Google Benchmark work too; rows are chosen with --benchmark_filter=REGEX.");
}

/// Names the first option whose comma list has an empty item, which CLI11 would leave out; "" if there is none.
static std::string empty_item_error(const CLI::App& app, const std::vector<std::string>& arguments) {
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const std::size_t equals = arguments[i].find('=');
    const CLI::Option* option = app.get_option_no_throw(arguments[i].substr(0, equals));
    if (option == nullptr || option->get_delimiter() != ',') continue;
    const bool apart = equals == std::string::npos && i + 1 < arguments.size();
    const std::string list =
        apart ? arguments[i + 1] : arguments[i].substr(std::min(equals, arguments[i].size() - 1) + 1);
    if (list.starts_with(',') || list.ends_with(',') || list.find(",,") != list.npos)
      return option->get_name() + ": '" + list + "' has an empty item";
  }
  return "";
}

std::optional<int> parse(CLI::App& app, int argc, char** argv) {
  app.allow_extras();
  try {
    app.parse(argc, argv);
    if (const std::string error = empty_item_error(app, {argv + 1, argv + argc}); !error.empty()) return fail(error);
  } catch (const CLI::CallForHelp&) {
    std::cout << app.help();
    return 0;
  } catch (const CLI::ParseError& error) {
    return fail(error.what());
  }
  return std::nullopt;
}

GoogleOptions initialize_google(std::vector<std::string> rest) {
  check_google_options(rest);
  GoogleOptions google(rest);
  rest.insert(rest.begin(), tool_name);
  static std::vector<std::string> arguments;  // Google Benchmark keeps a pointer to the first
  arguments = std::move(rest);
  std::vector<char*> pointers;
  for (std::string& argument : arguments) pointers.push_back(argument.data());
  pointers.push_back(nullptr);
  int count = static_cast<int>(arguments.size());
  benchmark::Initialize(&count, pointers.data(), [] {  // called for a bad value, instead of exit(0)
    std::exit(fail("a --benchmark_ option has a value that Google Benchmark refuses"));
  });
  if (count > 1) throw std::invalid_argument(std::string("unknown option ") + pointers[1]);
  google.filter = benchmark::GetBenchmarkFilter();
  return google;
}

std::optional<int> parse(const char* about, int argc, char** argv, CommandLine& o) {
  CLI::App app(about, tool_name);
  declare(app, o.tool, o.measure);
  declare(app, o.shapes);
  const std::optional<int> status = parse(app, argc, argv);
  if (!status) o.google = initialize_google(app.remaining());
  return status;
}

static ArchId architecture_of(const std::string& wanted, ArchId built_for, bool only_lists) {
  check_device_options();
  if (!only_lists && device_count() == 0) throw std::invalid_argument("no GPU of the kind this build is for");
  if (wanted.empty() || wanted == name_of(built_for)) return built_for;
  if (const ArchFacts* facts = facts_named(wanted); emulated_device && facts != nullptr) return facts->id;
  throw std::invalid_argument("--arch " + wanted + ": this build is for " + std::string(name_of(built_for)));
}

ArchId choose_arch(const std::string& wanted, ArchId built_for, const GoogleOptions& google) {
  const ArchId arch = architecture_of(wanted, built_for, google.list);
  if (model_time.on) (void)model_clock(arch);
  if (bundle_request.on() && !bundle_refusal(arch).empty())
    throw std::invalid_argument(std::string(bundle_refusal(arch)));
  return arch;
}

void RowLog::operator()(const std::string& text) const {
  if (progress != nullptr) progress->clear();
  std::cerr << row << ": " << text << "\n";
  if (progress != nullptr) progress->draw();
}

namespace {

/// Returns all columns of a row: its name, its identity, the results, and their origin.
Columns columns_of(const RowFacts& row, const Measurement& measured) {
  ColumnWriter visit{{{"name", row.name}}};
  std::string policy;
  for (const Columns& part :
       {row.identity, measured.columns(), measured.results.empty() ? row.results : measured.results}) {
    for (const Column& column : part)
      if (column.policy) policy += (policy.empty() ? "" : " ") + column.name;
    visit.columns.insert(visit.columns.end(), part.begin(), part.end());
  }
  visit("entry", row.entry_name);
  visit("config_id", row.config_id);
  visit("emulated", emulated_device);
  visit("schema_version", schema_version);
  visit("policy_columns", policy);
  return visit.columns;
}

/// Prints the rows' names, or their identities in the requested format, and runs nothing.
int list_rows(std::size_t count, const std::function<RowFacts(std::size_t)>& row_of, const std::string& format) {
  for (std::size_t i = 0; i < count; ++i) {
    const RowFacts row = row_of(i);
    Columns columns{{"name", row.name}};
    columns.insert(columns.end(), row.identity.begin(), row.identity.end());
    if (format == "csv") {
      std::cout << (i == 0 ? csv_header(columns) : "") << csv_line(columns);
    } else if (format == "json") {
      std::cout << json_of(columns) << "\n";
    } else {
      std::cout << row.name << "\n";
    }
  }
  write_whole(std::cout, "", "stdout");
  return 0;
}

/// True if a file can be written; its contents are left alone. A fifo is not opened, since its reader takes the first
/// writer that leaves for the end.
bool writable(const std::string& path) {
  std::error_code error;
  const auto there = std::filesystem::status(path, error);
  if (exists(there) && !is_regular_file(there)) return !is_directory(there) && ::access(path.c_str(), W_OK) == 0;
  return std::ofstream(path, std::ios::app).good();
}

}  // namespace

std::set<std::string> column_names(const RowFacts& row) {
  std::set<std::string> names;
  for (const Column& column : with_google(columns_of(row, {}), {})) names.insert(column.name);
  return names;
}

int run_rows(std::size_t count, const std::function<RowFacts(std::size_t)>& row_of, ArchId arch,
             const GoogleOptions& google, RowLog& log, const std::function<Measurement(std::size_t)>& run) {
  if (google.list) return list_rows(count, row_of, google.format);
  if (bundle_request.on() && count != 1) {
    return fail("--export-bundle takes one row, --benchmark_filter leaves " + std::to_string(count));
  }
  if (bundle_request.on()) check_bundle_directory(bundle_request.directory);
  if (model_time.on && !model_time.trace.empty()) create_directory_for_output(model_time.trace);
  if (!google.out.empty() && !writable(google.out)) return fail("--benchmark_out=" + google.out + ": cannot write");
  benchmark::AddCustomContext("tilewave_arch", std::string(name_of(arch)) + (emulated_device ? " (emulated)" : ""));
  Report report{columns_of(row_of(0), {}), {}};
  Progress progress(count);
  log.progress = &progress;
  bool all_ok = true;
  const auto run_row = [&](std::size_t i, benchmark::State& state) {
    const RowFacts row = row_of(i);
    if (i == 0 && google.format != "json") ConsoleReporter::print_context();
    report.row.clear();
    if (Interrupt::received() != 0) return state.SkipWithError("interrupted");  // left out, like all rows after it
    log.row = row.name;
    progress.begin(row.name);
    if (!row.refusal.empty()) log(row.refusal);
    bundle_request.config = row.name;
    bundle_request.policy = row.entry_name;
    bundle_request.problem = json_of(row.identity).dump();
    const Measurement measured = run(i);
    all_ok = all_ok && !measured.failed();
    report.row = columns_of(row, measured);
    for (auto _ : state) state.SetIterationTime(measured.timing.main.own.cold.median * 1e-6);
    for (const auto& [name, value] : measured.console()) state.counters[name] = value;
    state.SetLabel(row.entry_name);
    progress.end();
  };
  for (std::size_t i = 0; i < count; ++i) {
    benchmark::RegisterBenchmark(row_of(i).name.c_str(), [&run_row, i](benchmark::State& state) { run_row(i, state); })
        ->UseManualTime()
        ->Iterations(1)
        ->Unit(benchmark::kMicrosecond);
  }
  const auto display = reporter_for(google.format, report, "stdout");
  const auto file = reporter_for(google.out_format, report, "--benchmark_out=" + google.out);
  Interrupt::watch();
  // rows are filtered already
  benchmark::RunSpecifiedBenchmarks(display.get(), google.out.empty() ? nullptr : file.get(), ".");
  log.progress = nullptr;
  if (const int signal = Interrupt::received(); signal != 0) {
    std::cerr << tool_name << ": interrupted, " << progress.done() << " of " << count << " rows are done\n";
    return exit_signal + signal;
  }
  return all_ok ? 0 : exit_wrong;
}

}  // namespace tilewave::bench
