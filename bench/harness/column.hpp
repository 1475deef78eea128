// SPDX-License-Identifier: MIT
// Cells of the CSV and of the JSON: counts, numbers and words, each with the name of its column.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <map>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <variant>
#include <vector>

#include "tilewave/arch/facts.hpp"
#include "tilewave/core/dtype.hpp"
#include "tilewave/core/scaling.hpp"

namespace tilewave::bench {

/// The version of the layout in docs/reference/benchmarking-columns.md. Columns may be added to it; none is renamed.
inline constexpr int schema_version = 2;

using Cell = std::variant<std::int64_t, double, std::string>;

struct Column {
  std::string name;  // the name of a number carries its unit
  Cell value;
  bool policy = false;  // true: it says how a row was computed, not what it is
};
using Columns = std::vector<Column>;

/// Makes a cell of an enumeration that can also be read. Enumerators count from 0, and each has its word, name_of().
template <class E>
inline constexpr int enumerators_of = 0;
template <>
inline constexpr int enumerators_of<DType> = 10;
template <>
inline constexpr int enumerators_of<ArchId> = 3;
template <>
inline constexpr int enumerators_of<Scaling> = 8;

/// Makes a cell of a value: a bool is 0 or 1, and an enumerator is its word.
template <class T>
Cell cell_of(const T& value) {
  if constexpr (std::is_enum_v<T>) {
    return std::string(name_of(value));
  } else if constexpr (std::is_integral_v<T>) {
    return static_cast<std::int64_t>(value);
  } else if constexpr (std::is_floating_point_v<T>) {
    return static_cast<double>(value);
  } else {
    return std::string(value);
  }
}

/// Collects the cells that each_column() of a config or a policy declares, in that order. visit(name, field) declares a
/// field, visit.derived(name, value) a value that follows from other fields, and visit.chosen() one that the harness
/// chooses.
struct ColumnWriter {
  Columns columns;
  bool policy = false;  // true: the following columns belong to a policy

  template <class T>
  void operator()(const char* name, const T& value) {
    columns.push_back({name, cell_of(value), policy});
  }
  template <class T>
  void derived(const char* name, const T& value) {
    (*this)(name, value);
  }
  template <class T>
  void chosen(const char* name, const T& value) {
    (*this)(name, value);
  }
  /// Declares a bool that is written as words.
  void words(const char* name, bool value, const char* no, const char* yes) { (*this)(name, value ? yes : no); }
};

/// Returns numbers with six digits, as many as a measurement has. Counts are exact.
inline std::string text_of(const Cell& cell) {
  if (const auto* number = std::get_if<double>(&cell)) {
    char text[32];
    std::snprintf(text, sizeof(text), "%.6g", std::isnan(*number) ? std::abs(*number) : *number);
    return text;
  }
  const auto* count = std::get_if<std::int64_t>(&cell);
  return count != nullptr ? std::to_string(*count) : std::get<std::string>(cell);
}

/// Returns a field of CSV (RFC 4180), which is quoted where necessary.
inline std::string csv_field(const std::string& text) {
  if (text.find_first_of(",\"\r\n") == text.npos) return text;
  std::string quoted = "\"";
  for (const char c : text) quoted += c == '"' ? std::string("\"\"") : std::string(1, c);
  return quoted + "\"";
}

inline std::string csv_header(const Columns& row) {
  std::string line;
  for (const Column& column : row) line += (line.empty() ? "" : ",") + csv_field(column.name);
  return line + "\n";
}
inline std::string csv_line(const Columns& row) {
  std::string line;
  for (const Column& column : row) line += (&column == row.data() ? "" : ",") + csv_field(text_of(column.value));
  return line + "\n";
}

/// Throws if two rows have equal columns, since nobody could distinguish them. A row has a name and identity(), its
/// Columns.
template <class Rows>
void check_identities(const Rows& rows) {
  std::map<std::string, std::string> seen;
  for (const auto& row : rows) {
    const auto [first, fresh] = seen.emplace(csv_line(row.identity()), row.name);
    if (!fresh) throw std::logic_error("rows " + first->second + " and " + row.name + " differ in no column");
  }
}

}  // namespace tilewave::bench
