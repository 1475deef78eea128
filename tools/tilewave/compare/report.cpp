// SPDX-License-Identifier: MIT
#include "tools/tilewave/compare/report.hpp"

#include <fmt/format.h>

#include <set>

#include "tools/tilewave/common/json.hpp"
#include "tools/tilewave/common/text.hpp"

namespace tilewave::tool {

namespace {

constexpr const char* schema = "tilewave.compare/1";

/// Returns the result for a class as text.
std::string word_of_class(const ClassResult& c) {
  const std::string twice = c.twice ? " (twice)" : "";
  switch (c.verdict) {
    case Verdict::keep: return "gain" + twice;
    case Verdict::discard: return "loss" + twice;
    case Verdict::split: return "mixed";
    default: return "tie";
  }
}

std::string entries(const ClassResult& c, bool candidate) {
  std::set<std::string> names;
  for (const PairedRow& row : c.rows) names.insert(candidate ? row.cand_entry : row.base_entry);
  return names.size() == 1 ? *names.begin() : fmt::format("{} entries, {} among them", names.size(), *names.begin());
}

}  // namespace

std::vector<std::string> routes_of(const Comparison& result) {
  std::vector<std::string> routes;
  for (const ClassResult& c : result.classes) {
    const bool moves = c.verdict == Verdict::keep;
    const std::string entry = entries(c, moves);
    routes.push_back(
        fmt::format("{}: {}{}{}", c.name, moves ? "candidate" : "base",
                    entry.ends_with(".csv") ? "" : ", " + entry,  // rows that name no entry
                    c.verdict == Verdict::split ? "; gains but for single rows: --by more columns tells which" : ""));
  }
  return routes;
}

std::string text_report(const Comparison& result, const std::string& metric) {
  if (result.verdict == Verdict::incorrect) {
    std::string out;
    for (const std::string& row : result.wrong) out += "wrong  " + row + "\n";
    return out + fmt::format("verdict: incorrect ({})\n", result.reason);
  }
  std::vector<std::vector<std::string>> table{
      {"class", "rows", "base " + metric, "candidate", "ratio", "noise", "worst row", "", "verdict"}};
  for (const ClassResult& c : result.classes) {
    table.push_back({c.name, std::to_string(c.rows.size()), fmt::format("{:.3f}", c.base_us),
                     fmt::format("{:.3f}", c.cand_us), fmt::format("{:.4f}", c.ratio),
                     fmt::format("{:.2f} %", c.noise * 100), fmt::format("{:.4f}", c.worst),
                     c.rows.size() > 1 ? c.worst_row : "", word_of_class(c)});
  }
  std::string out = text_table(table);
  if (result.by_cycles) out += std::string(ranked_by_cycles) + "\n";
  if (result.extra_rows > 0)
    out += fmt::format("{} configs of the candidate are not in the baseline and not compared\n", result.extra_rows);
  if (result.verdict == Verdict::split) {
    out += "keep both, each for its classes:\n";
    for (const std::string& route : routes_of(result)) out += "  " + route + "\n";
  }
  return out + fmt::format("score {:.4f} (geometric mean over classes of base / candidate)\nverdict: {} ({})\n",
                           result.score, word_of(result.verdict), result.reason);
}

std::string json_report(const Comparison& result, const std::string& metric) {
  Json classes = Json::array();
  for (const ClassResult& c : result.classes) {
    Json rows = Json::array();
    for (const PairedRow& r : c.rows) {
      rows.push_back({{"config", r.config},
                      {"base", r.base_us},
                      {"candidate", r.cand_us},
                      {"ratio", r.ratio()},
                      {"ranked_by", r.at_one_clock ? "model_clk" : metric},
                      {"noise", r.noise},
                      {"base_entry", r.base_entry},
                      {"candidate_entry", r.cand_entry}});
      if (r.base_cycles.clk > 0 && is_modelled(metric))
        rows.back().update({{"base_clk", r.base_cycles.clk}, {"base_mhz", r.base_cycles.mhz}});
      if (r.cand_cycles.clk > 0 && is_modelled(metric))
        rows.back().update({{"candidate_clk", r.cand_cycles.clk}, {"candidate_mhz", r.cand_cycles.mhz}});
    }
    classes.push_back({{"class", c.name},
                       {"base", c.base_us},
                       {"candidate", c.cand_us},
                       {"ratio", c.ratio},
                       {"noise", c.noise},
                       {"worst_ratio", c.worst},
                       {"worst_row", c.worst_row},
                       {"verdict", word_of_class(c)},
                       {"goes_to", c.verdict == Verdict::keep ? "candidate" : "base"},
                       {"rows", rows}});
  }
  Json report{{"schema", schema},
              {"verdict", word_of(result.verdict)},
              {"reason", result.reason},
              {"metric", metric},
              {"score", result.score},
              {"by", result.by},
              {"extra_rows", result.extra_rows},
              {"wrong", result.wrong},
              {"classes", classes}};
  if (result.base_kernels && result.cand_kernels) {
    const KernelSum &a = *result.base_kernels, &b = *result.cand_kernels;
    report["kernels"] = {{"base_us", a.us},
                         {"candidate_us", b.us},
                         {"ratio", b.us / a.us},
                         {"base_launches", a.launches},
                         {"candidate_launches", b.launches}};
  }
  return dump(report);
}

std::map<std::string, double> ratios_of(std::string_view text, const std::string& source) {
  const Json json = parse_json(text, source);
  if (text_member(json, "schema", source) != schema) refuse(source + " is no report of compare --json");
  const bool kept = text_member(json, "verdict", source) == word_of(Verdict::keep);
  std::map<std::string, double> ratios;
  for (const Json& c : list_member(json, "classes", source)) {
    const double ratio = number_member(c, "ratio", source);
    if (!(ratio > 0)) refuse(source + ": a ratio that is not above 0");
    const std::string name = text_member(c, "class", source);
    if (text_member(c, "verdict", source) == "tie" && !kept) ratios[name] = ratio;
  }
  return ratios;
}

std::optional<double> kernel_ratio_of(std::string_view text, const std::string& source) {
  const Json json = parse_json(text, source);
  if (!json.is_object() || !json.contains("kernels") || text_member(json, "verdict", source) != word_of(Verdict::tie))
    return std::nullopt;
  const double ratio = number_member(json.at("kernels"), "ratio", source);
  if (!(ratio > 0)) refuse(source + ": a ratio that is not above 0");
  return ratio;
}

}  // namespace tilewave::tool
