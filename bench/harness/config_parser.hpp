// SPDX-License-Identifier: MIT
// Reads configs from words: the rows of a CSV or JSON file whose columns are named as in the output, or the parts of a
// row's name.
#pragma once

#include <cstdint>
#include <limits>
#include <map>
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

/// Returns text as a message quotes it: in one line that is not long.
std::string one_line(const std::string& text);

/// A config as words by column, and the position of these words.
struct Words {
  std::string where;
  std::map<std::string, std::string> values;
  std::string header = {};  // for a CSV, the position of the header

  [[noreturn]] void refuse(const std::string& why) const {
    throw std::invalid_argument(one_line(where) + ": " + one_line(why));
  }
  /// A column that is not given takes the word of another that is given.
  void imply(const std::string& column, const std::string& other) {
    if (const auto found = values.find(other); found != values.end()) values.emplace(column, found->second);
  }
};

/// The largest number that a config takes: twice an extent, or the sum of two, fits its type. Seeds may be any number.
template <class T>
inline constexpr std::uint64_t most_of = std::is_same_v<T, bool>            ? 1
                                         : std::is_same_v<T, std::uint64_t> ? std::numeric_limits<T>::max()
                                         : sizeof(T) == 8                   ? (std::uint64_t{1} << 40) - 1
                                                                            : (std::uint64_t{1} << 30) - 1;

/// Sets the fields of a config from words, in the way that each_column() of the config declares them.
class ColumnReader {
 public:
  ColumnReader(const Words& words, ArchId arch) : words_(words), fp8_(name_of(facts_of(arch).fp8)) {}

  template <class T>
  void operator()(const char* name, T& field) {
    const std::string* word = find(name);
    if (word == nullptr) return;
    if constexpr (std::is_enum_v<T>) {
      static_assert(enumerators_of<T> > 0);
      const std::string wanted = *word == "fp8" ? fp8_ : *word;  // the architecture's own flavour
      std::string known;
      for (int i = 0;; ++i) {
        if (i == enumerators_of<T>) words_.refuse(std::string(name) + ": '" + *word + "' is none of " + known);
        const std::string candidate(name_of(static_cast<T>(i)));
        if (candidate == wanted || candidate == "per_" + wanted) {
          field = static_cast<T>(i);
          return;
        }
        known += (i > 0 ? ", " : "") + candidate;
      }
    } else {
      field = static_cast<T>(number(name, *word, most_of<T>));
    }
  }
  /// Makes the next pass check values that follow from other fields, which users may give if they are right. All fields
  /// have been read by then.
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
    find(name);  // the harness chooses it, whatever it was elsewhere
  }
  void words(const char* name, bool& field, const char* no, const char* yes);
  /// Refuses a column that belongs neither to the config nor to `others`.
  void expect_no_more(const std::set<std::string>& others) const;

 private:
  const std::string* find(const char* name);
  std::uint64_t number(const char* name, const std::string& word, std::uint64_t most) const;

  const Words& words_;
  std::string fp8_;
  std::set<std::string> used_;
  bool checking_ = false;
};

/// Returns the configs of a file: CSV with a header, JSON with an array of objects, or the output of a benchmark.
std::vector<Words> read_words(const std::string& file);

/// A part of a row's name and its meaning: `bs` and `block_size` for a part like bs64, or `vt0`, `v_layout` and
/// `plain`. A part without meaning has no column. In masked32x192 the column `itself` gets `masked`, and `times` gets
/// 192.
struct NamePart {
  std::string_view part, column, word = {};  // without a word, digits follow the part
  std::string_view times = {}, itself = {};
};

/// Returns the meaning of the parts of a row's name, with or without its architecture and policy; `column=word` may
/// stand for a part. `types` are the columns that the first type and the second one name. `mode` is the column of the
/// text after a point behind a type.
Words words_of_name(const std::string& name, std::span<const NamePart> parts, std::span<const std::string_view> types,
                    std::string_view mode);

}  // namespace tilewave::bench
