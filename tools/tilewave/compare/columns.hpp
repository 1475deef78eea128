// SPDX-License-Identifier: MIT
// The meaning of the columns of a benchmark's CSV for a comparison.
#pragma once

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tools/tilewave/common/csv.hpp"

namespace tilewave::tool {

enum class Role {
  identity,     // of the config: rows are joined by these
  device,       // what it ran on: must be the same
  inputs,       // what it ran with: must be the same
  work,         // what it had to do: must be the same
  policy,       // how it did it: may differ
  measurement,  // what came out
};

/// The columns that a CSV's own column policy_columns names.
std::vector<std::string> marked_policy(const Csv& csv);

/// Returns the role of a column: from its mark, then from the names that our benchmarks use. An unknown column is part
/// of the config, so that nothing is joined by accident.
Role role_of(std::string_view column, const std::vector<std::string>& marked);

/// The columns of a CSV by what they hold.
struct ColumnMap {
  std::string us = "us";    // the time that is compared, lower is better
  std::string err = "err";  // must be at most max_err and a number; empty: right by exception
  double max_err = 0;
  bool err_may_lack = false;         // a file without that column is right by exception
  std::vector<std::string> config;   // empty: every column whose role is identity
  std::vector<std::string> ignored;  // never identity
};

/// A map by name (tilewave, flydsl, aiter) or written out: "us=COLUMN,err=COLUMN,max_err=0.05,config=A+B+C".
ColumnMap column_map(std::string_view text);

/// True if a column of times was modelled, not measured. The device is then the chip that was modelled.
inline bool is_modelled(std::string_view metric) { return metric.starts_with("model_"); }
inline constexpr std::string_view modelled_chip = "model_chip";  // its column, "none" where nothing was modelled

/// The simulator's numbers for a modelled row's call: clk of its launches, and the clock at which they are assumed to
/// run.
struct Cycles {
  double clk = 0, mhz = 0;  // 0: the row does not say
  /// A time with another clock: the overhead of the launches stays.
  double us_at(double clock, double us) const { return std::max(0.0, us - clk / mhz) + clk / clock; }
};
Cycles cycles_of(const Csv& csv, std::size_t row);

/// Rows of one config in column model_us are ranked at one clock, the mean of theirs: by cycles, and the overhead of launches. The
/// clock under load is the least certain part of the model. Nothing for other columns, rows of two chips and rows without cycles.
class OneClock {
 public:
  explicit OneClock(std::string_view metric) : ranks_(metric == "model_us") {}
  void add(const Csv& csv, std::size_t row);
  std::optional<double> mhz() const;

 private:
  bool ranks_;
  std::string chip_;
  double logs_ = 0;
  int rows_ = 0;
};
inline constexpr const char* ranked_by_cycles =
    "ranked by model_clk, and the overhead of launches, not by model_us: the clock under load is the least certain part of it";

/// Columns that make a config class, most telling first; those that a CSV has are used.
const std::vector<std::string>& class_columns();

}  // namespace tilewave::tool
