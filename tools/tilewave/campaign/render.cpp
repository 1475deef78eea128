// SPDX-License-Identifier: MIT
// The logs of a campaign, made from its state.
#include <fmt/format.h>

#include "tools/tilewave/campaign/campaign.hpp"
#include "tools/tilewave/campaign/feedback.hpp"
#include "tools/tilewave/campaign/memory.hpp"
#include "tools/tilewave/campaign/rules.hpp"
#include "tools/tilewave/common/error.hpp"
#include "tools/tilewave/common/json.hpp"
#include "tools/tilewave/common/text.hpp"
#include "tools/tilewave/compare/columns.hpp"

namespace tilewave::tool {

namespace fs = std::filesystem;

namespace {

bool accepted(const Round& r) { return r.status == "keep" || r.status == "baseline"; }

/// Returns text for a cell of a table.
std::string cell(std::string text) {
  for (char& c : text) c = c == '|' ? '/' : c == '\n' ? ' ' : c;
  return text.empty() ? "-" : text;
}

std::string micro(double us) { return us > 0 ? fmt::format("{:.3f}", us) : "-"; }
/// Returns the kind of all times of the campaign.
std::string times_of(const Manifest& m) {
  return is_modelled(m.primary_metric) ? m.primary_metric + ", modelled; nothing was measured" : m.primary_metric;
}
std::string percent(const Round& r) {
  return r.best_us > 0 && r.us > 0 ? fmt::format("{:+.2f} %", (r.us / r.best_us - 1) * 100) : "-";
}
std::string scope(const Round& r) { return r.proposal.target.empty() ? "global" : r.proposal.target; }

/// A split is no result, but tells what a dispatch has to keep; a kept round which classes did not gain by it.
std::string routes_md(const State& s) {
  std::string out;
  for (const Round& r : s.rounds) {
    if (r.routing.empty()) continue;
    out += fmt::format("\n### Round {} ({}): {}\n", r.number, r.status, r.proposal.hypothesis);
    for (const std::string& route : r.routing) out += "- " + route + "\n";
  }
  return out.empty()
             ? out
             : "\n## Which configs go to which kernel\nbase: the kernel of before; candidate: that of the round.\n" +
                   out;
}

}  // namespace

std::string committed_performance(const Manifest& m) { return "docs/notebook/campaigns/" + m.name + "/performance.md"; }

std::string performance_md(const State& s, const Manifest& m) {
  std::string out = fmt::format(
      "# Performance of {}\n\n| Date | Commit | Status | Command | Config class | Kernel | {} | GPU time us | Change | Note |\n"
      "|---|---|---|---|---|---|---|---|---|---|\n",
      m.name, m.primary_metric);
  for (const Round& r : s.rounds) {
    if (!accepted(r)) continue;
    out += fmt::format("| {} | {} | {} | {} | {} | {} | {} | {} | {} | {} |\n", r.date,
                       r.commit.find(' ') == std::string::npos ? r.commit.substr(0, 10) : r.commit, r.status,
                       cell(m.benchmark_command), cell(scope(r)), cell(r.kernel), micro(r.us), micro(r.gpu_us),
                       r.status == "baseline" ? "-" : percent(r), cell(r.proposal.hypothesis));
  }
  out += routes_md(s);
  if (s.stopped.empty()) return out;
  const Round& best = s.rounds[static_cast<std::size_t>(s.best_round) - 1];
  out += fmt::format(
      "\n## Stop Summary\n- Stop time: {}\n- Stop reason: {}\n- BEST_COMMIT: {}\n- Best: {} us, {:.4f} times the baseline\n",
      s.stopped_at.empty() ? s.rounds.back().date : s.stopped_at, s.stopped, s.best_commit, micro(best.us), best.total);
  if (!s.recent_regressions.empty()) {
    out +=
        "\n| Attempt | Hypothesis | Changed Files | us best -> candidate | GPU Time best -> candidate | Delta | Notes |\n|---|---|---|---|---|---|---|\n";
    for (const Round& r : s.recent_regressions) {
      out += fmt::format("| {} | {} | {} | {} -> {} | {} -> {} | {} | {} |\n", r.number, cell(r.proposal.hypothesis),
                         cell(join(r.files, ", ")), micro(r.best_us), micro(r.us), micro(r.best_gpu_us),
                         micro(r.gpu_us), percent(r), cell(r.reason));
    }
  }
  return out;
}

namespace {

std::string trend_md(const State& s, const Manifest& m) {
  std::string out = fmt::format(
      "# Performance trend\n\nTimes: {}\n\n| Round | Date | Status | us | over the best | over the baseline | Hypothesis |\n|---|---|---|---|---|---|---|\n",
      times_of(m));
  for (const Round& r : s.rounds) {
    const bool measured = r.us > 0;
    out += fmt::format("| {} | {} | {} | {} | {} | {} | {} |\n", r.number, r.date, r.status, micro(r.us),
                       measured ? fmt::format("{:.4f}", r.score) : "-", measured ? fmt::format("{:.4f}", r.total) : "-",
                       cell(r.proposal.hypothesis));
  }
  return out;
}

std::string transfer_check(const Round& r) {
  const Proposal& p = r.proposal;
  const double headline = r.us > 0 ? (r.score - 1) * 100 : 0;
  return fmt::format(
      "## Real-training transfer check\n- Bucket: {}\n- Benchmark gain: {:+.2f} %\n- Real-workload gain: {}\n- Hit rate over four real steps: {}\n"
      "{}- Decision: {}\n",
      p.bucket, headline,
      p.real_gain_pct ? fmt::format("{:+.2f} % (as proposed)", *p.real_gain_pct)
                      : fmt::format("{:+.2f} % (a kernel's gain is the workload's)", headline),
      p.hit_rate ? fmt::format("{:.2f}", *p.hit_rate) : "no cache",
      r.skew.empty() ? "" : fmt::format("- Skewed routing: {}\n", r.skew),
      r.status == "keep"       ? "ACCEPT"
      : r.status == "rejected" ? "REJECT-as-overfit"
                               : "ROLLBACK");
}

std::string summary_md(const Round& r) {
  std::string out = fmt::format(
      "# Round {}\n- Date: {}\n- Status: {}\n- Commit: {}\n- Hypothesis: {}\n- Config class: {}\n- Direction: {}\n- Repairs: {}\n"
      "- Files: {}\n- Reason: {}\n- us: {} -> {} ({})\n- GPU time us: {} -> {}\n- Kernel: {}\n",
      r.number, r.date, r.status, r.commit.empty() ? "-" : r.commit, r.proposal.hypothesis, scope(r),
      r.proposal.direction.empty() ? "-" : r.proposal.direction, r.fix_attempts, join(r.files, ", "), r.reason,
      micro(r.best_us), micro(r.us), percent(r), micro(r.best_gpu_us), micro(r.gpu_us),
      r.kernel.empty() ? "-" : r.kernel);
  for (const auto& [name, value] : r.launch) out += fmt::format("- {}: {}\n", name, value);
  for (const std::string& line : r.bottlenecks) out += "- Bottleneck: " + line + "\n";
  for (const std::string& route : r.routing) out += "- Goes to: " + route + "\n";
  for (const std::string& pitfall : r.pitfalls) out += "- Pitfall: " + pitfall + "\n";
  if (!r.classes.empty()) {
    out += "\n| Class | us |\n|---|---|\n";
    for (const auto& [name, us] : r.classes) out += fmt::format("| {} | {:.3f} |\n", cell(name), us);
  }
  return r.status == "baseline" ? out : out + "\n" + transfer_check(r);
}

/// Factors of time, all kept rounds together: as the benchmark has it, and as the real workload does, by what the rounds changed.
struct Gains {
  double headline = 1, kernel = 1, weights = 1;

  void add(const Round& r) {
    headline *= r.score;
    (r.proposal.bucket == "W1" ? weights : kernel) *= real_of(r);
  }
  double gap_percent() const { return (headline - kernel * weights) * 100; }
  static double real_of(const Round& r) {
    return r.proposal.real_gain_pct ? 1 + *r.proposal.real_gain_pct / 100 : r.score;
  }
};

std::string optimize_md(const State& s, const Manifest& m, bool stopped) {
  std::string out = fmt::format(
      "# Optimisation log of {}\n\n- Op: {}, backend: {}, GPU: {}\n- Times: {}\n- BEST_COMMIT: {}\n- CONSECUTIVE_REGRESSIONS: {}\n- Stage: {}\n",
      m.name, m.target_op, m.target_backend, m.target_gpu, times_of(m), s.best_commit.empty() ? "-" : s.best_commit,
      s.consecutive_regressions,
      s.stage == Stage::idle ? (s.stopped.empty() ? "between rounds" : "stopped: " + s.stopped)
                             : fmt::format("round {}", s.current.number));
  if (const std::string hint = stagnation_hint(s); !hint.empty()) out += "- Stagnation: " + hint + "\n";
  for (const std::string& line : s.history) out += "- " + line + "\n";
  for (const Round& r : s.rounds) {
    out += fmt::format("\n## Round {} ({}): {}\n{}\n\n{}. {} -> {} us ({}).\n", r.number, r.date, r.status,
                       r.proposal.hypothesis, r.reason.empty() ? r.status : r.reason, micro(r.best_us), micro(r.us),
                       percent(r));
  }
  return stopped ? out + "\n" + final_report(s) : out;
}

}  // namespace

fs::path tips_path(const Manifest& m) {
  return fs::path(m.upstream.empty() ? m.repository : m.upstream) / "agent" / "historical_experience" / m.target_gpu /
         m.target_op / lower(m.target_backend) / "tips.md";
}

std::string final_report(const State& s) {
  Gains gains;
  std::string table = "| Round | Bucket | Benchmark gain | Real gain |\n|---|---|---|---|\n";
  for (const Round& r : s.rounds) {
    if (r.status != "keep") continue;
    gains.add(r);
    table += fmt::format("| {} | {} | {:+.2f} % | {:+.2f} % |\n", r.number, r.proposal.bucket, (r.score - 1) * 100,
                         (Gains::real_of(r) - 1) * 100);
  }
  const double gap = gains.gap_percent();
  std::string out = fmt::format(
      "## Final Report\n- Best: {} (round {})\n- Headline gain: {:+.2f} %\n- Stopped: {}\n\n### Real-training applicability audit\n{}\n"
      "- S_real (kernel): {:+.2f} %\n- W_real (weight caches): {:+.2f} %\n- R_real (residual of the benchmark's loop): {:+.2f} %\n- Inflation gap: {:.2f} %\n",
      s.best_commit, s.best_round, (gains.headline - 1) * 100, s.stopped.empty() ? "not yet" : s.stopped, table,
      (gains.kernel - 1) * 100, (gains.weights - 1) * 100, gap, gap);
  if (gap > 1)
    out +=
        "- More than 1 % of the headline does not reach the real workload: roll back the rounds whose gains differ.\n";
  std::string good, bad;
  for (const Round& r : s.rounds) {
    if (r.status == "baseline") continue;
    (r.status == "keep" ? good : bad) +=
        fmt::format("- {} ({}, round {})\n", r.proposal.hypothesis, r.status, r.number);
  }
  return out + "\n### What helped\n" + (good.empty() ? "- nothing\n" : good) + "\n### What did not\n" +
         (bad.empty() ? "- nothing was tried in vain\n" : bad);
}

std::string final_report_json(const State& s) {
  Gains gains;
  Json rounds = Json::array();
  for (const Round& r : s.rounds) {
    if (r.status == "baseline") continue;
    Json one = {{"round", r.number},
                {"status", r.status},
                {"bucket", r.proposal.bucket},
                {"hypothesis", r.proposal.hypothesis}};
    if (r.status == "keep") {
      gains.add(r);
      one["gain_percent"] = (r.score - 1) * 100, one["real_gain_percent"] = (Gains::real_of(r) - 1) * 100;
    }
    rounds.push_back(std::move(one));
  }
  return dump({{"schema", "tilewave.campaign_report/1"},
               {"best_commit", s.best_commit},
               {"best_round", s.best_round},
               {"stopped", s.stopped},
               {"headline_percent", (gains.headline - 1) * 100},
               {"kernel_percent", (gains.kernel - 1) * 100},
               {"weights_percent", (gains.weights - 1) * 100},
               {"inflation_gap_percent", gains.gap_percent()},
               {"rounds", rounds}});
}

void render(const Campaign& c) {
  const State& s = c.state();
  int version = 0;
  std::vector<std::string> pitfalls;  // since the accepted version before
  for (const Round& r : s.rounds) {
    write_if_other(c.round_folder(r.number) / "summary.md", summary_md(r));
    pitfalls.insert(pitfalls.end(), r.pitfalls.begin(), r.pitfalls.end());
    if (accepted(r)) {
      write_memory(c.path("memory"), version++, r, pitfalls);
      pitfalls.clear();
    } else {
      pitfalls.push_back(fmt::format("{}: {}, {}; rolled back", r.proposal.hypothesis, r.status, r.reason));
    }
  }
  for (int v = 1; v <= version; ++v) {
    const std::string plan = plan_md(s, v);
    if (plan.find("\n## Round") != std::string::npos)
      write_if_other(c.path("plans") / fmt::format("v{}_plan.md", v), plan);
  }
  if (s.rounds.empty()) return;
  write_if_other(c.path("performance.md"), performance_md(s, c.manifest()));
  write_if_other(c.path("logs/performance_trend.md"), trend_md(s, c.manifest()));
  write_if_other(c.path("logs/optimize.md"), optimize_md(s, c.manifest(), !s.stopped.empty()));
}

void Campaign::report() { write_atomically(path("logs/optimize.md"), optimize_md(state_, manifest_, true)); }

}  // namespace tilewave::tool
