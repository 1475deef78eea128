// SPDX-License-Identifier: MIT
#include "tools/tilewave/campaign/rules.hpp"

#include <fmt/format.h>

#include <cmath>
#include <set>

#include "tools/tilewave/common/error.hpp"
#include "tools/tilewave/common/text.hpp"

namespace tilewave::tool {

void conclude_round(State& s, const Round& round) {
  s.rounds.push_back(round);
  s.stage = Stage::idle;
  s.current = {};
  const bool kept = round.status == "keep" || round.status == "baseline";
  if (kept) s.best_commit = round.commit, s.best_round = round.number;
  s.consecutive_rollbacks = kept ? 0 : s.consecutive_rollbacks + 1;
  if (round.status == "discard") {
    ++s.consecutive_regressions;
    s.recent_regressions.push_back(round);
    if (s.recent_regressions.size() > max_regressions) s.recent_regressions.erase(s.recent_regressions.begin());
  } else {
    s.consecutive_regressions = 0;
    s.recent_regressions.clear();
  }
}

std::string stop_reason(const State& s, const Manifest& m, const Csv* best) {
  if (s.consecutive_regressions >= max_regressions)
    return fmt::format("{} consecutive measured regressions", s.consecutive_regressions);
  if (m.max_iterations > 0 && static_cast<int>(s.rounds.size()) > m.max_iterations)
    return fmt::format("max_iterations = {}", m.max_iterations);
  if (best != nullptr && target_reached(m.performance_target, *best, m.primary_metric))
    return "performance_target reached: " + m.performance_target;
  return "";
}

std::string stagnation_hint(const State& s) {
  if (s.consecutive_rollbacks < 2) return "";
  std::set<std::string> directions;
  for (auto r = s.rounds.rbegin();
       r != s.rounds.rend() && static_cast<int>(r - s.rounds.rbegin()) < s.consecutive_rollbacks; ++r) {
    if (!r->proposal.direction.empty()) directions.insert(r->proposal.direction);
  }
  std::string tried;
  for (const std::string& d : directions) tried += (tried.empty() ? "" : ", ") + d;
  return fmt::format("{} rollbacks in a row: read the profile again and take another direction{}",
                     s.consecutive_rollbacks, tried.empty() ? "" : " than " + tried);
}

bool target_reached(const std::string& target, const Csv& rows, const std::string& metric) {
  if (trim(target).empty()) return false;
  const char sign = target[0];
  const std::string rest(trim(std::string_view(target).substr(1)));
  const std::size_t end = rest.find_first_not_of("0123456789.");
  const auto goal = number(rest.substr(0, end));
  const std::string unit = lower(trim(end == std::string::npos ? "" : std::string_view(rest).substr(end)));
  const std::map<std::string, std::string> columns{
      {"tflops", "tflops"}, {"%", "roof_pct"}, {"gb/s", "gbps"}, {"us", metric}};
  const auto column = columns.find(unit);
  if ((sign != '>' && sign != '<') || !goal || column == columns.end()) {
    refuse(fmt::format("performance_target '{}' is not like '> 500 TFLOPS', '> 60 %', '> 3000 GB/s' or '< 12 us'",
                       printable(target)));
  }
  double sum = 0;
  const std::size_t at = rows.need(column->second);
  for (std::size_t r = 0; r < rows.rows.size(); ++r) {
    const double value = rows.need_number(r, at);
    if (!(value > 0) || !std::isfinite(value)) return false;
    sum += std::log(value);
  }
  const double mean = std::exp(sum / static_cast<double>(rows.rows.size()));
  return sign == '>' ? mean > *goal : mean < *goal;
}

}  // namespace tilewave::tool
