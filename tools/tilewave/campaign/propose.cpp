// SPDX-License-Identifier: MIT
// The proposals of `campaign run`, and its loop.
#include <fmt/format.h>
#include <unistd.h>

#include "tools/tilewave/campaign/campaign.hpp"
#include "tools/tilewave/campaign/feedback.hpp"
#include "tools/tilewave/campaign/proposal.hpp"
#include "tools/tilewave/campaign/rules.hpp"
#include "tools/tilewave/common/error.hpp"
#include "tools/tilewave/common/process.hpp"
#include "tools/tilewave/common/text.hpp"

namespace tilewave::tool {

namespace fs = std::filesystem;

void show_progress(const std::string& line) {
  if (::isatty(STDERR_FILENO)) fmt::print(stderr, "tilewave: {}\n", line);
}

/// Lets the command edit the worktree; its proposal comes with it. False if it has no more.
bool Campaign::propose(const std::string& command, int repair) {
  const int number = static_cast<int>(state_.rounds.size()) + 1;
  const fs::path folder = round_folder(number), file = folder / "proposal.json";
  fs::create_directories(folder);
  if (repair == 0) {
    fs::remove(file);
    write_atomically(folder / "feedback.txt", feedback_of(state_, folder_));
  }
  ProcessOptions o;
  o.folder = manifest_.worktree, o.out_path = (folder / "propose.log").string(), o.errors_too = true,
  o.timeout_s = seconds_of(manifest_.timeout), o.end_strays = true;
  o.variables = Git::environment(manifest_.worktree), o.without = Git::redirections();
  for (const auto& [key, value] :
       std::map<std::string, std::string>{{"TILEWAVE_CAMPAIGN", folder_.string()},
                                          {"TILEWAVE_ROUND", std::to_string(number)},
                                          {"TILEWAVE_PROPOSAL", file.string()},
                                          {"TILEWAVE_REPAIR", std::to_string(repair)},
                                          {"TILEWAVE_FEEDBACK", (folder / "feedback.txt").string()},
                                          {"TILEWAVE_PROFILE", profile_folder(state_.best_round).string()},
                                          {"TILEWAVE_TIPS", tips_path(manifest_).string()}})
    o.variables[key] = value;
  show_progress(fmt::format("round {}: {}", number, repair > 0 ? fmt::format("repair {}", repair) : "proposal"));
  const ProcessResult result = run_shell(command, o);
  if (result.status != 0) {
    worktree().reset_to(state_.best_commit);
    state_.stage = Stage::idle, state_.current = {};
    stop(result.timed_out ? "the proposer did not end within " + manifest_.timeout
                          : fmt::format("the proposer ended with status {}", result.status));
    return false;
  }
  return true;
}

std::string Campaign::run_loop(const std::string& command, int max_rounds) {
  if (state_.best_round == 0) baseline();
  const Git git = worktree();
  if (state_.stage == Stage::proposing && state_.current.fix_attempts == 0 &&
      !state_.current.proposal.hypothesis.empty()) {
    throw Error(Exit::conflict,
                fmt::format("round {} was begun by hand: validate or abandon it", state_.current.number));
  }
  int failures = 0;
  for (int done = 0; state_.stopped.empty() && (max_rounds == 0 || done < max_rounds);) {
    if (state_.stage == Stage::proposing && state_.current.fix_attempts > 0) {
      git.reset_to(state_.best_commit);
      git.apply((round_folder(state_.current.number) / "candidate.patch").string());
      if (!propose(command, state_.current.fix_attempts)) break;
    } else if (state_.stage != Stage::measuring) {  // idle, or killed while it was being edited
      start_proposing();
      if (!propose(command, 0)) break;
      take_proposal();
    }
    if (state_.stage != Stage::idle && validate() == "repair") continue;
    ++done;
    const Round& last = state_.rounds.back();
    fmt::print(stderr, "tilewave: round {}: {} ({})\n", last.number, last.status, last.reason);
    failures = last.status == "failed" || last.status == "rejected" ? failures + 1 : 0;
    if (failures >= max_regressions && state_.stopped.empty())
      stop(fmt::format("{} proposals in a row could not be measured", failures));
  }
  return state_.stopped;
}

/// The stage is written down first: a proposer may commit, and be killed.
void Campaign::start_proposing() {
  state_.stage = Stage::proposing;
  state_.current = {};
  state_.current.number = static_cast<int>(state_.rounds.size()) + 1;
  state_.current.date = now_minute();
  save();
  worktree().reset_to(state_.best_commit);
  refresh_profile();
}

void Campaign::take_proposal() {
  const fs::path file = round_folder(state_.current.number) / "proposal.json";
  std::string refused;
  try {
    state_.current.proposal = parse_proposal(read_file(file.string()), file.string());
    check(state_.current.proposal);
  } catch (const Error& error) {
    refused = error.what();
  }
  take_patch();
  state_.stage = Stage::measuring;
  save();
  if (!refused.empty()) finish("rejected", refused);
}

}  // namespace tilewave::tool
