// SPDX-License-Identifier: MIT
// Reporters for Google Benchmark. Its own reporters know only doubles of six digits, take their columns from the first
// row and add `/iterations:1/manual_time` to every name. They also do not notice when their output cannot be written.
#pragma once

#include <benchmark/benchmark.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <ostream>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "bench/harness/column.hpp"

namespace tilewave::bench {

/// The results of a run, as its rows come.
struct Report {
  Columns header;  // every row has these names
  Columns row;     // the last row that ran; empty: it was left out
};

/// Returns Google Benchmark's own fields of a run, as its reporters write them, for tools that read its files.
/// real_time is `us`. cpu_time is that of its loop, in which the host does nothing. Both are nan where nothing was
/// timed.
inline Columns google_columns(const benchmark::BenchmarkReporter::Run& run, const std::string& name, double us) {
  const double cpu = std::isnan(us) ? us : run.GetAdjustedCPUTime();
  return {{"family_index", std::int64_t{run.family_index}},
          {"per_family_instance_index", std::int64_t{run.per_family_instance_index}},
          {"run_name", name},
          {"run_type", std::string("iteration")},
          {"repetitions", std::int64_t{run.repetitions}},
          {"repetition_index", std::int64_t{run.repetition_index}},
          {"threads", std::int64_t{run.threads}},
          {"iterations", std::int64_t{run.iterations}},
          {"real_time", us},
          {"cpu_time", cpu},
          {"time_unit", std::string(benchmark::GetTimeUnitString(run.time_unit))}};
}

/// Returns a row with Google Benchmark's fields behind its own. None of its own is replaced: `threads` belongs to some
/// policies.
inline Columns with_google(Columns row, const benchmark::BenchmarkReporter::Run& run) {
  const auto find = [&](std::string_view name) {
    return std::find_if(row.begin(), row.end(), [&](const Column& column) { return column.name == name; });
  };
  const Columns own =
      google_columns(run, std::get<std::string>(find("name")->value), std::get<double>(find("us")->value));
  for (const Column& column : own)
    if (find(column.name) == row.end()) row.push_back(column);
  return row;
}

/// Returns a row as JSON. Values that are not finite become null, which is all that JSON has for them.
inline nlohmann::ordered_json json_of(const Columns& row) {
  nlohmann::ordered_json object = nlohmann::ordered_json::object();
  for (const Column& column : row) {
    std::visit([&](const auto& value) { object[column.name] = value; }, column.value);
  }
  return object;
}

/// Throws unless all of `text` has reached its file.
inline void write_whole(std::ostream& out, const std::string& text, const std::string& file) {
  if (!(out << text).flush()) throw std::runtime_error("cannot write to " + file);
}

class CsvReporter : public benchmark::BenchmarkReporter {
 public:
  CsvReporter(const Report& report, std::string file) : report_(report), file_(std::move(file)) {}

  bool ReportContext(const Context&) override {
    write_whole(GetOutputStream(), csv_header(with_google(report_.header, {})), file_);
    return true;
  }
  void ReportRuns(const std::vector<Run>& runs) override {
    if (!report_.row.empty()) write_whole(GetOutputStream(), csv_line(with_google(report_.row, runs.front())), file_);
  }

 private:
  const Report& report_;
  std::string file_;
};

/// Writes Google Benchmark's object of `context` and `benchmarks`, in which every row has its columns.
class JsonReporter : public benchmark::JSONReporter {
 public:
  JsonReporter(const Report& report, std::string file) : report_(report), file_(std::move(file)) {}

  bool ReportContext(const Context& context) override {
    benchmark::JSONReporter::ReportContext(context);
    write_whole(GetOutputStream(), "", file_);
    return true;
  }
  void ReportRuns(const std::vector<Run>& runs) override {
    if (report_.row.empty()) return;
    const Columns row = with_google(report_.row, runs.front());
    write_whole(GetOutputStream(), (first_ ? "    " : ",\n    ") + json_of(row).dump(), file_);
    first_ = false;
  }
  void Finalize() override {
    benchmark::JSONReporter::Finalize();
    write_whole(GetOutputStream(), "", file_);
  }

 private:
  const Report& report_;
  std::string file_;
  bool first_ = true;
};

/// Prints the time, the rate and the verdict of each row for people.
class ConsoleReporter : public benchmark::ConsoleReporter {
 public:
  /// Prints Google Benchmark's description of the machine on stderr, without its own build type: its clock times
  /// nothing here.
  static void print_context() {
    std::stringstream context;
    PrintBasicContext(&context, Context());
    for (std::string line; std::getline(context, line);)
      if (line.find("Library was built as DEBUG") == line.npos) std::cerr << line << "\n";
  }

  ConsoleReporter(const Report& report, std::string file)
      : benchmark::ConsoleReporter(isatty(STDOUT_FILENO) != 0 ? OO_ColorTabular : OO_Tabular),
        report_(report),
        file_(std::move(file)) {}

  bool ReportContext(const Context& context) override {
    name_field_width_ = context.name_field_width;
    return true;
  }
  void ReportRuns(const std::vector<Run>& runs) override {
    if (report_.row.empty()) return;
    std::vector<Run> named = runs;
    for (Run& run : named) run.run_name.iterations = run.run_name.time_type = "";
    benchmark::ConsoleReporter::ReportRuns(named);
    write_whole(GetOutputStream(), "", file_);
  }

 private:
  const Report& report_;
  std::string file_;
};

inline std::unique_ptr<benchmark::BenchmarkReporter> reporter_for(const std::string& format, const Report& report,
                                                                  const std::string& file) {
  if (format == "csv") return std::make_unique<CsvReporter>(report, file);
  if (format == "json") return std::make_unique<JsonReporter>(report, file);
  return std::make_unique<ConsoleReporter>(report, file);
}

}  // namespace tilewave::bench
