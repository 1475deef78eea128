// SPDX-License-Identifier: MIT
#include "tools/tilewave/campaign/feedback.hpp"

#include <fmt/format.h>

#include "tools/tilewave/campaign/rules.hpp"
#include "tools/tilewave/common/error.hpp"
#include "tools/tilewave/common/json.hpp"
#include "tools/tilewave/common/text.hpp"
#include "tools/tilewave/trace/profile.hpp"

namespace tilewave::tool {

namespace fs = std::filesystem;

namespace {

bool is_kept(const Round& r) { return r.status == "keep" || r.status == "baseline"; }

constexpr std::size_t hot_spots = 5, hints = 5;

std::string bullets(const std::vector<std::string>& lines) {
  std::string out;
  for (const std::string& line : lines) out += "- " + line + "\n";
  return out;
}

/// Returns the lessons of the accepted versions, without the masked ones.
std::vector<std::string> pitfalls_of(const fs::path& memory) {
  std::vector<std::string> found;
  for (int version = 0; fs::exists(memory / fmt::format("v{}.json", version)); ++version) {
    const std::string file = (memory / fmt::format("v{}.json", version)).string();
    const Json json = parse_json(read_file(file), file);
    if (bool_member(json, "masked", file)) continue;
    for (const Json& item : list_member(json, "pitfalls_and_fixes", file)) {
      if (item.is_string()) found.push_back(fmt::format("v{}: {}", version, item.get<std::string>()));
    }
  }
  return found;
}

}  // namespace

void take_profile(const fs::path& folder, const Manifest& m, Round& round) {
  const auto chips = all_chips();
  const Chip* chip = nullptr;
  try {
    chip = &chip_of(chips, m.target_chip.empty() ? m.target_gpu : m.target_chip);
  } catch (const Error&) {  // a chip without numbers: nothing is said of occupancy
  }
  const Profile profile = read_profile(folder.string());
  write_atomically(folder / "REPORT.md",
                   report_md(profile, chip, fmt::format("{}, round {}", m.name, round.number), 15));
  round.launch.clear(), round.bottlenecks.clear();
  if (profile.times && !profile.times->kernels.empty()) {
    const KernelTime& hottest = profile.times->kernels.front();
    round.kernel = hottest.name, round.launch = hottest.launch;
    double all = 0;
    for (const KernelTime& k : profile.times->kernels) all += k.total_us;
    round.bottlenecks.push_back(fmt::format("{}: {:.1f} % of the GPU time, {:.3f} us in {} launches",
                                            printable(hottest.name, 200), all > 0 ? hottest.total_us / all * 100 : 0,
                                            hottest.total_us, hottest.calls));
  }
  for (const ThreadTrace& trace : profile.traces) {
    for (const HotSpot& spot : by_instruction(trace, hot_spots)) {
      round.bottlenecks.push_back(fmt::format(
          "{}{}: {:.1f} % of {}, {}", printable(spot.what, 120),
          spot.line > 0 ? fmt::format(" (line {})", spot.line) : "",
          trace.latency > 0 ? 100 * static_cast<double>(spot.stall) / static_cast<double>(trace.latency) : 0,
          trace.unit, spot.kind));
    }
  }
  std::size_t left = hints;
  for (const Hint& hint : hints_of(profile, chip)) {
    if (left-- == 0) break;
    round.bottlenecks.push_back(hint.text);
  }
}

std::string feedback_of(const State& s, const fs::path& campaign) {
  std::string out;
  if (const std::string hint = stagnation_hint(s); !hint.empty()) out += hint + "\n";
  if (s.best_round == 0) return out;
  const Round& best = s.rounds[static_cast<std::size_t>(s.best_round) - 1];
  const Round& last = s.rounds.back();
  if (last.number > 1) {
    out += fmt::format("last round {}: {} ({}): {}\n", last.number, last.status, last.reason, last.proposal.hypothesis);
    if (last.status == "split") {
      out += fmt::format(
          "split: propose a dispatch that keeps both kernels, each for its classes; the candidate is {}\n{}",
          (campaign / "rounds" / fmt::format("round-{}", last.number) / "candidate.patch").string(),
          bullets(last.routing));
    }
  }
  out += fmt::format("best: round {}, {:.3f} us\n", best.number, best.us);
  const fs::path report = campaign / "profiles" / fmt::format("round-{}", best.number) / "REPORT.md";
  out += fs::exists(report) ? fmt::format("profile of the best: {}\n{}", report.string(), bullets(best.bottlenecks))
                            : std::string("no profile: the campaign has no trace_command\n");
  if (fs::exists(campaign / "README.md"))
    out += fmt::format("roof and Stop Conditions: {}\n", (campaign / "README.md").string());
  if (const auto pitfalls = pitfalls_of(campaign / "memory"); !pitfalls.empty())
    out += "pitfalls and fixes:\n" + bullets(pitfalls);
  return out;
}

std::string plan_md(const State& s, int version) {
  std::string out = fmt::format("# Plan of v{}\n\nTargets: Stop Conditions of ../README.md.\n", version);
  int reached = -1;
  const Round* before = nullptr;
  const auto add = [&](const Round& r, const std::string& outcome) {
    const Proposal& p = r.proposal;
    out += fmt::format("\n## Round {} ({})\n- Hypothesis: {}\n- Bucket: {}\n- Config class: {}\n- Direction: {}\n",
                       r.number, r.date, p.hypothesis, p.bucket, p.target.empty() ? "global" : p.target,
                       p.direction.empty() ? "-" : p.direction);
    out += fmt::format("- Evidence, of round {}:\n", before == nullptr ? 1 : before->number);
    for (const std::string& line : before == nullptr ? std::vector<std::string>{} : before->bottlenecks)
      out += "  - " + line + "\n";
    if (before == nullptr || before->bottlenecks.empty()) out += "  - not traced\n";
    out += "- Outcome: " + outcome + "\n";
  };
  for (const Round& r : s.rounds) {
    if (reached == version - 1 && r.status != "baseline") add(r, r.status + ", " + r.reason);
    if (is_kept(r)) ++reached, before = &r;
  }
  if (reached == version - 1 && s.stage != Stage::idle && !s.current.proposal.hypothesis.empty())
    add(s.current, "not measured yet");
  return out;
}

}  // namespace tilewave::tool
