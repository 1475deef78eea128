// SPDX-License-Identifier: MIT
#include "tools/tilewave/common/command.hpp"

#include <fmt/format.h>

#include <cmath>
#include <filesystem>
#include <memory>

#include "tools/tilewave/campaign/campaign.hpp"
#include "tools/tilewave/campaign/rules.hpp"
#include "tools/tilewave/campaign/workspace.hpp"
#include "tools/tilewave/common/error.hpp"
#include "tools/tilewave/common/json.hpp"
#include "tools/tilewave/common/text.hpp"
#include "tools/tilewave/compare/columns.hpp"

namespace tilewave::tool {

namespace fs = std::filesystem;

namespace {

struct Options {
  std::string folder, list_fixed, list_allowed, list_tests, list_bench, text, list_by, list_source,
      repository = ".", propose, reason = "given up";
  Manifest manifest;
  Proposal proposal;
  double real_gain = NAN, hit_rate = NAN;
  int max_rounds = 0, version = 0, max_iterations = 0, round = 0;
  bool no_commit = false, json = false, off = false;
};

int init(Options& o) {
  Manifest& m = o.manifest;
  const auto list = [](const std::string& text) {
    return text.empty() ? std::vector<std::string>{} : split(text, ',');
  };
  m.repository = fs::weakly_canonical(fs::absolute(o.repository)).string();
  const auto allowed = list(o.list_allowed);
  for (const std::string& path : list(o.list_fixed)) m.fixed.push_back(path);
  std::erase_if(m.fixed, [&](const std::string& path) { return contains(allowed, path); });
  m.by = list(o.list_by), m.kernel_source = list(o.list_source);
  m.git_commit = !o.no_commit;
  m.created = now_minute();
  if (m.name.empty())
    m.name = lower(fmt::format("{}_{}_{}_{}", m.target_op, m.target_backend, m.target_gpu,
                               m.created.substr(0, 4) + m.created.substr(5, 2) + m.created.substr(8, 2)));
  if (o.folder.empty()) o.folder = m.repository + "/agent/workspace/" + m.name;
  if (!m.worktree.empty()) m.worktree = fs::weakly_canonical(fs::absolute(m.worktree)).string();
  if (m.execution_mode == "workspace") {
    if (fs::exists(fs::path(o.folder) / "manifest.yaml")) throw Error(Exit::conflict, o.folder + " holds a campaign");
    make_workspace(m, fs::weakly_canonical(fs::absolute(o.folder)),
                   {m.kernel_source, list(o.list_tests), list(o.list_bench)});
  } else if (m.worktree.empty()) {
    m.worktree = m.repository + "-" + m.name;
  }
  Campaign::init(fs::weakly_canonical(fs::absolute(o.folder)), m, allowed);
  fmt::print("{}\n", fs::weakly_canonical(fs::absolute(o.folder)).string());
  const fs::path tips = tips_path(m);
  if (fs::exists(tips)) fmt::print("tips of earlier campaigns: {}\n", tips.string());
  return 0;
}

int status(const Options& o) {
  const Campaign campaign(o.folder, false);
  const State& s = campaign.state();
  const char* stage = s.rounds.empty()              ? "no baseline yet"
                      : s.stage == Stage::idle      ? "between rounds"
                      : s.stage == Stage::proposing ? "being edited"
                      : s.stage == Stage::measuring ? "being measured"
                                                    : "being closed";
  if (o.json) {
    fmt::print("{}", json_of(s));
    return 0;
  }
  fmt::print("{}: {} rounds, {}\n", campaign.manifest().name, s.rounds.size(),
             s.stage == Stage::idle ? stage : fmt::format("round {} {}", s.current.number, stage));
  if (s.best_round > 0) {
    const Round& best = s.rounds[static_cast<std::size_t>(s.best_round) - 1];
    fmt::print("BEST_COMMIT {} (round {}): {:.3f} us{}, {:.4f} times the baseline\n", s.best_commit, s.best_round,
               best.us, is_modelled(campaign.manifest().primary_metric) ? " (modelled)" : "", best.total);
  }
  fmt::print("CONSECUTIVE_REGRESSIONS {} of {}\n", s.consecutive_regressions, max_regressions);
  if (const std::string hint = stagnation_hint(s); !hint.empty()) fmt::print("{}\n", hint);
  if (!s.stopped.empty()) fmt::print("stopped: {}\n", s.stopped);
  return 0;
}

int status_of_round(const std::string& status, const Round& r) {
  fmt::print("round {}: {} ({})\n", r.number, status, r.reason);
  if (status == "keep") return 0;
  const auto exit = status == "tie"                               ? Exit::tie
                    : status == "split"                           ? Exit::split
                    : status == "incorrect" || status == "repair" ? Exit::incorrect
                    : status == "discard"                         ? Exit::discard
                                                                  : Exit::failed;
  return static_cast<int>(exit);
}

void add_init(Command& campaign, const std::shared_ptr<Options>& o) {
  Command sub = campaign.add("init", "make the folder, the worktree and manifest.yaml");
  Manifest& m = o->manifest;
  sub.option("--folder", o->folder, "of the campaign (default: agent/workspace/NAME in the repository)");
  sub.option("--repository", o->repository, "git checkout to branch from (default: this folder)");
  sub.option("--worktree", m.worktree, "where the worktree goes (default: beside the repository)");
  sub.option("--name", m.name, "default: OP_BACKEND_GPU_DATE");
  sub.option("--op", m.target_op, "target_op").required();
  sub.option("--backend", m.target_backend, "target_backend, for example HIP").required();
  sub.option("--lang", m.target_lang, "target_lang");
  sub.option("--gpu", m.target_gpu, "target_gpu: gfx942, gfx950, sm90").required();
  sub.option("--benchmark", m.benchmark_command, "benchmark_command: writes the CSV to stdout, run in the worktree")
      .required();
  sub.option("--build", m.build_command, "build_command");
  sub.option("--test", m.test_command, "test_command: exit status 0 if all is right");
  sub.option(
      "--quick", m.quick_command,
      "quick_command: the representative shapes, before the benchmark (default: quick_test_bench.sh, for our benchmarks)");
  sub.option("--format", m.format_command, "format_command: what is kept is formatted first and measured again");
  sub.option(
      "--trace", m.trace_command,
      "trace_command: writes rocprofv3's or ncu's kernel times to $TILEWAVE_TRACE, which decide, and whatever else "
      "`trace report` reads into the folder $TILEWAVE_PROFILE");
  sub.option("--trace-kernel", m.trace_kernel, "regular expression of the kernels that are added up (default: all)");
  sub.option("--trace-per-call", m.trace_per_call, "as compare --per-call");
  sub.option("--skew", m.skew_command,
             "skew_command: a benchmark of skewed routing, in which a gain must not turn into a loss");
  sub.option("--chip", m.target_chip,
             "target_chip, whose roof makes the Stop Conditions (default: that of the rows or of --gpu)");
  sub.option("--peak", m.target_peak, "target_peak: auto (default: by the rows' types), bf16, fp8 or fp4")
      .one_of({"auto", "bf16", "fp8", "fp4"});
  sub.option("--metric", m.primary_metric, "primary_metric: column that is compared (default: us)");
  sub.option("--target", m.performance_target,
             "performance_target: roof (90 % of it, computed), '> 500 TFLOPS', '> 60 %', '> 3000 GB/s', '< 12 us'");
  sub.option("--map", m.map, "as compare --map");
  sub.option("--by", o->list_by, "as compare --by");
  sub.option("--source", o->list_source, "kernel_source: files that each round keeps a copy of, comma separated");
  sub.option(
         "--mode", m.execution_mode,
         "repo (default), or workspace: a small repository of --source, --tests and --bench, taken out of the project")
      .one_of({"repo", "workspace"});
  sub.option("--tests", o->list_tests, "workspace mode: files and folders for tests/, comma separated");
  sub.option("--bench", o->list_bench, "workspace mode: for bench/");
  sub.option("--fixed", o->list_fixed, "more paths that no candidate may touch; '*' stands for anything");
  sub.option("--allow", o->list_allowed,
             "of the default's paths, those that a candidate may touch: " + join(default_fixed(), ","));
  sub.option("--tie", m.tie_percent, "tie_percent (default: 1)").range(0, 50);
  sub.option("--max-iterations", m.max_iterations, "stop after so many rounds").range(0, 119);
  sub.option("--branch", m.git_branch, "auto (optimize/NAME), none or a name");
  sub.option("--use-gpu", m.gpu, "wait: test, benchmark and trace on an idle GPU; none").one_of({"none", "wait"});
  sub.option("--gpu-retry", m.gpu_retry, "default: 10m");
  sub.option("--gpu-limit", m.gpu_limit, "default: 1h; then the campaign ends with exit status 20");
  sub.option("--timeout", m.timeout, "of each command (default: 1h)");
  sub.flag("--no-commit", o->no_commit, "accepted versions are commits of no branch");
  sub.example(
      "  tilewave campaign init --op paged_attention --backend HIP --gpu sm90 --build 'cmake --build build/sm90 --target bench_pa'\n"
      "    --test 'ctest --preset sm90' --benchmark 'build/sm90/bench/bench_pa --sweep=decode --benchmark_format=csv' --use-gpu wait");
  sub.run([o] { return init(*o); });
}

void add_round(Command& campaign, const std::shared_ptr<Options>& o) {
  Command round = campaign.add("round", "one round by hand: begin, edit the worktree, validate");
  round.needs_subcommand();
  Command begin = round.add("begin", "the hypothesis, before the edit");
  begin.option("FOLDER", o->folder, "of the campaign").required();
  begin.option("--hypothesis", o->proposal.hypothesis, "in one sentence").required();
  begin.option("--bucket", o->proposal.bucket, "K1 to K4: the kernel; W1: a bounded cache of weights").required();
  begin.option("--class", o->proposal.target,
               "class that has to gain, for example block_size=16,mtp=1 (default: global)");
  begin.option("--direction", o->proposal.direction, "a word for the idea");
  begin.option("--tip", o->proposal.tip, "what others may learn, for tips.md, if the round is measured");
  begin.option("--real-gain", o->real_gain, "percent of the real workload, if not what the benchmark shows");
  begin.option("--hit-rate", o->hit_rate, "of a cache over four real steps");
  begin.example("  tilewave campaign round begin DIR --hypothesis 'load K one tile ahead' --bucket K2");
  begin.run([o] {
    Campaign campaign(o->folder, true);
    if (!std::isnan(o->real_gain)) o->proposal.real_gain_pct = o->real_gain;
    if (!std::isnan(o->hit_rate)) o->proposal.hit_rate = o->hit_rate;
    campaign.begin(o->proposal);
    const int number = campaign.state().current.number;
    fmt::print("round {}: edit {}; evidence: {}\n", number, campaign.manifest().worktree,
               (campaign.round_folder(number) / "feedback.txt").string());
    return 0;
  });
  Command validate = round.add("validate", "build, test, benchmark, compare: kept or rolled back");
  validate.option("FOLDER", o->folder, "of the campaign").required();
  validate.example("  tilewave campaign round validate DIR");
  validate.run([o] {
    Campaign campaign(o->folder, true);
    const std::string status = campaign.validate();
    if (status == "repair") {
      const int number = campaign.state().current.number;
      fmt::print("round {}: incorrect, see {}; repair {} of {}\n", number,
                 (campaign.round_folder(number) / "feedback.txt").string(), campaign.state().current.fix_attempts,
                 max_fix_attempts);
      return static_cast<int>(Exit::incorrect);
    }
    return status_of_round(status, campaign.state().rounds.back());
  });
  Command abandon = round.add("abandon", "roll back without a measurement");
  abandon.option("FOLDER", o->folder, "of the campaign").required();
  abandon.option("--reason", o->reason, "for the log");
  abandon.example("  tilewave campaign round abandon DIR --reason 'does not fit into registers'");
  abandon.run([o] {
    Campaign campaign(o->folder, true);
    campaign.abandon("failed", o->reason);
    return 0;
  });
}

void add_run(Command& campaign, const std::shared_ptr<Options>& o) {
  Command sub = campaign.add("run", "rounds unattended, until a stop rule: exit status 30");
  sub.option("FOLDER", o->folder, "of the campaign").required();
  sub.option(
         "--propose", o->propose,
         "shell command that edits the worktree (its current folder) and writes $TILEWAVE_PROPOSAL; docs/guide/optimise.md")
      .required();
  sub.option("--rounds", o->max_rounds, "at most so many now").range(0, 1e6);
  sub.example("  tilewave campaign run DIR --propose ./propose.sh");
  sub.run([o] {
    Campaign campaign(o->folder, true);
    try {
      const std::string why = campaign.run_loop(o->propose, o->max_rounds);
      fmt::print("{}\n", why.empty() ? "rounds done" : "stopped: " + why);
      return static_cast<int>(why.empty() ? Exit::ok : Exit::stopped);
    } catch (const Error& error) {
      if (error.exit == Exit::no_gpu) campaign.stop(error.what());
      throw;
    }
  });
}

}  // namespace

void add_campaign(Command& tilewave) {
  auto o = std::make_shared<Options>();
  Command campaign = tilewave.add("campaign", "optimisation rounds over a git worktree, kept or rolled back");
  campaign.needs_subcommand();
  campaign.example(
      "  tilewave campaign init ... && tilewave campaign run DIR --propose ./propose.sh && tilewave campaign report DIR");
  add_init(campaign, o);
  Command baseline = campaign.add("baseline", "measure the unmodified code");
  baseline.option("FOLDER", o->folder, "of the campaign").required();
  baseline.example("  tilewave campaign baseline DIR");
  baseline.run([o] {
    Campaign c(o->folder, true);
    c.baseline();
    return status(*o);
  });
  add_round(campaign, o);
  Command resume = campaign.add("resume", "go on after a stop, the count of regressions at 0");
  resume.option("FOLDER", o->folder, "of the campaign").required();
  resume.option("--max-iterations", o->max_iterations, "a new limit of rounds").range(0, 119);
  resume.example("  tilewave campaign resume DIR && tilewave campaign run DIR --propose ./propose.sh");
  resume.run([o] {
    Campaign c(o->folder, true);
    c.resume(o->max_iterations);
    return status(*o);
  });
  Command back = campaign.add("integrate", "workspace mode: what src/ gained, as a patch of the project");
  back.option("FOLDER", o->folder, "of the campaign").required();
  back.example("  git apply $(tilewave campaign integrate DIR)");
  back.run([o] {
    const Campaign c(o->folder, true);
    fmt::print("{}\n", integrate(c.manifest(), c.state(), c.path("")).string());
    return 0;
  });
  Command tip = campaign.add("tip", "what a measured round taught, for tips.md");
  tip.option("FOLDER", o->folder, "of the campaign").required();
  tip.option("TEXT", o->text, "in one sentence").required();
  tip.option("--round", o->round, "default: the last").range(0, 1e6);
  tip.example("  tilewave campaign tip DIR 'two tiles ahead spill' --round 4");
  tip.run([o] {
    Campaign c(o->folder, true);
    for (char& letter : o->text) letter = letter == '\n' ? ' ' : letter;
    c.tip(o->text, o->round);
    return 0;
  });
  add_run(campaign, o);
  Command show = campaign.add("status", "where it stands");
  show.option("FOLDER", o->folder, "of the campaign").required();
  show.flag("--json", o->json, "the whole state as JSON");
  show.example("  tilewave campaign status DIR");
  show.run([o] { return status(*o); });
  Command report = campaign.add("report", "the final report, on stdout and in logs/optimize.md");
  report.option("FOLDER", o->folder, "of the campaign").required();
  report.flag("--json", o->json, "the report as JSON");
  report.example("  tilewave campaign report DIR");
  report.run([o] {
    Campaign c(o->folder, true);
    if (c.state().rounds.empty()) throw Error(Exit::conflict, "no baseline yet");
    c.report();
    fmt::print("{}", o->json ? final_report_json(c.state()) : final_report(c.state()));
    return 0;
  });
  Command mask = campaign.add("mask", "mark memory/v<N>.json as discarded");
  mask.option("FOLDER", o->folder, "of the campaign").required();
  mask.option("VERSION", o->version, "N").required();
  mask.flag("--off", o->off, "take the mark away");
  mask.example("  tilewave campaign mask DIR 3");
  mask.run([o] {
    Campaign c(o->folder, true);
    c.mask(o->version, !o->off);
    return 0;
  });
}

}  // namespace tilewave::tool
