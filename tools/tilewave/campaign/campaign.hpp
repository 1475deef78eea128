// SPDX-License-Identifier: MIT
// The state machine of a campaign over its worktree. Each step is written down before it is taken, so that after a kill at
// any moment the next command takes it again, with the same end.
#pragma once

#include <filesystem>
#include <string>

#include "tools/tilewave/campaign/git.hpp"
#include "tools/tilewave/campaign/manifest.hpp"
#include "tools/tilewave/campaign/state.hpp"
#include "tools/tilewave/common/csv.hpp"
#include "tools/tilewave/compare/compare.hpp"

namespace tilewave::tool {

class Campaign {
 public:
  /// Makes the folder, the worktree and the manifest; refuses a folder that has a campaign. Files that the commands name
  /// are fixed, too, unless they are sources of the kernel or allowed.
  static void init(const std::filesystem::path& folder, Manifest manifest,
                   const std::vector<std::string>& allowed = {});

  /// Reads manifest and state; to_change takes the lock (Exit::conflict if another command, or a benchmark that outlived
  /// its command, has it for longer than wait_s) and finishes what a killed command left.
  Campaign(std::filesystem::path folder, bool to_change, double wait_s = 10);
  ~Campaign();
  Campaign(const Campaign&) = delete;
  Campaign& operator=(const Campaign&) = delete;

  void baseline();
  /// Starts a round: the hypothesis comes before the edit.
  void begin(const Proposal& proposal);
  /// Build, test, benchmark, compare; keeps or rolls back. Of a wrong candidate with repairs left only "incorrect" comes
  /// back, and the round goes on. Returns the status of the round, or "repair".
  std::string validate();
  /// Ends the round without a measurement.
  void abandon(const std::string& status, const std::string& reason);
  /// begin, edit by the command, validate, until a stop rule; returns why.
  std::string run_loop(const std::string& command, int max_rounds);
  void stop(const std::string& reason);
  /// Goes on after a stop, with the count of regressions at 0; refuses while a stop rule still holds.
  void resume(int max_iterations);
  /// Adds the lesson of a measured round (0: the last) to tips.md.
  void tip(const std::string& text, int round);
  void report();
  void mask(int version, bool masked);

  const State& state() const { return state_; }
  const Manifest& manifest() const { return manifest_; }
  std::filesystem::path round_folder(int round) const;
  std::filesystem::path path(const std::string& name) const { return folder_ / name; }

 private:
  void save();  // the state, then all logs
  void recover();
  void close();  // what Stage::closing has decided
  void check_fixed() const;
  void stop_if_due();
  [[noreturn]] void conflict_baseline() const;
  void start_proposing();
  void take_proposal();
  std::filesystem::path profile_folder(int round) const;
  void refresh_profile();         // of the best version, unless it is there
  void take_trace(Round& round);  // kernel times and profile of what trace_command wrote
  void check_skew(Comparison& result, const Csv& base, const Csv& cand);
  void write_tips(const Round& round);
  /// round: whose artifacts; 0: the next.
  bool command(const std::string& what, const std::string& shell, bool on_gpu, std::string& failure, int round = 0);
  bool measured(std::string& failure);  // build, test, quick, benchmark of the worktree into the round's folder
  std::string decide();
  std::filesystem::path artifacts_of(int round) const;
  Csv measured_rows(const CompareOptions& options) const;  // of the current round
  Comparison measure_and_compare(const Csv& base, CompareOptions& options);
  std::string ask_for_repair(const Comparison& result);
  void compare_formatted(Comparison& result, const Csv& base, const CompareOptions& options);
  void compare_kernels(Comparison& result, const CompareOptions& options);
  void write_down(const Comparison& result, const CompareOptions& options);
  std::string finish(const std::string& status, const std::string& reason);
  void take_patch();
  Git worktree() const { return Git(manifest_.worktree, manifest_.repository, branch_of(manifest_)); }
  bool propose(const std::string& command, int repair);

  std::filesystem::path folder_;
  Manifest manifest_;
  State state_;
  int lock_ = -1;
};

/// Everything that people read: logs/optimize.md, logs/performance_trend.md, performance.md, rounds/*/summary.md,
/// memory/v<N>.json. Made anew from the state; a `masked` that stands in a memory file is kept.
void render(const Campaign& campaign);

/// Shows the current step to a person at a terminal.
void show_progress(const std::string& line);

/// The table of baseline and kept rounds, what was split, and a Stop Summary.
std::string performance_md(const State& state, const Manifest& manifest);
/// Returns the path in the worktree of the file that is committed with each kept round.
std::string committed_performance(const Manifest& manifest);

/// The final report, as it stands in logs/optimize.md.
std::string final_report(const State& state);
std::string final_report_json(const State& state);

/// agent/historical_experience/<gpu>/<op>/<backend>/tips.md of the repository.
std::filesystem::path tips_path(const Manifest& manifest);

}  // namespace tilewave::tool
