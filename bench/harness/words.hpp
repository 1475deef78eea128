// SPDX-License-Identifier: MIT
// Configs from words: the rows of a CSV or JSON file whose columns are named as those of the output, or the parts of a
// row's name.
#pragma once

#include <cstdint>
#include <fstream>
#include <iterator>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "bench/harness/column.hpp"
#include "tilewave/arch/facts.hpp"
#include "tilewave/core/dtype.hpp"

namespace tilewave::bench {

/// A config as words by column, and where they stand.
struct Words {
  std::string where;
  std::map<std::string, std::string> values;

  [[noreturn]] void refuse(const std::string& why) const { throw std::invalid_argument(where + ": " + why); }
  /// A column that is not given takes the word of another that is.
  void imply(const std::string& column, const std::string& other) {
    if (const auto found = values.find(other); found != values.end()) values.emplace(column, found->second);
  }
};

/// Sets the fields of a config from words, as each_column() of the config declares them.
class ColumnReader {
 public:
  ColumnReader(const Words& words, ArchId arch) : words_(words), fp8_(name_of(facts_of(arch).fp8)) {}

  template <class T>
  void operator()(const char* name, T& field) {
    const std::string* word = find(name);
    if (word == nullptr) return;
    if constexpr (std::is_enum_v<T>) {
      static_assert(enumerators_of<T> > 0);
      const std::string wanted = *word == "fp8" ? fp8_ : *word;  // the architecture's own
      std::string known;
      for (int i = 0;; ++i) {
        if (i == enumerators_of<T>) words_.refuse(std::string(name) + ": '" + *word + "' is none of " + known);
        const std::string candidate(name_of(static_cast<T>(i)));
        if (candidate == wanted) {
          field = static_cast<T>(i);
          return;
        }
        known += (i > 0 ? ", " : "") + candidate;
      }
    } else {
      const bool truth = std::is_same_v<T, bool>;
      const std::uint64_t most = truth ? 1 : static_cast<std::uint64_t>(std::numeric_limits<T>::max());
      field = static_cast<T>(number(name, *word, most));
    }
  }
  /// What follows from other fields may be said, if it is right: a second pass, when all fields are read, can tell.
  void check_derived() { checking_ = true; }
  template <class T>
  void derived(const char* name, const T& value) {
    const std::string* word = find(name);
    const std::string right = text_of(cell_of(value));
    if (checking_ && word != nullptr && *word != right)
      words_.refuse(std::string(name) + " is " + right + ", not '" + *word + "'");
  }
  template <class T>
  void chosen(const char* name, const T&) {
    find(name);  // by the harness, whatever it was elsewhere
  }
  void words(const char* name, bool& field, const char* no, const char* yes) {
    const std::string* word = find(name);
    if (word == nullptr) return;
    if (*word != no && *word != yes) {
      words_.refuse(std::string(name) + ": '" + *word + "' is none of " + no + ", " + yes);
    }
    field = *word == yes;
  }
  /// Refuses a column that is neither one of the config nor one of `others`.
  void expect_no_more(const std::set<std::string>& others) const {
    for (const auto& [name, word] : words_.values) {
      if (!used_.contains(name) && !others.contains(name)) words_.refuse("no column is named '" + name + "'");
    }
  }

 private:
  const std::string* find(const char* name) {
    used_.insert(name);
    const auto found = words_.values.find(name);
    return found == words_.values.end() || found->second.empty() ? nullptr : &found->second;
  }
  std::uint64_t number(const char* name, const std::string& word, std::uint64_t most) const {
    const bool digits = !word.empty() && word.size() < 20 && word.find_first_not_of("0123456789") == word.npos;
    const std::uint64_t value = digits ? std::stoull(word) : 0;
    if (!digits || value > most) {
      words_.refuse(std::string(name) + ": '" + word + "' is not a number from 0 to " + std::to_string(most));
    }
    return value;
  }

  const Words& words_;
  std::string fp8_;
  std::set<std::string> used_;
  bool checking_ = false;
};

/// Records of CSV (RFC 4180), each with the number of its first line.
struct CsvRecord {
  int line;
  std::vector<std::string> fields;
};
inline std::vector<CsvRecord> csv_records(const std::string& text, const std::string& file) {
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
    if (quoted) throw std::invalid_argument(file + ":" + std::to_string(record.line) + ": a quote does not end");
    if (record.fields.size() > 1 || !record.fields[0].empty()) records.push_back(std::move(record));
  }
  return records;
}

/// The configs of a file: CSV with a header, or JSON, an array of objects or what a benchmark writes.
inline std::vector<Words> read_words(const std::string& file) {
  std::ifstream in(file, std::ios::binary);
  const std::string text(std::istreambuf_iterator<char>(in), {});
  if (!in.good() && !in.eof()) throw std::invalid_argument(file + ": cannot read");
  std::vector<Words> all;
  const std::size_t first = text.find_first_not_of(" \t\r\n");
  if (first != text.npos && (text[first] == '[' || text[first] == '{')) {
    nlohmann::json json = nlohmann::json::parse(text, nullptr, false);
    if (json.is_discarded()) throw std::invalid_argument(file + ": not JSON");
    if (json.is_object()) json = json.value("benchmarks", nlohmann::json());
    if (!json.is_array()) throw std::invalid_argument(file + ": neither an array of configs nor one named benchmarks");
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
    for (std::size_t i = 1; i < records.size(); ++i) {
      Words words{file + ":" + std::to_string(records[i].line), {}};
      const std::vector<std::string>&names = records[0].fields, &fields = records[i].fields;
      if (fields.size() != names.size()) {
        words.refuse(std::to_string(fields.size()) + " fields below " + std::to_string(names.size()) + " columns");
      }
      for (std::size_t f = 0; f < names.size(); ++f) {
        if (!words.values.emplace(names[f], fields[f]).second) words.refuse("two columns are named " + names[f]);
      }
      all.push_back(std::move(words));
    }
  }
  if (all.empty()) throw std::invalid_argument(file + ": no configs");
  return all;
}

/// A part of a row's name and what it says: `bs` and `block_size` for a part like bs64, or `vt0`, `v_layout` and `plain`;
/// what says nothing has no column. Of masked32x192 `itself` takes `masked` and `times` 192.
struct NamePart {
  std::string_view part, column, word = {};  // no word: digits follow the part
  std::string_view times = {}, itself = {};
};

/// What the parts of a row's name say, with its architecture and policy or without; `column=word` may stand for a part.
/// `types`: the columns that the first type and the second name; `mode`: that of what follows the point behind one.
inline Words words_of_name(const std::string& name, std::span<const NamePart> parts,
                           std::span<const std::string_view> types, std::string_view mode) {
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
    if (known) set(text.substr(0, text.find('=')), text.substr(text.find('=') + 1));
    for (const NamePart& p : parts) {
      if (known) break;
      if (!p.word.empty()) {
        known = text == p.part;
        if (known && !p.column.empty()) set(p.column, std::string(p.word));
      } else if (digits < text.size() && text.substr(0, digits) == p.part) {
        // What the emulated device takes of a config is no part of it: r128of32768.
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
    for (const ArchId arch : {ArchId::gfx942, ArchId::gfx950, ArchId::sm90}) {
      if (!known && text == name_of(arch)) {
        set("arch", text);
        known = true;
      }
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
