// SPDX-License-Identifier: MIT
// What the command lines of all benchmarks share: options, Google Benchmark's set-up, rows, exit statuses. Compiled once, in
// tool.cpp and what it includes; a benchmark's program holds what knows its op.
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

inline constexpr int exit_wrong = 1, exit_usage = 2, exit_signal = 128;  // plus the signal

/// Of this process, for its messages.
inline std::string tool_name;

/// The message on stderr, and the status to exit with.
int fail(const std::string& message);

/// What a benchmark with two names was called by.
std::string called(const char* path);

/// main of a benchmark: body(), with an exception turned into a message.
int run_tool(const char* name, const std::function<int()>& body);

struct ToolOptions {
  std::string arch;
  std::string policies = "selected";
  std::uint64_t seed = 123;
  int every = 1;
};
void declare(CLI::App& app, ToolOptions& o, MeasureOptions& measure);

/// Every Nth of the rows whose names are wanted, from the first on.
template <class Row, class Wanted>
void keep(std::vector<Row>& rows, const Wanted& wanted, int every) {
  int seen = 0;
  std::erase_if(rows, [&](const Row& row) { return !wanted(row.name) || seen++ % every != 0; });
}

/// Parse what was declared; the rest stays in app.remaining(). An exit status if that was all there is to do.
std::optional<int> parse(CLI::App& app, int argc, char** argv);

/// Hand the remaining arguments to Google Benchmark; returns those that the harness answers itself.
GoogleOptions initialize_google(std::vector<std::string> rest);

/// The command line of a benchmark without options of its own.
struct CommandLine {
  ToolOptions tool;
  MeasureOptions measure;
  ShapeOptions shapes;
  GoogleOptions google;
};
std::optional<int> parse(const char* about, int argc, char** argv, CommandLine& o);

/// The architecture to run, of which a build for a GPU has one, `built_for`. Throws if there is no such device and rows are
/// not only listed, and if times are to be modelled and there is no model.
ArchId choose_arch(const std::string& wanted, ArchId built_for, const GoogleOptions& google);
/// `entries`: of this build.
template <class Entries>
ArchId choose_arch(const std::string& wanted, const Entries& entries, const GoogleOptions& google) {
  return choose_arch(wanted, emulated_device ? ArchId::gfx950 : entries.front()->arch, google);
}

class Progress;

/// Writes "<row>: text" to stderr; `row` is the tool before the first one.
struct RowLog {
  std::string row = tool_name;
  const Progress* progress = nullptr;  // drawn on the same terminal

  void operator()(const std::string& text) const;
};

/// A row as it is reported, measured or not.
struct RowFacts {
  std::string name;
  Columns identity;  // what tells it from others
  int config_id;
  std::string entry_name, refusal;
};
template <class Row>
RowFacts row_facts(const Row& row) {
  return {row.name, row.identity(), row.config_id, row.entry_name(), row.refusal};
}

/// Of all columns of such a row.
std::set<std::string> column_names(const RowFacts& row);

/// Run rows 0 .. count - 1 in order and report them in the format asked for. Returns the exit status.
int run_rows(std::size_t count, const std::function<RowFacts(std::size_t)>& row, ArchId arch,
             const GoogleOptions& google, RowLog& log, const std::function<Measurement(std::size_t)>& run);
/// A row has a name, identity() columns, a config_id, an entry_name() and a refusal; run(row) is its Measurement.
template <class Row, class Run>
int run_rows(const std::vector<Row>& rows, ArchId arch, const GoogleOptions& google, RowLog& log, const Run& run) {
  check_identities(rows);
  return run_rows(
      rows.size(), [&](std::size_t i) { return row_facts(rows[i]); }, arch, google, log,
      [&](std::size_t i) { return run(rows[i]); });
}

}  // namespace tilewave::bench
