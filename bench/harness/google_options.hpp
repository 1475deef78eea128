// SPDX-License-Identifier: MIT
// Google Benchmark's own options, checked before it sees them. Left alone it answers some bad values with its usage on
// stdout and exit 0, others with two lines, and writes some only when the first row has run.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace tilewave::bench {

/// Refuses with std::invalid_argument what is wrong with `--benchmark_*` arguments or with their environment variables.
/// Takes the minimum times out: a row is one iteration, so they change nothing, but releases differ in how they read them.
void check_google_options(std::vector<std::string>& arguments);

/// Google Benchmark's options that the harness answers itself, and its filter.
struct GoogleOptions {
  std::string format, out, out_format, filter;
  bool list = false;

  GoogleOptions() = default;
  explicit GoogleOptions(const std::vector<std::string>& arguments);
};

/// Google Benchmark's filter: an extended regular expression searched in the name; a leading `-` keeps the others.
/// Throws std::invalid_argument if it is malformed.
std::function<bool(const std::string&)> row_filter(const std::string& filter);

}  // namespace tilewave::bench
