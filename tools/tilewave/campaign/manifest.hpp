// SPDX-License-Identifier: MIT
// manifest.yaml: what a campaign optimises, and the commands that are fixed for all of it.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "tools/tilewave/campaign/fixed.hpp"

namespace tilewave::tool {

struct Manifest {
  // Fields with the names of the campaign documents. They are empty where those allow null.
  std::string name, target_op, target_backend, target_lang, target_gpu,
      execution_mode = "repo", project_skill, performance_target, primary_metric = "us", target_shapes = "all",
      test_command, benchmark_command, quick_command;
  std::vector<std::string> kernel_source, representative_shapes;
  bool git_commit = true;
  std::string git_branch = "auto";
  int max_iterations = 0;  // 0: null
  std::string created;
  // Fields that the state machine needs besides.
  std::string repository, worktree;                  // absolute
  std::string build_command, format_command;         // may be empty
  std::string trace_command;                         // writes a kernel trace to $TILEWAVE_TRACE; may be empty
  std::string trace_kernel;                          // regular expression; empty: all
  std::string trace_per_call;                        // as compare --per-call
  std::string skew_command;                          // a benchmark of skewed routing, where a gain has to hold
  std::string upstream, upstream_commit;             // workspace mode: where the stack was taken from
  std::string target_chip;                           // whose roof; empty: that of the rows, or of target_gpu
  std::string target_peak = "auto";                  // of its matrix peaks: by the rows' types, or bf16, fp8, fp4
  std::string map;                                   // as compare --map
  std::vector<std::string> by;                       // as compare --by
  std::vector<std::string> fixed = default_fixed();  // paths that a candidate must not touch
  double tie_percent = 1;
  std::string gpu = "none";  // none, or wait: every test and benchmark runs on an idle GPU
  std::string gpu_retry = "10m", gpu_limit = "1h", timeout = "1h";
};

/// Refuses broken YAML, unknown keys, wrong types and missing or senseless values, naming the key.
Manifest parse_manifest(std::string_view yaml, const std::string& source);
std::string yaml_of(const Manifest& manifest);

/// The branch of the worktree; empty: none, detached.
std::string branch_of(const Manifest& manifest);

/// The part that must not change after the baseline, as one text.
std::string fixed_part(const Manifest& manifest);

}  // namespace tilewave::tool
