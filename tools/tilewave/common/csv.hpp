// SPDX-License-Identifier: MIT
// CSV as Google Benchmark, pandas, rocprofv3 and ncu write it (RFC 4180: quotes, commas and line breaks inside them).
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tilewave::tool {

struct Csv {
  std::string source;  // for messages
  std::vector<std::string> columns;
  std::vector<std::vector<std::string>> rows;  // each as long as columns
  std::vector<std::size_t> lines;              // of each row, from 1

  std::optional<std::size_t> find(std::string_view column) const;
  std::size_t need(std::string_view column) const;                // refuses, naming the columns there are
  double need_number(std::size_t row, std::size_t column) const;  // refuses, naming the line
  std::string where(std::size_t row) const;                       // "file.csv:12"
};

/// The header is the first line that has header_word as a field (any line if that is empty): profilers talk before it. A
/// header that comes again, as in files behind one another, is skipped. Refuses anything that is no such table: no
/// header, no row, ragged rows, a column twice, an open quote, a zero byte. `short_rows`: those may lack fields at the end,
/// which are empty then.
Csv parse_csv(std::string_view text, const std::string& source, std::string_view header_word = {},
              bool short_rows = false);
Csv read_csv(const std::string& path, std::string_view header_word = {});

}  // namespace tilewave::tool
