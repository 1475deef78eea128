// SPDX-License-Identifier: MIT
// Configs of users with words that nobody means: each is a config that can be planned, or one line that says why not.
#pragma once

#include <stdexcept>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "bench/harness/rows/main.hpp"
#include "test/catch_compat.hpp"

namespace tilewave::bench {

inline const std::vector<std::string> extremes{"0",
                                               "1",
                                               "-1",
                                               "16384",
                                               "1048576",
                                               "1073741824",
                                               "2147483632",
                                               "2147483646",
                                               "2147483647",
                                               "2147483648",
                                               "-2147483648",
                                               "4294967295",
                                               "9223372036854775807",
                                               "18446744073709551615",
                                               "18446744073709551616",
                                               "1e9",
                                               "1.5",
                                               "nan",
                                               "+1",
                                               "0x10",
                                               " 1"};

/// Does what a benchmark does with a config before anything is allocated.
template <class Op>
void plan(typename Op::Case c) {
  std::uintptr_t place = 0;
  const auto problem = Op::problem_of(c, {}, [&](const TwinBuffer&) -> void* { return somewhere(++place); });
  const typename Op::Entry* entry = nullptr;
  (void)Op::select(problem, {}, facts_of(c.arch), entry);
  c.rows = launched_rows_of(c);
  (void)name_of(c);
  (void)Op::work_of(c);
}
/// The columns that say what a config is, but for those that the harness chooses.
struct Declared : ColumnWriter {
  template <class T>
  void chosen(const char*, const T&) {}
};

inline std::string config_of(const Columns& columns) {
  std::string config;
  for (const Column& column : columns)
    config += (config.empty() ? "" : "/") + column.name + "=" + text_of(column.value);
  return config;
}

/// Each number of a config in turn, and each pair of them, take each extreme. Returns how many configs were planned.
template <class Case, class ModelCases, class Plan>
int check_extremes(const Case& seed, const ModelCases& model_cases, const Plan& plan) {
  Declared declared;
  Case::each_column(seed, declared);
  Case start;
  start.arch = seed.arch;
  int planned = 0;
  const auto check = [&](const Columns& columns) {
    ShapeOptions options;
    options.config = config_of(columns);
    std::vector<Case> cases;
    try {
      cases = cases_of(options, start, {}, model_cases);
    } catch (const std::invalid_argument& refusal) {
      const std::string_view line = refusal.what();
      const bool says_more_than_where = line.size() > options.config.size() + 20;
      if (line.starts_with("--config=") && line.find('\n') == line.npos && says_more_than_where) return;
      FAIL_CHECK(options.config << " is refused with: " << line);
      return;
    }
    try {
      for (const Case& c : cases) plan(c), ++planned;
    } catch (const std::exception& error) {
      FAIL_CHECK(options.config << " ends with: " << error.what());
    }
  };
  check(declared.columns);
  REQUIRE(planned == 1);
  const auto number = [&](std::size_t i) {
    return i < declared.columns.size() && std::holds_alternative<std::int64_t>(declared.columns[i].value);
  };
  for (std::size_t i = 0; i < declared.columns.size(); ++i) {
    if (!number(i)) continue;
    for (const std::string& word : extremes) {
      Columns columns = declared.columns;
      columns[i].value = word;
      check(columns);
      for (std::size_t j = i + 1; j < columns.size(); ++j) {
        if (!number(j)) continue;
        Columns both = columns;
        both[j].value = word;
        check(both);
      }
    }
  }
  return planned;
}

template <class Op>
void check_op() {
  for (const ArchId arch : {ArchId::gfx950, ArchId::sm90}) {
    const std::vector<typename Op::Case> sweep = Op::default_sweep(arch);
    for (const std::size_t i : {std::size_t{0}, sweep.size() / 2, sweep.size() - 1})
      CHECK(check_extremes(sweep[i], Op::model_cases, [](const auto& c) { plan<Op>(c); }) > 1);
  }
}

}  // namespace tilewave::bench
