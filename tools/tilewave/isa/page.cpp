// SPDX-License-Identifier: MIT
// Tables as JSON, and the page that has them.
#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "tools/tilewave/common/error.hpp"
#include "tools/tilewave/common/text.hpp"
#include "tools/tilewave/isa/tables.hpp"

namespace tilewave::tool {

namespace {

constexpr const char *page_begin = "<!-- begin: written by tilewave isa page -->", *page_end = "<!-- end -->";
constexpr const char* schema = "tilewave.isa_tables/1";

/// The text before the tables, the tables, and the text behind them.
struct PageParts {
  std::string head, tables, tail;
};
PageParts parts_of(const std::string& page, const std::string& source) {
  const std::size_t begin = page.find(page_begin), end = page.find(page_end);
  const auto once = [&](const char* mark, std::size_t at) {
    return at != page.npos && page.find(mark, at + 1) == page.npos;
  };
  if (!once(page_begin, begin) || !once(page_end, end) || end < begin)
    refuse(fmt::format("{}: needs one '{}' and one '{}' behind it", source, page_begin, page_end));
  const std::size_t inside = begin + std::string_view(page_begin).size();
  return {page.substr(0, begin), page.substr(inside, end - inside),
          page.substr(end + std::string_view(page_end).size())};
}

std::string made_by(const IsaTables& all) { return fmt::format("Compiled by {}.", all.compiler); }

using Rows = std::set<std::vector<std::string>>;

/// Returns the first columns of each row of a chip in the table with this title on the page.
Rows listed_rows(const std::string& tables, const std::string& title, std::size_t columns) {
  Rows rows;
  bool inside = false;
  for (const std::string& line : lines_of(tables)) {
    if (line.starts_with("###")) inside = line == "### " + title;
    std::vector<std::string> cells = split(line, '|');  // an empty one before the first and behind the last
    if (!inside || cells.size() < 3 || (cells[1] != "gfx942" && cells[1] != "gfx950")) continue;
    cells.pop_back(), cells.erase(cells.begin());
    cells.resize(std::min(cells.size(), columns));
    rows.insert(std::move(cells));
  }
  return rows;
}

}  // namespace

Json tables_json(const IsaTables& all) {
  Json tables = Json::array();
  for (const Table& t : all.tables) tables.push_back({{"title", t.title}, {"columns", t.columns}, {"rows", t.rows}});
  return {{"schema", schema}, {"compiler", all.compiler}, {"full", all.full}, {"tables", tables}};
}

IsaTables parse_tables(std::string_view text, const std::string& source) {
  const Json json = parse_json(text, source);
  if (text_member(json, "schema", source) != schema) refuse(source + ": not a " + schema + " file");
  IsaTables all{text_member(json, "compiler", source), bool_member(json, "full", source), {}};
  const auto words = [&](const Json& list) {
    std::vector<std::string> cells;
    if (!list.is_array()) refuse(source + ": a row is no list");
    for (const Json& one : list) {
      if (!one.is_string()) refuse(source + ": a cell is no text");
      cells.push_back(one.get<std::string>());
    }
    return cells;
  };
  for (const Json& one : list_member(json, "tables", source)) {
    Table table{text_member(one, "title", source), words(list_member(one, "columns", source)), {}};
    if (table.columns.size() < 2) refuse(source + ": a table has fewer than two columns");
    for (const Json& row : list_member(one, "rows", source)) {
      table.rows.push_back(words(row));
      if (table.rows.back().size() != table.columns.size()) refuse(source + ": a row has not as many cells as columns");
    }
    all.tables.push_back(std::move(table));
  }
  if (all.tables.empty()) refuse(source + ": no tables");
  return all;
}

std::string page_with(const std::string& page, const IsaTables& all, const std::string& source) {
  const PageParts parts = parts_of(page, source);
  return fmt::format("{}{}\n{}\n\n{}{}{}", parts.head, page_begin, made_by(all), tables_text(all.tables, true),
                     page_end, parts.tail);
}

PageCheck check_page(const std::string& page, const IsaTables& all, const std::string& source) {
  const std::string tables = parts_of(page, source).tables;
  PageCheck check{tables.find(made_by(all)) != tables.npos, {}};
  for (const char* title : {uses_title, rows_title}) {
    const auto found =
        std::find_if(all.tables.begin(), all.tables.end(), [&](const Table& t) { return t.title == title; });
    const bool some_specs = title == rows_title && !all.full;  // the worst of them may be another
    // The columns of reserved resources end with the waves.
    const std::size_t held = check.same_compiler && !some_specs ? 9 : 2;
    const Rows listed = listed_rows(tables, title, held);
    Rows present;
    std::vector<std::string> columns;
    if (found != all.tables.end()) {
      columns = found->columns;
      for (const auto& row : found->rows)
        present.emplace(row.begin(), row.begin() + static_cast<std::ptrdiff_t>(std::min(held, row.size())));
    }
    const auto only = [&](const char* where, const Rows& of, const Rows& other) {
      for (const auto& row : of) {
        if (other.contains(row)) continue;
        std::vector<std::string> uses;
        for (std::size_t i = 2; i < row.size() && i < columns.size(); ++i) uses.push_back(columns[i] + " " + row[i]);
        check.differences.push_back(fmt::format("only {}: {} {}{}{}", where, row[0], row.size() > 1 ? row[1] : "",
                                                uses.empty() ? "" : " ", join(uses, ", ")));
      }
    };
    only("compiled", present, listed);
    if (all.full) only("on the page", listed, present);
  }
  return check;
}

}  // namespace tilewave::tool
