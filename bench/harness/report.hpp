// SPDX-License-Identifier: MIT
// Reporters for Google Benchmark. Its own know no columns but doubles of six digits, take their columns from the first row,
// add `/iterations:1/manual_time` to every name, and do not notice that nobody can read what they write.
#pragma once

#include <benchmark/benchmark.h>
#include <unistd.h>

#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <ostream>
#include <stdexcept>
#include <string>
#include <vector>

#include "bench/harness/column.hpp"

namespace tilewave::bench {

/// What a run has to report, as its rows come.
struct Report {
  Columns header;  // every row has these names
  Columns row;     // the last that ran; empty: it was left out
};

/// What is not finite becomes null, which is all that JSON has for it.
inline nlohmann::ordered_json json_of(const Columns& row) {
  nlohmann::ordered_json object = nlohmann::ordered_json::object();
  for (const Column& column : row) {
    std::visit([&](const auto& value) { object[column.name] = value; }, column.value);
  }
  return object;
}

/// Throws unless all of `text` has left for its file.
inline void write_whole(std::ostream& out, const std::string& text, const std::string& file) {
  if (!(out << text).flush()) throw std::runtime_error("cannot write to " + file);
}

class CsvReporter : public benchmark::BenchmarkReporter {
 public:
  CsvReporter(const Report& report, std::string file) : report_(report), file_(std::move(file)) {}

  bool ReportContext(const Context&) override {
    write_whole(GetOutputStream(), csv_header(report_.header), file_);
    return true;
  }
  void ReportRuns(const std::vector<Run>&) override {
    if (!report_.row.empty()) write_whole(GetOutputStream(), csv_line(report_.row), file_);
  }

 private:
  const Report& report_;
  std::string file_;
};

/// Google Benchmark's object of `context` and `benchmarks`, each of which is a row with its columns.
class JsonReporter : public benchmark::JSONReporter {
 public:
  JsonReporter(const Report& report, std::string file) : report_(report), file_(std::move(file)) {}

  bool ReportContext(const Context& context) override {
    benchmark::JSONReporter::ReportContext(context);
    write_whole(GetOutputStream(), "", file_);
    return true;
  }
  void ReportRuns(const std::vector<Run>&) override {
    if (report_.row.empty()) return;
    write_whole(GetOutputStream(), (first_ ? "    " : ",\n    ") + json_of(report_.row).dump(), file_);
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

/// For people: time, rate and verdict of each row.
class ConsoleReporter : public benchmark::ConsoleReporter {
 public:
  /// What Google Benchmark tells of a machine, on stderr.
  static void print_context() { PrintBasicContext(&std::cerr, Context()); }

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
