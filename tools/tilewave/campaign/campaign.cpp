// SPDX-License-Identifier: MIT
#include "tools/tilewave/campaign/campaign.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "tools/tilewave/campaign/feedback.hpp"
#include "tools/tilewave/campaign/memory.hpp"
#include "tools/tilewave/campaign/quick.hpp"
#include "tools/tilewave/campaign/rules.hpp"
#include "tools/tilewave/campaign/targets.hpp"
#include "tools/tilewave/common/error.hpp"
#include "tools/tilewave/common/text.hpp"

namespace tilewave::tool {

namespace fs = std::filesystem;

namespace {

[[noreturn]] void conflict(const std::string& why) { throw Error(Exit::conflict, why); }

/// The processes that have the file open, "1234 (sleep)", other than this one.
std::string holders_of(const fs::path& file) {
  std::vector<std::string> found;
  std::error_code error;
  for (const auto& process : fs::directory_iterator("/proc", error)) {
    const std::string pid = process.path().filename().string();
    if (pid.find_first_not_of("0123456789") != std::string::npos || pid == std::to_string(::getpid())) continue;
    for (const auto& fd : fs::directory_iterator(process.path() / "fd", error)) {
      std::error_code gone;
      if (fs::read_symlink(fd.path(), gone) != file) continue;
      std::string name = "a process that is gone";
      try {
        name = trim(read_file((process.path() / "comm").string()));
      } catch (const Error&) {
      }
      found.push_back(fmt::format("{} ({})", pid, printable(name)));
      break;
    }
  }
  return found.empty() ? "a process of another user or host" : join(found, ", ");
}

/// Only one command at a time changes a campaign. Started processes inherit the descriptor, so a benchmark that
/// outlives a killed command still holds the lock.
int lock_folder(const fs::path& folder, double wait_s) {
  const int fd = ::open((folder / ".lock").c_str(), O_RDWR | O_CREAT, 0644);
  if (fd < 0) throw Error(Exit::failed, "cannot write " + (folder / ".lock").string());
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(wait_s);
  while (::flock(fd, LOCK_EX | LOCK_NB) != 0) {
    if (std::chrono::steady_clock::now() > end) {
      ::close(fd);
      conflict(fmt::format("another command, or what one started, still works on {}: {}", folder.string(),
                           holders_of(fs::canonical(folder / ".lock"))));
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  return fd;
}

std::string trailer(const Manifest& m, int round) { return fmt::format("Campaign-Round: {}/{}", m.name, round); }
}  // namespace

void Campaign::init(const fs::path& folder, Manifest m, const std::vector<std::string>& allowed) {
  if (fs::exists(folder / "manifest.yaml") || fs::exists(folder / "state.json"))
    conflict(folder.string() + " holds a campaign");
  parse_manifest(yaml_of(m), "the manifest");  // what is written must be readable
  const fs::path inside = fs::relative(fs::absolute(folder), m.worktree);
  if (!inside.empty() && *inside.begin() != "..")
    refuse("the campaign's folder lies in the worktree, which is reset after each round");
  Git::add_worktree(m.repository, m.worktree, branch_of(m));
  const auto named = Git(m.worktree, m.repository, branch_of(m))
                         .tracked(paths_in({m.benchmark_command, m.test_command, m.quick_command, m.trace_command,
                                            m.skew_command, m.build_command, m.format_command}));
  const auto among = [](const std::vector<std::string>& list, const std::string& file) {
    return std::any_of(list.begin(), list.end(), [&](const std::string& f) { return is_fixed(f, file); });
  };
  for (const std::string& file : named) {
    if (!among(m.fixed, file) && !among(allowed, file) && !among(m.kernel_source, file)) m.fixed.push_back(file);
  }
  for (const char* sub : {"logs", "profiles", "rounds", "memory", "plans"}) fs::create_directories(folder / sub);
  const fs::path quick = folder / "quick_test_bench.sh";
  write_atomically(quick, quick_script(m.benchmark_command, {}));
  if (m.quick_command.empty() && quick_form(m.benchmark_command)) m.quick_command = "sh " + shell_word(quick.string());
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
  const Git git = worktree();
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
  if (!worktree().clean()) conflict("the worktree has changes: the hypothesis comes before the edit");
  refresh_profile();
  state_.stage = Stage::proposing;
  state_.current = {};
  state_.current.number = static_cast<int>(state_.rounds.size()) + 1;
  state_.current.date = now_minute();
  state_.current.proposal = proposal;
  write_atomically(round_folder(state_.current.number) / "feedback.txt", feedback_of(state_, folder_));
  save();
}

/// Saves the candidate for good: a later change of the worktree does not matter to this round.
void Campaign::take_patch() {
  const Git git = worktree();
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
  finish(status, reason);
}

/// Writes the end of the round down, then brings it about.
std::string Campaign::finish(const std::string& status, const std::string& reason) {
  state_.current.status = status;
  state_.current.reason = reason;
  if (state_.best_round == 0) conflict("no baseline yet");
  state_.stage = Stage::closing;
  write_atomically(path("state.json"), json_of(state_));
  close();
  return status;
}

void Campaign::close() {
  const Git git = worktree();
  Round round = state_.current;
  if (round.status == "keep") {
    // A commit that a killed command made before is left behind: this one is the same again.
    git.reset_to(state_.best_commit);
    git.apply((round_folder(round.number) / "candidate.patch").string());
    State kept = state_;
    round.commit = "this commit";
    conclude_round(kept, round);
    const fs::path performance = fs::path(manifest_.worktree) / committed_performance(manifest_);
    fs::create_directories(performance.parent_path());
    write_atomically(performance, performance_md(kept, manifest_));
    git.commit_all(fmt::format("{}\n\n{}\nScore {:.4f} over the best before.\n\n{}\n", round.proposal.hypothesis,
                               round.reason, round.score, trailer(manifest_, round.number)));
    round.commit = git.head();
  } else {
    git.reset_to(state_.best_commit);
  }
  write_tips(round);
  conclude_round(state_, round);
  stop_if_due();
  save();
}

/// A tip is a promise until its round was measured; a lesson is of the round before, which was.
void Campaign::write_tips(const Round& round) {
  const auto line = [&](const std::string& text, const Round& r) {
    return fmt::format("- {} ({}, round {}, {}, {:+.1f} %)\n", text, manifest_.name, r.number, r.status,
                       (r.score - 1) * 100);
  };
  std::string lines;
  if (!round.proposal.lesson.empty() && state_.rounds.size() > 1)
    lines += line(round.proposal.lesson, state_.rounds.back());
  const bool measured = round.us > 0 && round.status != "incorrect";
  if (!round.proposal.tip.empty() && measured) lines += line(round.proposal.tip, round);
  if (lines.empty()) return;
  const fs::path tips = tips_path(manifest_);
  const std::string before = fs::exists(tips) ? read_file(tips.string())
                                              : fmt::format("# Tips: {} on {}, {}\n\n", manifest_.target_op,
                                                            manifest_.target_gpu, manifest_.target_backend);
  if (before.find(lines) == std::string::npos) write_atomically(tips, before + lines);
}

void Campaign::tip(const std::string& text, int number) {
  if (number == 0) number = static_cast<int>(state_.rounds.size());
  if (number < 1 || number > static_cast<int>(state_.rounds.size()))
    refuse(fmt::format("there is no round {}", number));
  Round round = state_.rounds[static_cast<std::size_t>(number) - 1];
  if (!(round.us > 0)) conflict(fmt::format("round {} was not measured: it taught nothing", number));
  round.proposal.lesson.clear(), round.proposal.tip = text;
  write_tips(round);
}

void Campaign::stop_if_due() {
  if (!state_.stopped.empty()) return;
  Csv best;
  std::optional<Roof> roof;
  const bool target = !manifest_.performance_target.empty();
  if (target) {
    best = read_csv((round_folder(state_.best_round) / "artifacts" / "bench.csv").string(), manifest_.primary_metric);
    roof = roof_for(manifest_, best);
  }
  const std::string why = stop_reason(state_, manifest_, target ? &best : nullptr, roof ? &*roof : nullptr);
  if (why.empty()) return;
  state_.stopped = why, state_.stopped_at = now_minute();
  state_.history.push_back(fmt::format("{}: stopped: {}", state_.stopped_at, why));
}

void Campaign::mask(int version, bool masked) { mask_memory(path("memory"), version, masked); }

void Campaign::stop(const std::string& reason) {
  state_.stopped = reason, state_.stopped_at = now_minute();
  state_.history.push_back(fmt::format("{}: stopped: {}", state_.stopped_at, reason));
  save();
}

void Campaign::resume(int max_iterations) {
  if (state_.stopped.empty()) conflict("the campaign has not stopped");
  if (max_iterations > 0) {
    manifest_.max_iterations = max_iterations;
    write_atomically(path("manifest.yaml"), yaml_of(manifest_));
  }
  const std::string was = state_.stopped;
  state_.stopped.clear(), state_.stopped_at.clear();
  state_.consecutive_regressions = 0, state_.recent_regressions.clear();
  if (state_.best_round > 0) stop_if_due();
  if (!state_.stopped.empty()) throw Error(Exit::stopped, "still stopped: " + state_.stopped);
  state_.history.push_back(fmt::format("{}: resumed after: {}", now_minute(), was));
  save();
}

}  // namespace tilewave::tool
