// SPDX-License-Identifier: MIT
#include "bench/harness/config_parser.hpp"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

namespace tilewave::bench {

namespace {

/// A record of CSV (RFC 4180), with the number of its first line.
struct CsvRecord {
  int line;
  std::vector<std::string> fields;
};
std::vector<CsvRecord> csv_records(const std::string& text, const std::string& file) {
  std::vector<CsvRecord> records;
  int line = 1;
  for (std::size_t at = 0; at < text.size(); ++line) {
    CsvRecord record{line, {""}};
    bool quoted = false, ended = false;
    for (; at < text.size() && !ended; ++at) {
      const char c = text[at];
      if (quoted) {
        line += c == '\n';
        if (c != '"') {
          record.fields.back() += c;
        } else if (at + 1 < text.size() && text[at + 1] == '"') {
          record.fields.back() += text[++at];
        } else {
          quoted = false;
        }
      } else if (c == '"' && record.fields.back().empty()) {
        quoted = true;
      } else if (c == ',') {
        record.fields.emplace_back();
      } else if (c == '\n') {
        ended = true;
      } else if (c != '\r') {
        record.fields.back() += c;
      }
    }
    if (quoted)
      throw std::invalid_argument(one_line(file) + ":" + std::to_string(record.line) + ": a quote does not end");
    if (record.fields.size() > 1 || !record.fields[0].empty()) records.push_back(std::move(record));
  }
  return records;
}

}  // namespace

void ColumnReader::words(const char* name, bool& field, const char* no, const char* yes) {
  const std::string* word = find(name);
  if (word == nullptr) return;
  if (*word != no && *word != yes) {
    words_.refuse(std::string(name) + ": '" + *word + "' is none of " + no + ", " + yes);
  }
  field = *word == yes;
}

void ColumnReader::expect_no_more(const std::set<std::string>& others) const {
  for (const auto& [name, word] : words_.values) {
    if (used_.contains(name) || others.contains(name)) continue;
    const Words header{words_.header, {}};
    (header.where.empty() ? words_ : header).refuse("no column is named '" + name + "'");
  }
}

const std::string* ColumnReader::find(const char* name) {
  used_.insert(name);
  const auto found = words_.values.find(name);
  return found == words_.values.end() || found->second.empty() ? nullptr : &found->second;
}

std::uint64_t ColumnReader::number(const char* name, const std::string& word, std::uint64_t most) const {
  const bool digits = !word.empty() && word.size() < 20 && word.find_first_not_of("0123456789") == word.npos;
  const std::uint64_t value = digits ? std::stoull(word) : 0;
  if (!digits || value > most) {
    words_.refuse(std::string(name) + ": '" + word + "' is not a number from 0 to " + std::to_string(most));
  }
  return value;
}

std::string one_line(const std::string& text) {
  constexpr std::size_t most = 400;
  std::string line = text.size() <= most ? text : text.substr(0, most) + "...";
  for (char& c : line)
    if (static_cast<unsigned char>(c) < 32 || c == 127) c = '?';
  return line;
}

std::vector<Words> read_words(const std::string& file) {
  const auto refuse = [&](const std::string& why, const std::string& line = "") {
    throw std::invalid_argument(one_line(file) + line + ": " + why);
  };
  if (std::filesystem::is_directory(file)) refuse("a folder, not a file of configs");
  std::ifstream in(file, std::ios::binary);
  const std::string text(std::istreambuf_iterator<char>(in), {});
  if (!in.good() && !in.eof()) refuse("cannot read");
  if (text.starts_with("\xff\xfe") || text.starts_with("\xfe\xff")) refuse("UTF-16; configs are in UTF-8");
  if (text.starts_with("\xef\xbb\xbf")) refuse("starts with a byte order mark; configs are in UTF-8 without one");
  std::vector<Words> all;
  const std::size_t first = text.find_first_not_of(" \t\r\n");
  if (first != text.npos && (text[first] == '[' || text[first] == '{')) {
    nlohmann::json json;
    try {
      json = nlohmann::json::parse(text);
    } catch (const nlohmann::json::parse_error& error) {
      const std::size_t end = std::min(error.byte, text.size());
      const auto lines = 1 + std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(end), '\n');
      refuse("not JSON", ":" + std::to_string(lines));
    } catch (const nlohmann::json::exception&) {
      refuse("not JSON: a number that is too large");
    }
    if (json.is_object()) {
      const auto found = json.find("benchmarks");
      nlohmann::json configs = found == json.end() ? nlohmann::json() : std::move(*found);
      json = std::move(configs);
    }
    if (!json.is_array()) refuse("neither an array of configs nor one named benchmarks");
    for (const nlohmann::json& object : json) {
      Words words{file + ": config " + std::to_string(all.size() + 1), {}};
      if (!object.is_object()) words.refuse("not an object");
      for (const auto& [name, value] : object.items()) {
        if (value.is_structured()) words.refuse(name + " is neither a number nor a word");
        if (value.is_boolean()) {
          words.values[name] = value.get<bool>() ? "1" : "0";
        } else if (!value.is_null()) {
          words.values[name] = value.is_string() ? value.get<std::string>() : value.dump();
        }
      }
      all.push_back(std::move(words));
    }
  } else {
    const std::vector<CsvRecord> records = csv_records(text, file);
    const Words header{records.empty() ? file : file + ":" + std::to_string(records[0].line), {}};
    if (!records.empty()) {
      std::set<std::string> names;
      for (const std::string& name : records[0].fields) {
        if (name.empty()) header.refuse("a column has no name");
        if (!names.insert(name).second) header.refuse("two columns are named " + name);
      }
    }
    for (std::size_t i = 1; i < records.size(); ++i) {
      Words words{file + ":" + std::to_string(records[i].line), {}, header.where};
      const std::vector<std::string>&names = records[0].fields, &fields = records[i].fields;
      if (fields.size() != names.size()) {
        words.refuse(std::to_string(fields.size()) + " fields below " + std::to_string(names.size()) + " columns");
      }
      for (std::size_t f = 0; f < names.size(); ++f) words.values.emplace(names[f], fields[f]);
      all.push_back(std::move(words));
    }
  }
  if (all.empty()) refuse("no configs");
  return all;
}

Words words_of_name(const std::string& name, std::span<const NamePart> parts, std::span<const std::string_view> types,
                    std::string_view mode) {
  Words words{"--config=" + name, {}};
  const auto set = [&](std::string_view column, const std::string& word) {
    if (!words.values.emplace(column, word).second) words.refuse("says " + std::string(column) + " twice");
  };
  std::size_t type = 0;
  for (std::size_t at = 0, end; at <= name.size(); at = end + 1) {
    end = std::min(name.find('/', at), name.size());
    const std::string text = name.substr(at, end - at), before = text.substr(0, text.find('.'));
    const std::size_t digits = std::min(text.find_first_of("0123456789"), text.size());
    const std::size_t tail = std::min(text.find_first_not_of("0123456789", digits), text.size());
    bool known = text.find('=') != text.npos;
    if (known && text.find('=') != text.rfind('='))
      words.refuse("'" + text + "' is more than one column; they stand between /");
    if (known) set(text.substr(0, text.find('=')), text.substr(text.find('=') + 1));
    for (const NamePart& p : parts) {
      if (known) break;
      if (!p.word.empty()) {
        known = text == p.part;
        if (known && !p.column.empty()) set(p.column, std::string(p.word));
      } else if (digits < text.size() && text.substr(0, digits) == p.part) {
        // A part that only says how many rows the emulated device takes does not belong to the config: r32of32768.
        const std::size_t times = p.times.empty() ? text.size() : std::min(text.find('x', tail), text.size());
        known = (tail == times || text.compare(tail, 2, "of") == 0) && (times == text.size()) == p.times.empty();
        if (!known) continue;
        const std::size_t from = tail == times ? digits : tail + 2;
        set(p.column, text.substr(from, times - from));
        if (!p.times.empty()) {
          const std::string second = text.substr(times + 1);
          set(p.times, second.substr(second.find("of") == second.npos ? 0 : second.find("of") + 2));
        }
        if (!p.itself.empty()) set(p.itself, std::string(p.part));
      }
    }
    if (!known && facts_named(text) != nullptr) {
      set("arch", text);
      known = true;
    }
    for (int i = 0; !known && i < enumerators_of<DType>; ++i) {
      if (before != name_of(static_cast<DType>(i)) && before != "fp8") continue;
      if (type == types.size()) words.refuse("'" + text + "' is one type too many");
      set(types[type++], before);
      if (before != text) set(mode, text.substr(before.size() + 1));
      known = true;
    }
    const bool policy =
        end == name.size() &&
        (text == "none" || ((text[0] == 'l' || text[0] == 't') && digits == 1 && text.find('.') != text.npos));
    if (!known && !policy) words.refuse("'" + text + "' is no part of a name");
  }
  return words;
}

}  // namespace tilewave::bench
