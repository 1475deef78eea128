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

std::string stop_reason(const State& s, const Manifest& m, const Csv* best, const Roof* roof) {
  if (s.consecutive_regressions >= max_regressions)
    return fmt::format("{} consecutive measured regressions", s.consecutive_regressions);
  if (m.max_iterations > 0 && static_cast<int>(s.rounds.size()) > m.max_iterations)
    return fmt::format("max_iterations = {}", m.max_iterations);
  if (best != nullptr && target_reached(m.performance_target, *best, m.primary_metric, roof))
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

namespace {

/// Returns the number of a row that a target is compared with.
double value_of(const std::string& unit, const Csv& rows, std::size_t r, const std::string& metric, const Roof* roof) {
  const auto of = [&](const char* column) { return rows.need_number(r, rows.need(column)); };
  const double us = rows.need_number(r, rows.need(metric));
  if (unit == "us") return us;
  const bool own = metric == "us";  // the benchmark's own rates are of that column
  if (unit == "tflops") return own ? of("tflops") : of("flops") / us * 1e-6;
  if (unit == "gb/s") return own ? of("gbps") : of("bytes_ideal") / us * 1e-3;
  if (own && rows.find("roof_pct") && std::isfinite(of("roof_pct"))) return of("roof_pct");
  if (roof == nullptr) refuse("a target in % of rows without roof_pct needs a chip: target_chip in the manifest");
  return roof->floor_us({of("flops"), of("bytes_ideal"), ""}) / us * 100;
}

}  // namespace

bool target_reached(const std::string& target, const Csv& rows, const std::string& metric, const Roof* roof) {
  if (trim(target).empty()) return false;
  const std::string text =
      trim(target) == roof_target ? fmt::format("> {} %", roof_share * 100) : std::string(trim(target));
  const char sign = text[0];
  const std::string rest(trim(std::string_view(text).substr(1)));
  const std::size_t end = rest.find_first_not_of("0123456789.");
  const auto goal = number(rest.substr(0, end));
  const std::string unit = lower(trim(end == std::string::npos ? "" : std::string_view(rest).substr(end)));
  if ((sign != '>' && sign != '<') || !goal || !contains({"tflops", "%", "gb/s", "us"}, unit)) {
    refuse(
        fmt::format("performance_target '{}' is not like 'roof', '> 500 TFLOPS', '> 60 %', '> 3000 GB/s' or '< 12 us'",
                    printable(target)));
  }
  double sum = 0;
  for (std::size_t r = 0; r < rows.rows.size(); ++r) {
    const double value = value_of(unit, rows, r, metric, roof);
    if (!(value > 0) || !std::isfinite(value))
      refuse(fmt::format("{}: performance_target '{}' can never be met: the row has {} {}", rows.where(r),
                         printable(target), value, unit));
    sum += std::log(value);
  }
  const double mean = std::exp(sum / static_cast<double>(rows.rows.size()));
  return sign == '>' ? mean > *goal : mean < *goal;
}

}  // namespace tilewave::tool
