// SPDX-License-Identifier: MIT
#include "tools/tilewave/campaign/campaign.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <chrono>
#include <thread>

#include "tools/tilewave/campaign/memory.hpp"
#include "tools/tilewave/campaign/rules.hpp"
#include "tools/tilewave/common/error.hpp"
#include "tools/tilewave/common/text.hpp"

namespace tilewave::tool {

namespace fs = std::filesystem;

namespace {

[[noreturn]] void conflict(const std::string& why) { throw Error(Exit::conflict, why); }

/// One command at a time changes a campaign. The descriptor goes on to what is started, so that a benchmark that outlives
/// a killed command still holds the lock.
int lock_folder(const fs::path& folder, double wait_s) {
  const int fd = ::open((folder / ".lock").c_str(), O_RDWR | O_CREAT, 0644);
  if (fd < 0) throw Error(Exit::failed, "cannot write " + (folder / ".lock").string());
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(wait_s);
  while (::flock(fd, LOCK_EX | LOCK_NB) != 0) {
    if (std::chrono::steady_clock::now() > end) {
      ::close(fd);
      conflict("another command, or what a killed one started, still works on " + folder.string());
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  return fd;
}

std::string trailer(const Manifest& m, int round) { return fmt::format("Campaign-Round: {}/{}", m.name, round); }
}  // namespace

void Campaign::init(const fs::path& folder, Manifest m) {
  if (fs::exists(folder / "manifest.yaml") || fs::exists(folder / "state.json"))
    conflict(folder.string() + " holds a campaign");
  parse_manifest(yaml_of(m), "the manifest");  // what is written must be readable
  const fs::path inside = fs::relative(fs::absolute(folder), m.worktree);
  if (!inside.empty() && *inside.begin() != "..")
    refuse("the campaign's folder lies in the worktree, which is reset after each round");
  const bool detached = m.git_branch == "none" || !m.git_commit;
  Git(m.repository)
      .add_worktree(m.worktree, detached                 ? ""
                                : m.git_branch == "auto" ? "optimize/" + m.name
                                                         : m.git_branch);
  for (const char* sub : {"logs", "profiles", "rounds", "memory"}) fs::create_directories(folder / sub);
  write_atomically(folder / "state.json", json_of(State{}));
  write_atomically(folder / "manifest.yaml", yaml_of(m));
}

Campaign::Campaign(fs::path folder, bool to_change, double wait_s) : folder_(fs::absolute(folder)) {
  const auto file = [&](const char* name) { return (folder_ / name).string(); };
  if (!fs::exists(file("manifest.yaml"))) refuse(folder_.string() + " holds no campaign: no manifest.yaml");
  if (to_change) lock_ = lock_folder(folder_, wait_s);
  manifest_ = parse_manifest(read_file(file("manifest.yaml")), file("manifest.yaml"));
  state_ = parse_state(read_file(file("state.json")), file("state.json"));
  if (to_change) recover();
}

Campaign::~Campaign() {
  if (lock_ >= 0) ::close(lock_);
}

fs::path Campaign::round_folder(int round) const { return folder_ / "rounds" / fmt::format("round-{}", round); }

void Campaign::save() {
  write_atomically(path("state.json"), json_of(state_));
  render(*this);
}

void Campaign::check_fixed() const {
  if (state_.best_round > 0 && state_.fixed != fixed_part(manifest_)) {
    conflict(
        "manifest.yaml: commands, shapes, map, classes, fixed paths or tie_percent differ from those of the baseline");
  }
}

/// The state says what was going on; the worktree is brought to where that begins.
void Campaign::recover() {
  const Git git(manifest_.worktree);
  if (state_.best_round == 0) return;
  check_fixed();
  switch (state_.stage) {
    case Stage::closing: close(); break;
    case Stage::measuring: {  // from the saved patch, whatever became of the worktree
      git.reset_to(state_.best_commit);
      git.apply((round_folder(state_.current.number) / "candidate.patch").string());
      break;
    }
    case Stage::proposing: break;  // somebody edits
    case Stage::idle:
      if (git.head() != state_.best_commit) {
        conflict(fmt::format("{} is at {}, not at BEST_COMMIT {}", manifest_.worktree, git.head(), state_.best_commit));
      }
  }
  render(*this);
}

void Campaign::begin(const Proposal& proposal) {
  check(proposal);
  if (state_.best_round == 0) conflict("no baseline yet");
  if (!state_.stopped.empty()) throw Error(Exit::stopped, "stopped: " + state_.stopped);
  if (state_.stage != Stage::idle) conflict(fmt::format("round {} is not over", state_.current.number));
  if (!Git(manifest_.worktree).clean()) conflict("the worktree has changes: the hypothesis comes before the edit");
  state_.stage = Stage::proposing;
  state_.current = {};
  state_.current.number = static_cast<int>(state_.rounds.size()) + 1;
  state_.current.date = now_minute();
  state_.current.proposal = proposal;
  save();
}

/// What the candidate is, for good: a later change of the worktree does not matter to this round.
void Campaign::take_patch() {
  const Git git(manifest_.worktree);
  if (git.head() != state_.best_commit) {  // a proposer that commits: its commits are part of the patch
    const std::string patch = git.patch_from(state_.best_commit);
    write_atomically(round_folder(state_.current.number) / "candidate.patch", patch);
    state_.current.files = git.files_from(state_.best_commit);
    git.reset_to(state_.best_commit);
    git.apply((round_folder(state_.current.number) / "candidate.patch").string());
  } else {
    write_atomically(round_folder(state_.current.number) / "candidate.patch", git.patch_from(state_.best_commit));
    state_.current.files = git.files_from(state_.best_commit);
  }
}

void Campaign::abandon(const std::string& status, const std::string& reason) {
  if (state_.stage == Stage::idle) conflict("no round to abandon");
  settle(status, reason);
}

/// Writes the end of the round down, then brings it about.
std::string Campaign::settle(const std::string& status, const std::string& reason) {
  state_.current.status = status;
  state_.current.reason = reason;
  if (state_.best_round == 0) conflict("no baseline yet");
  state_.stage = Stage::closing;
  write_atomically(path("state.json"), json_of(state_));
  close();
  return status;
}

void Campaign::close() {
  const Git git(manifest_.worktree);
  Round round = state_.current;
  if (round.status == "keep") {
    // A commit that a killed command made before is left behind: this one is the same again.
    git.reset_to(state_.best_commit);
    git.apply((round_folder(round.number) / "candidate.patch").string());
    git.commit_all(fmt::format("{}\n\n{}\nScore {:.4f} over the best before.\n\n{}\n", round.proposal.hypothesis,
                               round.reason, round.score, trailer(manifest_, round.number)));
    round.commit = git.head();
  } else {
    git.reset_to(state_.best_commit);
  }
  if (!round.proposal.tip.empty()) {
    const fs::path tips = tips_path(manifest_);
    const std::string line = fmt::format("- {} ({}, round {}, {}, {:+.1f} %)\n", round.proposal.tip, manifest_.name,
                                         round.number, round.status, (round.score - 1) * 100);
    const std::string before = fs::exists(tips) ? read_file(tips.string())
                                                : fmt::format("# Tips: {} on {}, {}\n\n", manifest_.target_op,
                                                              manifest_.target_gpu, manifest_.target_backend);
    if (before.find(fmt::format("({}, round {},", manifest_.name, round.number)) == std::string::npos)
      write_atomically(tips, before + line);
  }
  conclude_round(state_, round);
  stop_if_due();
  save();
}

void Campaign::stop_if_due() {
  if (!state_.stopped.empty()) return;
  Csv best;
  const bool target = !manifest_.performance_target.empty();
  if (target)
    best = read_csv((round_folder(state_.best_round) / "artifacts" / "bench.csv").string(), manifest_.primary_metric);
  state_.stopped = stop_reason(state_, manifest_, target ? &best : nullptr);
}

void Campaign::mask(int version, bool masked) { mask_memory(path("memory"), version, masked); }

void Campaign::stop(const std::string& reason) {
  state_.stopped = reason;
  save();
}

}  // namespace tilewave::tool
