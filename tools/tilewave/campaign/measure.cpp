// SPDX-License-Identifier: MIT
// The part of a round that takes time: build, test, benchmark, trace, compare, and the proposals of `campaign run`.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>

#include "tools/tilewave/campaign/campaign.hpp"
#include "tools/tilewave/campaign/proposal.hpp"
#include "tools/tilewave/campaign/rules.hpp"
#include "tools/tilewave/common/error.hpp"
#include "tools/tilewave/common/process.hpp"
#include "tools/tilewave/common/text.hpp"
#include "tools/tilewave/compare/report.hpp"
#include "tools/tilewave/gpu/wait.hpp"
#include "tools/tilewave/trace/kernel_times.hpp"

namespace tilewave::tool {

namespace fs = std::filesystem;

namespace {

CompareOptions options_of(const Manifest& m, const std::string& target) {
  CompareOptions o;
  o.map = column_map(m.map);
  if (m.map.empty()) o.map.us = m.primary_metric;
  o.by = m.by, o.tie_pct = m.tie_percent, o.target = target;
  return o;
}

double geomean(const Comparison& c) {
  double sum = 0;
  for (const ClassResult& r : c.classes) sum += std::log(r.cand_us);
  return c.classes.empty() ? 0 : std::exp(sum / static_cast<double>(c.classes.size()));
}

void progress(const std::string& line) {
  if (::isatty(STDERR_FILENO)) fmt::print(stderr, "tilewave: {}\n", line);
}

}  // namespace

/// Runs one of the manifest's commands in the worktree, its output in the round's artifacts; false, with why, if it fails.
bool Campaign::command(const std::string& what, const std::string& shell, bool on_gpu, std::string& failure) {
  if (shell.empty()) return true;
  const fs::path artifacts = round_folder(static_cast<int>(state_.rounds.size()) + 1) / "artifacts";
  fs::create_directories(artifacts);
  ProcessOptions o;
  o.folder = manifest_.worktree, o.timeout_s = seconds_of(manifest_.timeout);
  o.variables = {{"TILEWAVE_OUT", artifacts.string()},
                 {"TILEWAVE_TRACE", (artifacts / "trace.csv").string()},
                 {"TILEWAVE_CAMPAIGN", folder_.string()}};
  BoundGpu gpu;
  if (on_gpu && manifest_.gpu == "wait") {
    gpu = wait_for_gpu({seconds_of(manifest_.gpu_retry), seconds_of(manifest_.gpu_limit), 1});
    o.variables[gpu.variable] = std::to_string(gpu.gpu.index);
  }
  // stdout of the benchmark is the CSV: it has a file to itself, complete or not there.
  const bool csv = what == "bench";
  o.out_path = (artifacts / (csv ? "bench.csv.part" : what + ".log")).string();
  o.errors_too = !csv;
  progress(fmt::format("round {}: {}", state_.rounds.size() + 1, what));
  const ProcessResult result = run_shell(csv ? shell + " 2>\"$TILEWAVE_OUT/bench.log\"" : shell, o);
  if (gpu.lock >= 0) ::close(gpu.lock);
  if (result.timed_out) {
    failure = fmt::format("{}: no end within {}", what, manifest_.timeout);
  } else if (result.status != 0) {
    failure = fmt::format("{}: exit status {}, see {}.log", what, result.status, what);
  }
  if (csv) fs::rename(artifacts / "bench.csv.part", artifacts / "bench.csv");
  return failure.empty();
}

/// Status 1 of the benchmark means wrong rows, which the CSV shows; other failures are failures.
bool Campaign::measured(std::string& failure) {
  if (!command("build", manifest_.build_command, false, failure) ||
      !command("test", manifest_.test_command, true, failure) ||
      !command("quick", manifest_.quick_command, true, failure)) {
    return false;
  }
  std::string bench_failure;
  if (command("bench", manifest_.benchmark_command, true, bench_failure)) return true;
  failure = bench_failure;
  return false;
}

/// Mean time of the traced kernel; 0 if the manifest has no trace_command.
double Campaign::traced(const fs::path& file, std::string& kernel) {
  if (manifest_.trace_command.empty()) return 0;
  const auto kernels = matching(read_kernel_times(file.string()), manifest_.trace_kernel, file.string());
  kernel = kernels.front().name;
  double sum = 0;
  for (const KernelTime& k : kernels) {
    sum += k.mean_us();
    if (manifest_.trace_kernel.empty()) break;
  }
  return sum;
}

void Campaign::baseline() {
  if (state_.best_round > 0) conflict_baseline();
  const Git git(manifest_.worktree);
  if (!git.clean()) throw Error(Exit::conflict, "the worktree has changes: the baseline is unmodified code");
  const fs::path artifacts = round_folder(1) / "artifacts";
  std::string failure;
  if (!measured(failure) || !command("trace", manifest_.trace_command, true, failure))
    throw Error(Exit::failed, "the baseline failed: " + failure);
  const Csv csv = read_csv((artifacts / "bench.csv").string(), options_of(manifest_, "").map.us);
  const Comparison self = compare(csv, csv, options_of(manifest_, ""));  // refuses wrong and untimed rows
  target_reached(manifest_.performance_target, csv, manifest_.primary_metric);
  Round round;
  round.number = 1, round.date = now_minute(), round.status = "baseline", round.commit = git.head();
  round.proposal.hypothesis = "unmodified code";
  round.us = round.best_us = geomean(self);
  round.gpu_us = round.best_gpu_us = traced(artifacts / "trace.csv", round.kernel);
  manifest_.representative_shapes.clear();
  for (const ClassResult& c : self.classes) {
    round.classes[c.name] = c.base_us;
    // Of each class the slowest: what quick_command should run.
    const auto slowest = std::max_element(c.rows.begin(), c.rows.end(),
                                          [](const auto& a, const auto& b) { return a.base_us < b.base_us; });
    manifest_.representative_shapes.push_back(slowest->config);
  }
  write_atomically(path("manifest.yaml"), yaml_of(manifest_));
  state_.fixed = fixed_part(manifest_);
  conclude_round(state_, round);
  stop_if_due();
  save();
}

void Campaign::conflict_baseline() const { throw Error(Exit::conflict, "the baseline is there already"); }

std::string Campaign::validate() {
  if (state_.stage == Stage::idle) throw Error(Exit::conflict, "no round to validate: begin one with its hypothesis");
  Round& current = state_.current;
  if (state_.stage == Stage::proposing) {
    take_patch();
    state_.stage = Stage::measuring;
    save();
  }
  if (current.files.empty()) return settle("failed", "nothing was changed");
  for (const std::string& file : current.files) {
    for (const std::string& fixed : manifest_.fixed) {
      if (file == fixed || file.starts_with(fixed + "/"))
        return settle("rejected", fmt::format("touches {}, which is fixed", file));
    }
  }
  return decide();
}

std::string Campaign::decide() {
  Round& current = state_.current;
  const fs::path folder = round_folder(current.number), artifacts = folder / "artifacts";
  const fs::path best = round_folder(state_.best_round) / "artifacts";
  std::string failure;
  const CompareOptions plain = options_of(manifest_, current.proposal.target);
  CompareOptions options = plain;
  const Csv base = read_csv((best / "bench.csv").string(), options.map.us);
  const bool good = measured(failure);
  Comparison result;
  try {
    if (!good && failure.starts_with("bench: exit status 1,")) failure.clear();  // wrong rows, perhaps
    if (!failure.empty()) {
      const bool tests = failure.starts_with("test") || failure.starts_with("quick");
      if (!tests) return settle("failed", failure);
      result.verdict = Verdict::incorrect, result.reason = failure;
    } else {
      const Csv cand = read_csv((artifacts / "bench.csv").string(), options.map.us);
      const int before = current.number - 1;
      if (before > 1 && state_.rounds.back().status == "tie") {
        const auto file = (round_folder(before) / "artifacts" / "compare.json").string();
        options.previous = ratios_of(read_file(file), file);
      }
      result = compare(base, cand, options);
      if (!good && result.verdict != Verdict::incorrect)
        return settle("failed", "bench: exit status 1, but no wrong row");
    }
  } catch (const Error& error) {  // missing rows, less work, no CSV
    return settle("failed", error.what());
  }
  if (result.verdict == Verdict::incorrect) {
    if (current.fix_attempts >= max_fix_attempts)
      return settle("incorrect", fmt::format("{}; {} repairs did not help", result.reason, max_fix_attempts));
    write_atomically(folder / "feedback.txt", fmt::format("repair {} of {}: {}\n{}", current.fix_attempts + 1,
                                                          max_fix_attempts, result.reason, join(result.wrong, "\n")));
    ++current.fix_attempts;
    state_.stage = Stage::proposing;
    save();
    return "repair";
  }
  current.best_us = state_.rounds[static_cast<std::size_t>(state_.best_round) - 1].us;
  current.best_gpu_us = state_.rounds[static_cast<std::size_t>(state_.best_round) - 1].gpu_us;
  if (result.verdict == Verdict::keep && !manifest_.format_command.empty()) {
    // Formatted it has to be still better; if formatting changes nothing, it is.
    if (!command("format", manifest_.format_command, false, failure)) return settle("failed", failure);
    const std::string formatted = Git(manifest_.worktree).patch_from(state_.best_commit);
    if (formatted != read_file((folder / "candidate.patch").string())) {
      take_patch();
      if (!measured(failure)) return settle("failed", "after formatting: " + failure);
      try {
        result = compare(base, read_csv((artifacts / "bench.csv").string(), options.map.us), options);
      } catch (const Error& error) {
        return settle("failed", std::string("after formatting: ") + error.what());
      }
      if (result.verdict == Verdict::incorrect) return settle("incorrect", "after formatting: " + result.reason);
    }
  }
  if (!manifest_.trace_command.empty()) {
    if (!command("trace", manifest_.trace_command, true, failure)) return settle("failed", failure);
    try {
      current.gpu_us = traced(artifacts / "trace.csv", current.kernel);
    } catch (const Error& error) {
      return settle("failed", error.what());
    }
    if (current.best_gpu_us > 0) decide_by_kernels(result, current.best_gpu_us, current.gpu_us, manifest_.tie_percent);
  }
  write_atomically(artifacts / "compare.json", json_report(result, options.map.us));
  write_atomically(artifacts / "compare.txt", text_report(result, options.map.us));
  current.us = geomean(result);
  current.score = result.score;
  current.total = state_.rounds[static_cast<std::size_t>(state_.best_round) - 1].total * result.score;
  for (const ClassResult& c : result.classes) current.classes[c.name] = c.cand_us;
  for (const std::string& source : manifest_.kernel_source) {
    const fs::path from = fs::path(manifest_.worktree) / source, to = folder / "kernel_snapshot" / source;
    if (!fs::is_regular_file(from)) continue;
    fs::create_directories(to.parent_path());
    fs::copy_file(from, to, fs::copy_options::overwrite_existing);
  }
  return settle(word_of(result.verdict), result.reason);
}

/// Lets the command edit the worktree; its proposal comes with it. False if it has no more.
bool Campaign::propose(const std::string& command, int repair) {
  const int number = static_cast<int>(state_.rounds.size()) + 1;
  const fs::path folder = round_folder(number), file = folder / "proposal.json";
  fs::create_directories(folder);
  if (repair == 0) {
    fs::remove(file);
    write_atomically(folder / "feedback.txt", stagnation_hint(state_) + "\n");
  }
  ProcessOptions o;
  o.folder = manifest_.worktree, o.out_path = (folder / "propose.log").string(), o.errors_too = true,
  o.timeout_s = seconds_of(manifest_.timeout);
  o.variables = {{"TILEWAVE_CAMPAIGN", folder_.string()},
                 {"TILEWAVE_ROUND", std::to_string(number)},
                 {"TILEWAVE_PROPOSAL", file.string()},
                 {"TILEWAVE_REPAIR", std::to_string(repair)},
                 {"TILEWAVE_FEEDBACK", (folder / "feedback.txt").string()},
                 {"TILEWAVE_TIPS", tips_path(manifest_).string()}};
  progress(fmt::format("round {}: {}", number, repair > 0 ? fmt::format("repair {}", repair) : "proposal"));
  const ProcessResult result = run_shell(command, o);
  if (result.status != 0) {
    Git(manifest_.worktree).reset_to(state_.best_commit);
    state_.stage = Stage::idle, state_.current = {};
    stop(result.timed_out ? "the proposer did not end within " + manifest_.timeout
                          : fmt::format("the proposer ended with status {}", result.status));
    return false;
  }
  return true;
}

std::string Campaign::run_loop(const std::string& command, int max_rounds) {
  if (state_.best_round == 0) baseline();
  const Git git(manifest_.worktree);
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
  Git(manifest_.worktree).reset_to(state_.best_commit);
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
  if (!refused.empty()) settle("rejected", refused);
}

}  // namespace tilewave::tool
