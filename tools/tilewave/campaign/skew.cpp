// SPDX-License-Identifier: MIT
#include "tools/tilewave/campaign/skew.hpp"

#include <fmt/format.h>

#include "tools/tilewave/common/text.hpp"

namespace tilewave::tool {

bool is_routed(const std::string& op) {
  const std::string name = lower(op);
  return name.find("moe") != std::string::npos || name.find("group") != std::string::npos ||
         name.find("expert") != std::string::npos;
}

std::string skewed_rows(const Csv& base, const Csv& cand, const std::string& metric, double tie_pct, bool& holds) {
  static const std::vector<std::string> columns{"routing", "skew", "distribution", "group_sizes"};
  static const std::vector<std::string> even{"", "0", "none", "uniform", "balanced", "even", "equal"};
  Csv skewed = base;
  skewed.rows.clear(), skewed.lines.clear();
  for (std::size_t r = 0; r < base.rows.size(); ++r) {
    bool skew = false;
    for (const std::string& column : columns) {
      if (const auto at = base.find(column)) skew = skew || !contains(even, lower(base.rows[r][*at]));
    }
    if (skew) skewed.rows.push_back(base.rows[r]), skewed.lines.push_back(base.lines[r]);
  }
  holds = true;
  if (skewed.rows.empty()) return "";
  CompareOptions options;
  options.map.us = metric, options.tie_pct = tie_pct;
  const Comparison result = compare(skewed, cand, options);
  holds = result.verdict == Verdict::keep || result.verdict == Verdict::tie;
  return fmt::format("{} rows, score {:.4f}: {}", skewed.rows.size(), result.score,
                     holds ? "the gain does not turn into a loss" : result.reason);
}

}  // namespace tilewave::tool
