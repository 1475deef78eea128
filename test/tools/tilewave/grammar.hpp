// SPDX-License-Identifier: MIT
// Files by the grammar of CSV and JSON: the same content written in other ways, which a reader must take as the same, and other
// content in a form that is right, which it takes or refuses. Damage of bytes, as samples.hpp has it, seldom gets past a parser.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "test/tools/tilewave/samples.hpp"
#include "tools/tilewave/common/json.hpp"
#include "tools/tilewave/common/text.hpp"

namespace tilewave::test {

class Random {
 public:
  std::size_t below(std::size_t n) {
    state_ ^= state_ << 13, state_ ^= state_ >> 7, state_ ^= state_ << 17;
    return static_cast<std::size_t>(state_ % (n > 0 ? n : 1));
  }
  bool one_in(std::size_t n) { return below(n) == 0; }
  template <class T>
  const T& of(const std::vector<T>& list) {
    return list[below(list.size())];
  }

 private:
  std::uint64_t state_ = 88172645463325252ULL;
};

struct Table {
  std::vector<std::string> columns;
  std::vector<std::vector<std::string>> rows;
};

inline std::string csv_field(const std::string& text, Random& random) {
  const bool must = text.find_first_of(",\"\n\r") != text.npos || text != tool::trim(text);
  if (!must && !random.one_in(3)) return text;
  std::string out = "\"";
  for (const char c : text) out += c == '"' ? std::string("\"\"") : std::string(1, c);
  return out + "\"";
}

/// The table as any program might write it: quotes where they need not be, either end of line, a byte order mark, blank lines,
/// columns in any order, one more that nobody knows, the header again, and talk in front of it, where `talk` says so.
inline std::string csv_of(const Table& table, Random& random, bool talk) {
  std::vector<std::size_t> order;
  for (std::size_t c = 0; c < table.columns.size(); ++c) order.insert(order.begin() + random.below(c + 1), c);
  const bool more = random.one_in(2);
  const std::string end = random.one_in(2) ? "\r\n" : "\n";
  const auto line = [&](const std::vector<std::string>& fields, const std::string& last) {
    std::string out;
    for (const std::size_t c : order) out += (c == order.front() ? "" : ",") + csv_field(fields[c], random);
    return out + (more ? "," + csv_field(last, random) : "") + end;
  };
  std::string out = random.one_in(3) ? "\xef\xbb\xbf" : "";
  if (talk && random.one_in(3)) out += "==PROF== Connected, \"to process\n==PROF== 1, 2\n";
  out += line(table.columns, "a column nobody knows");
  for (const auto& row : table.rows) {
    if (random.one_in(6)) out += end;
    if (random.one_in(8)) out += line(table.columns, "a column nobody knows");
    out += line(row, random.one_in(2) ? "" : "x, \"y\"\nz");
  }
  if (random.one_in(3)) out.resize(out.size() - end.size());
  return out;
}

/// Fields that some reader may take for something.
inline const std::vector<std::string>& strange_fields() {
  static const std::vector<std::string> fields{"",
                                               "0",
                                               "-1",
                                               "1",
                                               "1.5",
                                               "-0",
                                               "1e308",
                                               "-1e308",
                                               "1e-320",
                                               "1e999",
                                               "nan",
                                               "-nan",
                                               "inf",
                                               "-inf",
                                               "0x10",
                                               "1,234.5",
                                               "9223372036854775807",
                                               "9223372036854775808",
                                               "-9223372036854775808",
                                               "18446744073709551616",
                                               "99999999999999999999999",
                                               "true",
                                               "N/A",
                                               "none",
                                               " 7 ",
                                               "+3",
                                               "1.",
                                               ".5",
                                               "a b",
                                               "\"",
                                               "a,b",
                                               "a\nb",
                                               "a|b",
                                               "\xff\xfe",
                                               "\xc3\xa9",
                                               "KERNEL_DISPATCH",
                                               "(modelled on x",
                                               "<<<",
                                               std::string(5000, 'x'),
                                               std::string(300, '9')};
  return fields;
}

/// Another table: fields replaced, columns renamed, doubled, left out, rows repeated, exchanged or cut.
inline Table other_table(Table table, Random& random) {
  for (std::size_t edits = 1 + random.below(3); edits > 0; --edits) {
    const std::size_t column = random.below(table.columns.size());
    if (table.rows.empty()) break;
    auto& row = table.rows[random.below(table.rows.size())];
    switch (random.below(9)) {
      case 0:
        for (auto& r : table.rows) r[column] = random.of(strange_fields());
        break;
      case 1: table.columns[column] = random.of(strange_fields()); break;
      case 2: table.rows.push_back(row); break;
      case 3: std::swap(row[column], row[random.below(row.size())]); break;
      case 4:
        if (table.columns.size() > 1) {
          table.columns.erase(table.columns.begin() + column);
          for (auto& r : table.rows) r.erase(r.begin() + column);
        }
        break;
      case 5: std::swap(table.columns[column], table.columns[random.below(table.columns.size())]); break;
      default: row[column] = random.of(strange_fields());
    }
  }
  return table;
}

/// The same JSON in another order of members, with other space, and with members that nobody knows.
inline std::string json_text(const tool::Json& json, Random& random, bool more) {
  const auto space = [&] {
    return random.one_in(4) ? std::string(random.of(std::vector<std::string>{" ", "\n", "\t", "\r\n"})) : "";
  };
  std::string out;
  if (json.is_object()) {
    std::vector<std::string> members;
    for (const auto& [key, value] : json.items())
      members.insert(members.begin() + random.below(members.size() + 1),
                     tool::Json(key).dump() + space() + ":" + space() + json_text(value, random, more));
    if (more && random.one_in(3)) members.push_back("\"a member nobody knows\": [{}, null, 1e3]");
    for (const std::string& member : members) out += (out.empty() ? "" : "," + space()) + member;
    return "{" + space() + out + space() + "}";
  }
  if (json.is_array()) {
    for (const auto& value : json) out += (out.empty() ? "" : "," + space()) + json_text(value, random, more);
    return "[" + space() + out + space() + "]";
  }
  return json.dump();
}

inline const std::vector<std::string>& strange_values() {
  static const std::vector<std::string> values{"null",
                                               "true",
                                               "[]",
                                               "{}",
                                               "\"\"",
                                               "0",
                                               "-1",
                                               "1.5",
                                               "-0.0",
                                               "1e308",
                                               "1e-320",
                                               "9223372036854775807",
                                               "9223372036854775808",
                                               "18446744073709551615",
                                               "18446744073709551616",
                                               "-9223372036854775808",
                                               "1e30",
                                               "\"nan\"",
                                               "\"-1\"",
                                               "\"\\u0000\"",
                                               "\"\\ud800\"",
                                               "\"a|b\\nc\"",
                                               "[[]]",
                                               "[null]",
                                               "{\"\": {}}",
                                               "[0,0,0,0,0,0,0,0,0,0]",
                                               "\"" + std::string(5000, 'x') + "\"",
                                               std::string(190, '[') + std::string(190, ']')};
  return values;
}

/// All nodes of a tree.
inline void nodes_of(tool::Json& json, std::vector<tool::Json*>& nodes) {
  nodes.push_back(&json);
  if (json.is_structured()) {
    for (auto& child : json) nodes_of(child, nodes);
  }
}

/// Another tree: values replaced by strange ones or by each other, members left out or renamed, elements repeated.
inline tool::Json other_json(tool::Json json, Random& random) {
  for (std::size_t edits = 1 + random.below(3); edits > 0; --edits) {
    std::vector<tool::Json*> nodes;
    nodes_of(json, nodes);
    tool::Json& node = *random.of(nodes);
    const tool::Json other = *random.of(nodes);
    switch (random.below(6)) {
      case 0: node = other; break;
      case 1:
        if (node.is_structured() && !node.empty()) {
          auto at = node.begin();
          std::advance(at, static_cast<std::ptrdiff_t>(random.below(node.size())));
          node.erase(at);
        }
        break;
      case 2:
        if (node.is_array()) node.push_back(other);
        if (node.is_object()) node["renamed"] = other;
        break;
      case 3:
        if (node.is_array() && !node.empty()) node.push_back(node[random.below(node.size())]);
        break;
      default: {
        const auto parsed = tool::Json::parse(random.of(strange_values()), nullptr, false);
        if (!parsed.is_discarded()) node = parsed;
      }
    }
  }
  return json;
}

/// `read` gives what it made of a text, in words. All ways to write the table give the same; other tables are read or refused.
/// How many of those were read comes back.
template <class Read>
int fuzz_table(const Table& table, const Read& read, bool talk = true, int rounds = 400) {
  Random random;
  std::string first;
  for (int i = 0; i < rounds / 4; ++i) {
    const std::string text = csv_of(table, random, talk), got = read(text);
    if (i == 0) first = got;
    if (got != first) throw std::logic_error("not the same: " + text + "\n" + got + "\nfor\n" + first);
  }
  int accepted = 0;
  for (int i = 0; i < rounds; ++i) {
    const std::string text = csv_of(other_table(table, random), random, talk);
    accepted += status_of([&] { read(text); }) == tool::Exit::ok;
  }
  return accepted;
}

/// The same for JSON.
template <class Read>
int fuzz_json(const std::string& sample, const Read& read, bool more = true, int rounds = 400) {
  Random random;
  const tool::Json json = tool::Json::parse(sample);
  const std::string first = read(sample);
  for (int i = 0; i < rounds / 4; ++i) {
    const std::string text = (random.one_in(3) ? "\xef\xbb\xbf" : "") + json_text(json, random, more), got = read(text);
    if (got != first) throw std::logic_error("not the same: " + text + "\n" + got + "\nfor\n" + first);
  }
  int accepted = 0;
  for (int i = 0; i < rounds; ++i) {
    const std::string text = json_text(other_json(json, random), random, more);
    accepted += status_of([&] { read(text); }) == tool::Exit::ok;
  }
  return accepted;
}

/// Texts of `make`, each read or refused in one line; how many were read.
inline int fuzz_texts(const std::function<std::string(Random&)>& make,
                      const std::function<void(const std::string&)>& read, int rounds = 600) {
  Random random;
  int accepted = 0;
  for (int i = 0; i < rounds; ++i) {
    const std::string text = make(random);
    std::string message;
    accepted += status_of([&] { read(text); }, &message) == tool::Exit::ok;
    if (message.find('\n') != message.npos) throw std::logic_error("not one line: " + message);
  }
  return accepted;
}

}  // namespace tilewave::test
