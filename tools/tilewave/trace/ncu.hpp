// SPDX-License-Identifier: MIT
// The data of Nsight Compute on kernels: the pages `details` and `source` of a report, as `ncu --import F --page P
// --csv` prints them.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tools/tilewave/trace/thread_trace.hpp"

namespace tilewave::tool {

inline constexpr const char* ncu_duration = "gpu__time_duration.sum";  // "Duration" on page details

/// ncu writes 1,234.5 for thousands in an English locale. Refuses what is no number.
double ncu_number(const std::string& word, const std::string& where);
/// Returns the microseconds of a unit of time.
double ncu_microseconds(const std::string& unit, const std::string& where);

struct NcuMetric {
  std::string name, unit;
  double value;
};

/// Advice by the profiler's own rules, with the gain in % of the kernel's time that it expects, where it says one: what it
/// calls local is of one unit's work, and none.
struct NcuRule {
  std::string name, text;
  std::optional<double> gain;
};

/// One launch.
struct NcuKernel {
  std::string kernel;
  double us = 0;
  std::vector<NcuMetric> metrics;  // numbers alone
  std::vector<NcuRule> rules;      // to optimise by

  std::optional<double> find(std::string_view metric) const;
  std::map<std::string, double> use() const;  // KernelTime::launch
};

/// Page details, in the order of launches. Refuses a file without a duration.
std::vector<NcuKernel> parse_ncu_details(std::string_view csv, const std::string& source);
/// Returns the longest launch of each kernel, longest first.
std::vector<NcuKernel> longest_of(std::vector<NcuKernel> launches);

/// Page source with --print-source sass: a trace for each kernel, in samples of warps. An instruction's kind is what most
/// of the samples in which it did not issue waited for.
std::vector<ThreadTrace> parse_ncu_source(std::string_view csv, const std::string& source);

/// Page source with --print-source cuda,sass: source lines for the instructions of `traces`. Of lines that were inlined
/// into each other the one of an op's own file. Nothing, where kernels were compiled without -lineinfo.
void add_ncu_lines(std::string_view csv, const std::string& source, std::vector<ThreadTrace>& traces);

/// Lines of /bin/sh that record a command's kernels, whose demangled names match, and write the pages above as
/// FOLDER/out_ncu.csv, out_ncu_source.csv and out_ncu_lines.csv. `options` of ncu end with a space; `folder` is a word of
/// the shell.
std::string ncu_script(const std::string& kernels, const std::string& options, const std::string& command,
                       const std::string& folder);

}  // namespace tilewave::tool
