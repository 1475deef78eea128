// SPDX-License-Identifier: MIT
#include "tools/tilewave/common/text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <memory>
#include <utility>

#include "tools/tilewave/common/error.hpp"
#include "tools/tilewave/common/write_file.hpp"

namespace tilewave::tool {

std::string read_file(const std::string& path, std::uint64_t max_bytes) {
  std::error_code ignored;
  if (path != "-" && std::filesystem::is_directory(path, ignored)) refuse(fmt::format("{} is a folder", path));
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> owned(path == "-" ? nullptr : std::fopen(path.c_str(), "rb"),
                                                              [](std::FILE* f) { return f ? std::fclose(f) : 0; });
  std::FILE* file = path == "-" ? stdin : owned.get();
  if (file == nullptr) refuse(fmt::format("cannot read {}: {}", path, std::strerror(errno)));
  std::string content;
  char buffer[1 << 16];
  while (const std::size_t got = std::fread(buffer, 1, sizeof buffer, file)) {
    content.append(buffer, got);
    if (content.size() > max_bytes) refuse(fmt::format("{} is larger than {} bytes", path, max_bytes));
  }
  if (std::ferror(file)) refuse(fmt::format("cannot read {}: {}", path, std::strerror(errno)));
  return content;
}

void write_atomically(const std::filesystem::path& path, std::string_view content) {
  const std::string why = write_whole_file(path, content);
  if (!why.empty()) throw Error(Exit::failed, fmt::format("cannot write {}: {}", path.string(), why));
}

std::string_view utf8_of(std::string_view text, const std::string& source) {
  using namespace std::string_view_literals;
  static constexpr std::pair<std::string_view, const char*> others[] = {
      {"\xff\xfe\0\0"sv, "UTF-32"}, {"\0\0\xfe\xff"sv, "UTF-32"}, {"\xff\xfe"sv, "UTF-16"}, {"\xfe\xff"sv, "UTF-16"}};
  for (const auto& [mark, name] : others)
    if (text.starts_with(mark)) refuse(fmt::format("{} is {}: save it as UTF-8", source, name));
  if (text.starts_with(utf8_mark)) text.remove_prefix(utf8_mark.size());
  return text;
}

std::optional<double> number(std::string_view word) {
  word = trim(word);
  double value = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
  if (error != std::errc{} || end != word.data() + word.size()) return std::nullopt;
  return value;
}

std::optional<std::int64_t> integer(std::string_view word) {
  word = trim(word);
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
  if (error != std::errc{} || end != word.data() + word.size()) return std::nullopt;
  return value;
}

std::vector<std::string> split(std::string_view text, char separator) {
  std::vector<std::string> words;
  for (std::size_t begin = 0;;) {
    const std::size_t end = text.find(separator, begin);
    words.emplace_back(trim(text.substr(begin, end - begin)));
    if (end == std::string_view::npos) return words;
    begin = end + 1;
  }
}

std::vector<std::string> lines_of(std::string_view text) {
  std::vector<std::string> lines;
  while (!text.empty()) {
    const std::size_t end = text.find('\n');
    std::string_view line = text.substr(0, end);
    if (line.ends_with('\r')) line.remove_suffix(1);
    lines.emplace_back(line);
    if (end == std::string_view::npos) break;
    text.remove_prefix(end + 1);
  }
  return lines;
}

std::string join(const std::vector<std::string>& words, std::string_view separator) {
  return fmt::format("{}", fmt::join(words, separator));
}

std::string_view trim(std::string_view text) {
  const auto is_space = [](char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\n'; };
  while (!text.empty() && is_space(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_space(text.back())) text.remove_suffix(1);
  return text;
}

std::string lower(std::string_view text) {
  std::string out(text);
  for (char& c : out) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  return out;
}

bool contains(const std::vector<std::string>& list, std::string_view word) {
  return std::find(list.begin(), list.end(), word) != list.end();
}

std::string printable(std::string_view text, std::size_t max) {
  std::string out;
  for (const char c : text.substr(0, max)) out += c >= 32 && c < 127 ? c : '?';
  return text.size() > max ? out + "..." : out;
}

std::string shell_word(std::string_view word) {
  std::string out = "'";
  for (const char c : word) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

std::string now_minute() {
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  ::localtime_r(&now, &local);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%d %H:%M", &local);
  return text;
}

std::string text_table(const std::vector<std::vector<std::string>>& rows) {
  std::vector<std::size_t> widths;
  for (const auto& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string out;
  for (const auto& row : rows) {
    std::string line;
    for (std::size_t i = 0; i < row.size(); ++i) {
      const bool figure = !row[i].empty() && number(split(row[i], ' ').front()).has_value();
      line += fmt::format("{}{}", i ? "  " : "",
                          figure ? fmt::format("{:>{}}", row[i], widths[i]) : fmt::format("{:<{}}", row[i], widths[i]));
    }
    out += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
  }
  return out;
}

}  // namespace tilewave::tool
