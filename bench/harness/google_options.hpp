// SPDX-License-Identifier: MIT
// Google Benchmark's own options, which are checked before it sees them. It would answer some bad values with its usage
// on stdout and exit 0, others with two lines, and some only after the first row has run.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace tilewave::bench {

/// Refuses bad `--benchmark_*` arguments and environment variables with std::invalid_argument. It removes the minimum
/// times: a row is one iteration, so they change nothing, but releases differ in how they read them.
void check_google_options(std::vector<std::string>& arguments);

/// Google Benchmark's options that the harness handles itself, and its filter.
struct GoogleOptions {
  std::string format, out, out_format, filter;
  bool list = false;

  GoogleOptions() = default;
  explicit GoogleOptions(const std::vector<std::string>& arguments);
};

/// Returns Google Benchmark's filter: an extended regular expression that is searched in the name; a leading `-` keeps
/// the other names. Throws std::invalid_argument if it is malformed.
std::function<bool(const std::string&)> row_filter(const std::string& filter);

}  // namespace tilewave::bench
