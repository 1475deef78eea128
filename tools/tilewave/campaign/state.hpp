// SPDX-License-Identifier: MIT
// state.json: where a campaign stands. Written atomically before and after each step; all logs are made from it.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tilewave::tool {

/// The change that is tried, in one sentence, and the reason why it may help.
struct Proposal {
  std::string hypothesis;
  std::string bucket;     // K1 to K4: the kernel; W1: a bounded cache of weights. W2 and W3 are not accepted
  std::string target;     // class that has to gain; empty: global
  std::string direction;  // a word that rounds of the same idea share
  std::string tip;        // what others may learn, if it is measured to be true
  std::string lesson;     // what the measurement of the round before taught, for tips.md
  std::vector<std::string> pitfalls;    // and their fixes, for the memory
  std::optional<double> real_gain_pct;  // of the real workload, if it is not what the benchmark shows
  std::optional<double> hit_rate;       // of a cache over four real steps
};

/// Refuses a proposal without hypothesis or bucket, buckets that benchmarks alone profit from, caches that a real
/// workload hits less than every second time, and what slows the real workload by its own estimate.
void check(const Proposal& proposal);

/// A finished round. status: baseline, keep, discard, tie, split, incorrect, failed or rejected.
struct Round {
  int number = 0;
  std::string date, status, commit, reason;
  Proposal proposal;
  int fix_attempts = 0;
  double score = 1, total = 1;  // over the best before it; over the baseline
  double us = 0, gpu_us = 0;    // geometric mean over classes of the candidate; mean kernel time (0: not traced)
  double best_us = 0, best_gpu_us = 0;
  std::string kernel;  // the hottest
  // From the profile: registers, LDS and the like of the hottest kernel, and what it waits for.
  std::map<std::string, double> launch;
  std::vector<std::string> bottlenecks;
  std::vector<std::string> routing;   // of a split or a keep: which class goes to which kernel
  std::vector<std::string> pitfalls;  // what went wrong and was repaired; numbers that are UNKNOWN
  std::string skew;                   // how the gain holds under skewed routing; empty: nothing is routed
  std::vector<std::string> files;
  std::map<std::string, double> classes;  // us by class
};

enum class Stage { idle, proposing, measuring, closing };

struct State {
  std::string fixed;  // fixed_part of the manifest at the baseline
  std::string best_commit;
  int best_round = 0;  // 0: no baseline yet
  int consecutive_regressions = 0, consecutive_rollbacks = 0;
  std::vector<Round> recent_regressions;  // at most 5
  std::vector<Round> rounds;
  std::string stopped;               // why, or empty
  std::string stopped_at;            // when
  std::vector<std::string> history;  // of stops and resumptions
  Stage stage = Stage::idle;
  Round current;  // unless idle
};

State parse_state(std::string_view json, const std::string& source);
std::string json_of(const State& state);

}  // namespace tilewave::tool
