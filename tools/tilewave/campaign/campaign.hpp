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

namespace tilewave::tool {

class Campaign {
 public:
  /// Makes the folder, the worktree and the manifest; refuses a folder that has a campaign.
  static void init(const std::filesystem::path& folder, Manifest manifest);

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
  double traced(const std::filesystem::path& file, std::string& kernel);
  bool command(const std::string& what, const std::string& shell, bool on_gpu, std::string& failure);
  bool measured(std::string& failure);  // build, test, quick, benchmark of the worktree into the round's folder
  std::string decide();
  std::string settle(const std::string& status, const std::string& reason);
  void take_patch();
  bool propose(const std::string& command, int repair);

  std::filesystem::path folder_;
  Manifest manifest_;
  State state_;
  int lock_ = -1;
};

/// Everything that people read: logs/optimize.md, logs/performance_trend.md, performance.md, rounds/*/summary.md,
/// memory/v<N>.json. Made anew from the state; a `masked` that stands in a memory file is kept.
void render(const Campaign& campaign);

/// The final report, as it stands in logs/optimize.md.
std::string final_report(const State& state);
std::string final_report_json(const State& state);

/// agent/historical_experience/<gpu>/<op>/<backend>/tips.md of the repository.
std::filesystem::path tips_path(const Manifest& manifest);

}  // namespace tilewave::tool
