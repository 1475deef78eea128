// SPDX-License-Identifier: MIT
// Parts that the command lines of all benchmarks share: options, Google Benchmark's set-up, rows, exit statuses. They
// are compiled once, in tool.cpp and its includes; a benchmark's program holds what depends on its op.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "bench/harness/google_options.hpp"
#include "bench/harness/measurement.hpp"
#include "bench/harness/shapes.hpp"

namespace tilewave::bench {

inline constexpr int exit_wrong = 1, exit_usage = 2, exit_signal = 128;  // exit_signal plus the signal

/// The name of this process in its messages.
inline std::string tool_name;

/// Prints the message on stderr and returns the status to exit with.
int fail(const std::string& message);

/// Returns the name by which a benchmark with two names was called.
std::string called(const char* path);

/// Runs body() as the main function of a benchmark, and turns an exception into a message.
int run_tool(const char* name, const std::function<int()>& body);

struct ToolOptions {
  std::string arch;
  std::string policies = "selected";
  std::uint64_t seed = 123;
  int every = 1;
};
void declare(CLI::App& app, ToolOptions& o, MeasureOptions& measure);

/// Returns every Nth of the rows whose names are wanted, starting with the first.
template <class Row, class Wanted>
void keep(std::vector<Row>& rows, const Wanted& wanted, int every) {
  int seen = 0;
  std::erase_if(rows, [&](const Row& row) { return !wanted(row.name) || seen++ % every != 0; });
}

/// Parses the declared options; the rest stays in app.remaining(). Returns an exit status if nothing is left to do.
std::optional<int> parse(CLI::App& app, int argc, char** argv);

/// Passes the remaining arguments to Google Benchmark, and returns those that the harness handles itself.
GoogleOptions initialize_google(std::vector<std::string> rest);

/// The command line of a benchmark without options of its own.
struct CommandLine {
  ToolOptions tool;
  MeasureOptions measure;
  ShapeOptions shapes;
  GoogleOptions google;
};
std::optional<int> parse(const char* about, int argc, char** argv, CommandLine& o);

/// Returns the architecture to run. A build for a GPU has only `built_for`. Throws if there is no such device, unless
/// rows are only listed, and if times are to be modelled without a model.
ArchId choose_arch(const std::string& wanted, ArchId built_for, const GoogleOptions& google);
/// `entries` are those of this build.
template <class Entries>
ArchId choose_arch(const std::string& wanted, const Entries& entries, const GoogleOptions& google) {
  return choose_arch(wanted, emulated_device ? ArchId::gfx950 : entries.front()->arch, google);
}

class Progress;

/// Writes "<row>: text" to stderr; before the first row, `row` is the name of the tool.
struct RowLog {
  std::string row = tool_name;
  const Progress* progress = nullptr;  // progress on the same terminal

  void operator()(const std::string& text) const;
};

/// A row as it is reported, whether it was measured or not.
struct RowFacts {
  std::string name;
  Columns identity;  // columns that distinguish it from others
  int config_id;
  std::string entry_name, refusal;
  Columns results{};  // results that only this benchmark has, as they are where nothing was measured
};
template <class Row>
RowFacts row_facts(const Row& row) {
  RowFacts facts{row.name, row.identity(), row.config_id, row.entry_name(), row.refusal};
  if constexpr (requires { row.results(); }) facts.results = row.results();
  return facts;
}

/// Returns the names of all columns of such a row.
std::set<std::string> column_names(const RowFacts& row);

/// Runs rows 0 .. count - 1 in order and reports them in the requested format. Returns the exit status.
int run_rows(std::size_t count, const std::function<RowFacts(std::size_t)>& row, ArchId arch,
             const GoogleOptions& google, RowLog& log, const std::function<Measurement(std::size_t)>& run);
/// A row has a name, identity() columns, a config_id, an entry_name() and a refusal; run(row) returns its Measurement.
template <class Row, class Run>
int run_rows(const std::vector<Row>& rows, ArchId arch, const GoogleOptions& google, RowLog& log, const Run& run) {
  check_identities(rows);
  return run_rows(
      rows.size(), [&](std::size_t i) { return row_facts(rows[i]); }, arch, google, log,
      [&](std::size_t i) { return run(rows[i]); });
}

}  // namespace tilewave::bench
