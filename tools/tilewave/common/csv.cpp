// SPDX-License-Identifier: MIT
#include "tools/tilewave/common/csv.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "tools/tilewave/common/error.hpp"
#include "tools/tilewave/common/text.hpp"

namespace tilewave::tool {

namespace {

/// Takes records off the front of a text.
class Reader {
 public:
  Reader(std::string_view text, const std::string& source, std::size_t line)
      : text_(text), source_(source), line_(line) {}

  bool next(std::vector<std::string>& fields) {
    fields.clear();
    if (text_.substr(at_).starts_with(utf8_mark)) at_ += utf8_mark.size();  // of a file behind another
    if (at_ >= text_.size()) return false;
    start_ = line_;
    for (;;) {
      fields.push_back(at_ < text_.size() && text_[at_] == '"' ? quoted() : plain());
      if (at_ >= text_.size()) return true;
      const char c = text_[at_++];
      if (c == ',') continue;
      ++line_;  // plain() and quoted() stop at ',' or a line break only
      return true;
    }
  }
  std::size_t line() const { return start_; }

 private:
  std::string plain() {
    const std::size_t begin = at_;
    while (at_ < text_.size() && text_[at_] != ',' && text_[at_] != '\n') ++at_;
    return std::string(trim(text_.substr(begin, at_ - begin)));
  }

  std::string quoted() {
    std::string field;
    for (++at_; at_ < text_.size(); ++at_) {
      if (text_[at_] == '\n') ++line_;
      if (text_[at_] != '"') {
        field += text_[at_];
      } else if (at_ + 1 < text_.size() && text_[at_ + 1] == '"') {
        field += text_[++at_];
      } else {
        ++at_;
        if (!plain().empty()) refuse(fmt::format("{}:{}: text after a closing quote", source_, line_));
        return field;
      }
    }
    refuse(fmt::format("{}:{}: a quote that is never closed", source_, start_));
  }

  std::string_view text_;
  const std::string& source_;
  std::size_t at_ = 0, line_, start_ = 1;
};

bool is_blank(const std::vector<std::string>& fields) { return fields.size() == 1 && fields[0].empty(); }

void check_columns(const Csv& csv, std::size_t line) {
  std::set<std::string> seen;
  for (const std::string& column : csv.columns) {
    if (column.empty()) refuse(fmt::format("{}:{}: a column without a name", csv.source, line));
    if (!seen.insert(column).second) {
      refuse(fmt::format("{}:{}: column '{}' comes twice", csv.source, line, printable(column)));
    }
  }
}

}  // namespace

std::optional<std::size_t> Csv::find(std::string_view column) const {
  const auto found = std::find(columns.begin(), columns.end(), column);
  return found == columns.end() ? std::nullopt : std::optional<std::size_t>(found - columns.begin());
}

std::size_t Csv::need(std::string_view column) const {
  if (const auto found = find(column)) return *found;
  refuse(fmt::format("{} has no column '{}'; it has: {}", source, column, printable(join(columns, " "), 400)));
}

double Csv::need_number(std::size_t row, std::size_t column) const {
  if (const auto value = number(rows[row][column])) return *value;
  refuse(fmt::format("{}: {} is '{}', not a number", where(row), columns[column], printable(rows[row][column])));
}

std::string Csv::where(std::size_t row) const { return fmt::format("{}:{}", source, lines[row]); }

Csv parse_csv(std::string_view text, const std::string& source, std::string_view header_word, bool short_rows) {
  text = utf8_of(text, source);
  if (text.find('\0') != std::string_view::npos) refuse(source + " holds zero bytes: it is no CSV");
  if (trim(text).empty()) refuse(source + " is empty");
  Csv csv;
  csv.source = source;
  // Talk before the header may hold quotes that are never closed, so it is skipped line by line.
  std::size_t skipped = 0;
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    if (header_word.empty() ? !trim(line).empty() : line.find(header_word) != std::string_view::npos) {
      std::vector<std::string> fields;
      Reader(line, source, skipped + 1).next(fields);
      if (header_word.empty() || contains(fields, header_word)) break;
    }
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    ++skipped;
  }
  Reader reader(text, source, skipped + 1);
  if (!reader.next(csv.columns)) refuse(fmt::format("{} has no header with a column '{}'", source, header_word));
  check_columns(csv, skipped + 1);
  std::vector<std::string> fields;
  while (reader.next(fields)) {
    if (is_blank(fields) || fields == csv.columns) continue;
    const std::size_t line = reader.line();
    if (short_rows && fields.size() < csv.columns.size()) fields.resize(csv.columns.size());
    if (fields.size() != csv.columns.size()) {
      refuse(fmt::format("{}:{}: {} fields where the header has {}", source, line, fields.size(), csv.columns.size()));
    }
    csv.rows.push_back(fields);
    csv.lines.push_back(line);
  }
  if (csv.rows.empty()) refuse(source + " has a header but no row");
  return csv;
}

Csv read_csv(const std::string& path, std::string_view header_word) {
  return parse_csv(read_file(path), path, header_word);
}

}  // namespace tilewave::tool
