// SPDX-License-Identifier: MIT
// Other programs: run to their end, with a time limit, their output in memory or in a file.
#pragma once

#include <map>
#include <string>
#include <vector>

namespace tilewave::tool {

struct ProcessOptions {
  std::string folder{};                            // to run in; empty: this one
  std::map<std::string, std::string> variables{};  // added to the environment
  std::vector<std::string> without{};              // taken out of it
  double timeout_s = 0;                            // 0: none
  std::string out_path{};                          // stdout goes there instead of into the result
  bool errors_too = false;                         // stderr goes where stdout goes; else to ours
  bool quiet = false;                              // stderr goes nowhere
  bool end_strays = false;                         // what it started and left behind in its process group is killed
  std::size_t max_bytes = std::size_t{1} << 28;    // of captured output; more is cut off
};

struct ProcessResult {
  int status = 0;  // exit status; 128 + signal; 127 if it could not be started
  bool timed_out = false;
  std::string out;
};

/// Ctrl-C and SIGTERM go on to the program and all that it started.
ProcessResult run_process(const std::vector<std::string>& words, const ProcessOptions& options = {});
/// Runs a command with /bin/sh.
ProcessResult run_shell(const std::string& command, const ProcessOptions& options = {});

/// True if a program is on PATH.
bool on_path(const std::string& program);

/// "90s", "10m", "1h", "2d", or seconds; refuses anything else.
double seconds_of(const std::string& duration);

}  // namespace tilewave::tool
