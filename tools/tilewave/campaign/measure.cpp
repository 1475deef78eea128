// SPDX-License-Identifier: MIT
// The part of a round that takes time: build, test, benchmark, trace, compare.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>

#include "tools/tilewave/campaign/campaign.hpp"
#include "tools/tilewave/campaign/feedback.hpp"
#include "tools/tilewave/campaign/quick.hpp"
#include "tools/tilewave/campaign/rules.hpp"
#include "tools/tilewave/campaign/skew.hpp"
#include "tools/tilewave/campaign/targets.hpp"
#include "tools/tilewave/common/error.hpp"
#include "tools/tilewave/common/process.hpp"
#include "tools/tilewave/common/text.hpp"
#include "tools/tilewave/compare/kernels.hpp"
#include "tools/tilewave/compare/report.hpp"
#include "tools/tilewave/gpu/wait.hpp"

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

/// What a step of a round's verdict throws where the round ends with it.
struct RoundEnds {
  std::string status, reason;
};

/// Does something with files that a round's commands wrote. Where they do not fit (missing rows, less work, no CSV), the
/// round has failed.
template <class Body>
void of_files(const std::string& when, const Body& body) {
  try {
    body();
  } catch (const Error& error) {
    throw RoundEnds{"failed", when + error.what()};
  }
}

}  // namespace

/// Runs one of the manifest's commands in the worktree, its output in the round's artifacts; false, with why, if it fails.
bool Campaign::command(const std::string& what, const std::string& shell, bool on_gpu, std::string& failure,
                       int round) {
  if (shell.empty()) return true;
  const int number = round > 0 ? round : static_cast<int>(state_.rounds.size()) + 1;
  const fs::path artifacts = round_folder(number) / "artifacts";
  fs::create_directories(artifacts);
  ProcessOptions o;
  o.folder = manifest_.worktree, o.timeout_s = seconds_of(manifest_.timeout), o.end_strays = true;
  o.variables = Git::environment(manifest_.worktree), o.without = Git::redirections();
  o.variables["TILEWAVE_OUT"] = artifacts.string();
  o.variables["TILEWAVE_TRACE"] = (artifacts / "trace.csv").string();
  o.variables["TILEWAVE_PROFILE"] = profile_folder(number).string();
  o.variables["TILEWAVE_CAMPAIGN"] = folder_.string();
  if (what == "trace") {  // nothing of another version
    fs::remove(artifacts / "trace.csv");
    fs::remove_all(profile_folder(number));
    fs::create_directories(profile_folder(number));
  }
  BoundGpu gpu;
  if (on_gpu && manifest_.gpu == "wait") {
    gpu = wait_for_gpu({seconds_of(manifest_.gpu_retry), seconds_of(manifest_.gpu_limit), 1});
    o.variables[gpu.variable] = gpu.value;
  }
  // stdout of the benchmark is the CSV: it has a file to itself, complete or not there.
  const bool csv = what == "bench" || what == "skew";
  o.out_path = (artifacts / (csv ? what + ".csv.part" : what + ".log")).string();
  o.errors_too = !csv;
  show_progress(fmt::format("round {}: {}", number, what));
  const ProcessResult result = run_shell(csv ? fmt::format("{} 2>\"$TILEWAVE_OUT/{}.log\"", shell, what) : shell, o);
  if (gpu.lock >= 0) ::close(gpu.lock);
  if (result.timed_out) {
    failure = fmt::format("{}: no end within {}", what, manifest_.timeout);
  } else if (result.status != 0) {
    failure = fmt::format("{}: exit status {}, see {}.log", what, result.status, what);
  }
  if (csv) fs::rename(artifacts / (what + ".csv.part"), artifacts / (what + ".csv"));
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

fs::path Campaign::profile_folder(int round) const { return path("profiles") / fmt::format("round-{}", round); }

void Campaign::take_trace(Round& round) {
  if (manifest_.trace_command.empty()) return;
  const fs::path trace = round_folder(round.number) / "artifacts" / "trace.csv", folder = profile_folder(round.number);
  const KernelTimes times = read_kernel_times(trace.string());
  const KernelChoice choice{manifest_.trace_kernel, manifest_.trace_per_call};
  round.gpu_us = kernel_sum(times, choice, trace.string()).us;
  const std::string kernel = matching(times, manifest_.trace_kernel, trace.string()).front().name;
  const bool ncu = times.format.find("ncu") != std::string::npos,
             stats = times.format.find("stats") != std::string::npos;
  bool there = false;  // the launches must not be read twice
  for (const auto& file : fs::recursive_directory_iterator(folder)) {
    const std::string name = file.path().filename().string();
    for (const char* end : {"kernel_trace.csv", "kernel_stats.csv", "ncu.csv"}) there = there || name.ends_with(end);
  }
  if (!there)
    fs::copy_file(trace, folder / (ncu     ? "times_ncu.csv"
                                   : stats ? "times_kernel_stats.csv"
                                           : "times_kernel_trace.csv"));
  try {
    take_profile(folder, manifest_, round);
  } catch (const Error& error) {  // the times are good; what else the profiler wrote is not
    round.bottlenecks = {std::string("the profile cannot be read: ") + error.what()};
    write_atomically(folder / "REPORT.md", round.bottlenecks[0] + "\n");
  }
  round.kernel = kernel;
}

void Campaign::refresh_profile() {
  if (manifest_.trace_command.empty() || fs::exists(profile_folder(state_.best_round) / "REPORT.md")) return;
  Round& best = state_.rounds[static_cast<std::size_t>(state_.best_round) - 1];
  std::string failure;
  if (!command("build", manifest_.build_command, false, failure, best.number) ||
      !command("trace", manifest_.trace_command, true, failure, best.number))
    throw Error(Exit::failed, "the best version cannot be traced: " + failure);
  take_trace(best);
  save();
}

void Campaign::baseline() {
  if (state_.best_round > 0) conflict_baseline();
  const Git git = worktree();
  if (!git.clean()) throw Error(Exit::conflict, "the worktree has changes: the baseline is unmodified code");
  const fs::path artifacts = round_folder(1) / "artifacts";
  std::string failure;
  if (!measured(failure) || !command("skew", manifest_.skew_command, true, failure) ||
      !command("trace", manifest_.trace_command, true, failure))
    throw Error(Exit::failed, "the baseline failed: " + failure);
  const Csv csv = read_csv((artifacts / "bench.csv").string(), options_of(manifest_, "").map.us);
  const Comparison self = compare(csv, csv, options_of(manifest_, ""));  // refuses wrong and untimed rows
  const StopConditions conditions = stop_conditions(manifest_, csv);
  target_reached(manifest_.performance_target, csv, manifest_.primary_metric,
                 conditions.roof ? &*conditions.roof : nullptr);
  Round round;
  round.number = 1, round.date = now_minute(), round.status = "baseline", round.commit = git.head();
  round.proposal.hypothesis = "unmodified code";
  round.us = round.best_us = geomean(self);
  take_trace(round);
  round.best_gpu_us = round.gpu_us;
  manifest_.representative_shapes.clear();
  const bool ours = quick_form(manifest_.benchmark_command).has_value();
  for (const ClassResult& c : self.classes) {
    round.classes[c.name] = c.base_us;
    // The slowest row of each class is what quick_command should run.
    const auto slowest = std::max_element(c.rows.begin(), c.rows.end(),
                                          [](const auto& a, const auto& b) { return a.base_us < b.base_us; });
    manifest_.representative_shapes.push_back(ours ? config_words(csv, slowest->base_row) : slowest->config);
  }
  if (conditions.chip) {
    for (const Spec& spec : conditions.chip->specs) {
      if (!spec.value)
        round.pitfalls.push_back(fmt::format("{}: UNKNOWN ({}:{})", spec.key, conditions.chip->file, spec.line));
    }
  }
  bool holds = true;
  round.skew = skewed_rows(csv, csv, options_of(manifest_, "").map.us, manifest_.tie_percent, holds);
  if (round.skew.empty() && manifest_.skew_command.empty() && is_routed(manifest_.target_op)) {
    round.skew = "not shown: no row has skewed routing, and there is no skew_command";
    fmt::print(stderr, "tilewave: {} routes tokens, and no row of the benchmark has skewed routing; --skew names one\n",
               manifest_.target_op);
  }
  if (ours)
    write_atomically(path("quick_test_bench.sh"),
                     quick_script(manifest_.benchmark_command, manifest_.representative_shapes));
  write_atomically(path("manifest.yaml"), yaml_of(manifest_));
  write_atomically(path("README.md"), readme_md(manifest_, conditions));
  write_atomically(path("baseline_report.md"), baseline_report_md(manifest_, round, conditions));
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
  if (current.files.empty()) return finish("failed", "nothing was changed");
  for (const std::string& file : current.files) {
    for (const std::string& fixed : manifest_.fixed) {
      if (is_fixed(fixed, file)) return finish("rejected", fmt::format("touches {}, which is fixed", file));
    }
  }
  return decide();
}

std::string Campaign::decide() {
  CompareOptions options = options_of(manifest_, state_.current.proposal.target);
  const Csv base = read_csv((artifacts_of(state_.best_round) / "bench.csv").string(), options.map.us);
  try {
    Comparison result = measure_and_compare(base, options);
    if (result.verdict == Verdict::incorrect) return ask_for_repair(result);
    const Round& best = state_.rounds[static_cast<std::size_t>(state_.best_round) - 1];
    state_.current.best_us = best.us, state_.current.best_gpu_us = best.gpu_us;
    if (result.verdict == Verdict::keep) compare_formatted(result, base, options);
    compare_kernels(result, options);
    if (result.verdict == Verdict::keep)
      of_files("skewed routing: ", [&] { check_skew(result, base, measured_rows(options)); });
    write_down(result, options);
    return finish(word_of(result.verdict), result.reason);
  } catch (const RoundEnds& end) {
    return finish(end.status, end.reason);
  }
}

fs::path Campaign::artifacts_of(int round) const { return round_folder(round) / "artifacts"; }

Csv Campaign::measured_rows(const CompareOptions& options) const {
  return read_csv((artifacts_of(state_.current.number) / "bench.csv").string(), options.map.us);
}

/// Builds, tests and times the candidate, and compares it with the best version. Where the round before was a tie, it
/// puts its ratios into `options`: the second time in one direction counts.
Comparison Campaign::measure_and_compare(const Csv& base, CompareOptions& options) {
  std::string failure;
  const bool good = measured(failure);
  if (!good && failure.starts_with("bench: exit status 1,")) failure.clear();  // wrong rows, perhaps
  Comparison result;
  if (failure.starts_with("test") || failure.starts_with("quick")) {
    result.verdict = Verdict::incorrect, result.reason = failure;
    return result;
  }
  if (!failure.empty()) throw RoundEnds{"failed", failure};
  of_files("", [&] {
    const Csv candidate = measured_rows(options);
    const int before = state_.current.number - 1;
    if (before > 1 && state_.rounds.back().status == "tie") {
      const auto file = (artifacts_of(before) / "compare.json").string();
      options.previous = ratios_of(read_file(file), file);
      options.previous_kernel = kernel_ratio_of(read_file(file), file);
    }
    result = compare(base, candidate, options);
  });
  if (!good && result.verdict != Verdict::incorrect)
    throw RoundEnds{"failed", "bench: exit status 1, but no wrong row"};
  return result;
}

/// Writes down what is wrong with the candidate and lets it be repaired, or ends the round if that was tried enough.
std::string Campaign::ask_for_repair(const Comparison& result) {
  Round& current = state_.current;
  if (current.fix_attempts >= max_fix_attempts)
    return finish("incorrect", fmt::format("{}; {} repairs did not help", result.reason, max_fix_attempts));
  ++current.fix_attempts;
  write_atomically(round_folder(current.number) / "feedback.txt",
                   fmt::format("repair {} of {}: {}\n{}", current.fix_attempts, max_fix_attempts, result.reason,
                               join(result.wrong, "\n")));
  current.pitfalls.push_back(fmt::format("{}; repair {} changed it", result.reason, current.fix_attempts));
  state_.stage = Stage::proposing;
  save();
  return "repair";
}

/// Formats a candidate that is to be kept. If that changes it, it has to be still better.
void Campaign::compare_formatted(Comparison& result, const Csv& base, const CompareOptions& options) {
  if (manifest_.format_command.empty()) return;
  std::string failure;
  if (!command("format", manifest_.format_command, false, failure)) throw RoundEnds{"failed", failure};
  const std::string formatted = worktree().patch_from(state_.best_commit);
  if (formatted == read_file((round_folder(state_.current.number) / "candidate.patch").string())) return;
  take_patch();
  if (!measured(failure)) throw RoundEnds{"failed", "after formatting: " + failure};
  of_files("after formatting: ", [&] { result = compare(base, measured_rows(options), options); });
  if (result.verdict == Verdict::incorrect) throw RoundEnds{"incorrect", "after formatting: " + result.reason};
}

/// Lets the GPU time of kernels decide, where the manifest says how to trace them.
void Campaign::compare_kernels(Comparison& result, const CompareOptions& options) {
  if (manifest_.trace_command.empty()) return;
  std::string failure;
  if (!command("trace", manifest_.trace_command, true, failure)) throw RoundEnds{"failed", failure};
  of_files("", [&] {
    take_trace(state_.current);
    const fs::path best = artifacts_of(state_.best_round) / "trace.csv";
    if (!fs::exists(best)) return;
    const fs::path own = artifacts_of(state_.current.number) / "trace.csv";
    const auto [before, after] =
        kernel_sums(best.string(), own.string(), {manifest_.trace_kernel, manifest_.trace_per_call});
    decide_by_kernels(result, before, after, manifest_.tie_percent, options.previous_kernel);
  });
}

/// Puts the result into the round and its folder, with the sources that were measured.
void Campaign::write_down(const Comparison& result, const CompareOptions& options) {
  Round& current = state_.current;
  if (result.verdict == Verdict::split || result.verdict == Verdict::keep) current.routing = routes_of(result);
  for (const std::string& pitfall : current.proposal.pitfalls) current.pitfalls.push_back(pitfall);
  const fs::path artifacts = artifacts_of(current.number);
  write_atomically(artifacts / "compare.json", json_report(result, options.map.us));
  write_atomically(artifacts / "compare.txt", text_report(result, options.map.us));
  current.us = geomean(result);
  current.score = result.score;
  current.total = state_.rounds[static_cast<std::size_t>(state_.best_round) - 1].total * result.score;
  for (const ClassResult& c : result.classes) current.classes[c.name] = c.cand_us;
  for (const std::string& source : manifest_.kernel_source) {
    const fs::path from = fs::path(manifest_.worktree) / source;
    const fs::path to = round_folder(current.number) / "kernel_snapshot" / source;
    if (!fs::is_regular_file(from) && !fs::is_directory(from)) continue;
    fs::remove_all(to);
    fs::create_directories(to.parent_path());
    fs::copy(from, to, fs::copy_options::recursive | fs::copy_options::copy_symlinks);
  }
}

/// A gain that turns into a loss where experts' shares differ is none.
void Campaign::check_skew(Comparison& result, const Csv& base, const Csv& cand) {
  Round& current = state_.current;
  const std::string metric = options_of(manifest_, "").map.us;
  bool holds = true;
  current.skew = skewed_rows(base, cand, metric, manifest_.tie_percent, holds);
  if (holds && !manifest_.skew_command.empty()) {
    std::string failure;
    const auto csv = [&](int round) {
      return read_csv((round_folder(round) / "artifacts" / "skew.csv").string(), metric);
    };
    if (!command("skew", manifest_.skew_command, true, failure)) throw Error(Exit::failed, failure);
    const Comparison skewed = compare(csv(state_.best_round), csv(current.number), options_of(manifest_, ""));
    holds = skewed.verdict == Verdict::keep || skewed.verdict == Verdict::tie;
    current.skew =
        fmt::format("{} by skew_command, score {:.4f}: {}", word_of(skewed.verdict), skewed.score, skewed.reason);
  }
  if (!holds) result.verdict = Verdict::discard, result.reason += "; but skewed routing loses: " + current.skew;
  if (current.skew.empty() && is_routed(manifest_.target_op))
    current.skew = "not shown: no row has skewed routing, and there is no skew_command";
}

}  // namespace tilewave::tool
