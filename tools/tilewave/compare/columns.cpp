// SPDX-License-Identifier: MIT
#include "tools/tilewave/compare/columns.hpp"

#include <fmt/format.h>

#include <cmath>

#include "tools/tilewave/common/error.hpp"
#include "tools/tilewave/common/text.hpp"

namespace tilewave::tool {

std::vector<std::string> marked_policy(const Csv& csv) {
  const auto at = csv.find("policy_columns");
  std::vector<std::string> marked;
  const std::string* last = nullptr;
  for (const auto& row : csv.rows) {
    if (!at || (last != nullptr && row[*at] == *last)) continue;
    last = &row[*at];
    for (const std::string& column : split(*last, ' '))
      if (!column.empty() && !contains(marked, column)) marked.push_back(column);
  }
  return marked;
}

Role role_of(std::string_view column, const std::vector<std::string>& marked) {
  static const std::vector<std::string> device{"arch", "device",  "emulated",    "gfx",  "cu_num",
                                               "gpu",  "backend", "clock_model", "state"};
  static const std::vector<std::string> inputs{"seed", "inputs"};
  static const std::vector<std::string> work{"bytes_ideal", "flops", "rows_launched"};
  // Ours are marked by the benchmarks; these are what others call theirs.
  static const std::vector<std::string> policy{"policy", "entry", "splitK", "kernelId", "kernelName", "label"};
  static const std::vector<std::string> measured{"name",
                                                 "iterations",
                                                 "family_index",
                                                 "per_family_instance_index",
                                                 "run_name",
                                                 "run_type",
                                                 "repetitions",
                                                 "repetition_index",
                                                 "threads",
                                                 "real_time",
                                                 "cpu_time",
                                                 "time_unit",
                                                 "bytes_per_second",
                                                 "items_per_second",
                                                 "error_occurred",
                                                 "error_message",
                                                 "ok",
                                                 "samples",
                                                 "cv_pct",
                                                 "gbps",
                                                 "tflops",
                                                 "roof_us",
                                                 "roof_pct",
                                                 "max_abs_err",
                                                 "max_rel_err",
                                                 "config_id",
                                                 "sweep",
                                                 "schema_version",
                                                 "policy_columns",
                                                 "commit",
                                                 "date",
                                                 "timestamp",
                                                 "bw",
                                                 "errRatio",
                                                 "workspace_bytes",
                                                 "clock_mhz",
                                                 "bytes_moved",
                                                 "reason",
                                                 "sm_mhz",
                                                 "power_w",
                                                 "peer",
                                                 "floor_us",
                                                 "over_floor"};
  const auto is = [&](const std::vector<std::string>& list) { return contains(list, column); };
  const auto starts = [&](std::string_view prefix) { return column.starts_with(prefix); };
  if (contains(marked, column)) return Role::policy;
  if (is(device)) return Role::device;
  if (is(inputs)) return Role::inputs;
  if (is(work)) return Role::work;
  if (is(policy)) return Role::policy;
  if (is(measured) || column == "us" || starts("us_") || column == "err" || starts("err_") || starts("model_") ||
      starts("clock_") || starts("peer_") || starts("sustained_") || column.ends_with("_max_diff") ||
      column.ends_with("_max_diff_thr")) {
    return Role::measurement;
  }
  return Role::identity;
}

ColumnMap column_map(std::string_view text) {
  ColumnMap map;
  if (text.empty() || text == "tilewave") return map;
  if (text == "flydsl") {  // tests/kernels/test_pa.py had the error column until 2026-07 (61ffdee4), and raises since
    map.us = "us_flydsl_ps", map.err = "err_flydsl_ps", map.err_may_lack = true;
    return map;
  }
  if (text == "aiter") {  // its tuner takes an entry whose share of wrong elements is below 5 %
    map.us = "us", map.err = "errRatio", map.max_err = 0.05;
    map.ignored = {"us", "errRatio"};
    return map;
  }
  for (const std::string& item : split(text, ',')) {
    const std::size_t equals = item.find('=');
    if (equals == std::string::npos)
      refuse(fmt::format("--map: '{}' is no map; tilewave, flydsl, aiter or key=column,...", printable(item)));
    const std::string key = item.substr(0, equals), value = item.substr(equals + 1);
    if (key == "us") {
      map.us = value;
    } else if (key == "err") {
      map.err = value == "none" ? "" : value;
    } else if (key == "max_err") {
      const auto limit = number(value);
      if (!limit || !(*limit >= 0)) refuse(fmt::format("--map: max_err '{}' is no number from 0 on", printable(value)));
      map.max_err = *limit;
    } else if (key == "config") {
      map.config = split(value, '+');
    } else if (key == "ignore") {
      map.ignored = split(value, '+');
    } else {
      refuse(fmt::format("--map: '{}' is none of us, err, max_err, config, ignore", printable(key)));
    }
  }
  if (map.us.empty()) refuse("--map: us needs a column");
  return map;
}

Cycles cycles_of(const Csv& csv, std::size_t row) {
  const auto value = [&](const char* column) {
    const auto at = csv.find(column);
    const auto v = at ? number(csv.rows[row][*at]) : std::nullopt;
    return v && std::isfinite(*v) && *v > 0 ? *v : 0.0;
  };
  const Cycles cycles{value("model_clk"), value("model_mhz")};
  return cycles.clk > 0 && cycles.mhz > 0 ? cycles : Cycles{};
}

void OneClock::add(const Csv& csv, std::size_t row) {
  const Cycles cycles = cycles_of(csv, row);
  const auto at = csv.find(modelled_chip);
  const std::string chip = at ? csv.rows[row][*at] : "none";
  ranks_ = ranks_ && cycles.clk > 0 && chip != "none" && (rows_ == 0 || chip == chip_);
  chip_ = chip, ++rows_;
  if (ranks_) logs_ += std::log(cycles.mhz);
}

std::optional<double> OneClock::mhz() const {
  return ranks_ && rows_ > 0 ? std::optional(std::exp(logs_ / rows_)) : std::nullopt;
}

const std::vector<std::string>& class_columns() {
  static const std::vector<std::string> columns{"block_size", "mtp",      "query_length", "head_size", "op",
                                                "kind",       "kv_dtype", "quant_mode",   "x_dtype",   "out_dtype",
                                                "scale_mode", "a_dtype",  "b_dtype",      "q_dtype_w"};
  return columns;
}

}  // namespace tilewave::tool
