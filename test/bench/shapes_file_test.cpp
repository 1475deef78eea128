// SPDX-License-Identifier: MIT
// Files of configs made by the grammars of CSV and JSON, with faults of the kinds that people and programs make.
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <random>
#include <stdexcept>
#include <string>

#include "bench/ops/softmax/sweep.hpp"
#include "test/catch_compat.hpp"

namespace tilewave::bench {
namespace {

namespace fs = std::filesystem;

class Grammar {
 public:
  explicit Grammar(std::uint64_t seed) : draw_(seed) {}

  std::string file() {
    std::string text = one_of({"csv", "csv", "json"}) == "csv" ? csv() : one_of({"", "{\"benchmarks\": "}) + json(0);
    switch (draw_() % 12) {  // what happens to whole files
      case 0: return text.substr(0, draw_() % (text.size() + 1));
      case 1: return "\xef\xbb\xbf" + text;
      case 2: return "\xff\xfe" + text;
      case 3: text[draw_() % text.size()] = static_cast<char>(draw_()); return text;
      case 4: return text + text;
      default: return text;
    }
  }

 private:
  std::string one_of(std::initializer_list<const char*> words) { return words.begin()[draw_() % words.size()]; }
  std::string column() {
    return one_of({"kind", "arch", "x_dtype", "causal", "columns", "rows", "config_rows", "seed", "us", "colour", "",
                   "a\nb", "two words", "real_time"});
  }
  std::string word() {
    return one_of({"softmax",
                   "log_softmax",
                   "gfx950",
                   "sm90",
                   "bf16",
                   "fp8",
                   "f64",
                   "0",
                   "1",
                   "64",
                   "-1",
                   "2147483647",
                   "9223372036854775807",
                   "99999999999999999999999",
                   "1.5",
                   "1e400",
                   "nan",
                   "",
                   " 1",
                   "a\nb",
                   "a\"b",
                   "\x01"});
  }
  std::string csv() {
    if (draw_() % 4 == 0)  // as it should be, but for one word perhaps
      return "columns,config_rows,x_dtype\n64,8," + one_of({"bf16", "f32", "fp7"}) + "\n" + one_of({"8", "64", "x"}) +
             ",2,\n";
    std::string text;
    const std::size_t width = 1 + draw_() % 6;
    for (std::size_t row = 0; row < 1 + draw_() % 4; ++row) {
      const std::size_t fields = draw_() % 8 == 0 ? width + 1 : width;
      for (std::size_t i = 0; i < fields; ++i) {
        const std::string field = row == 0 ? column() : word();
        text += (i > 0 ? one_of({",", ",", ",", ";"}) : "") +
                (draw_() % 4 == 0 ? "\"" + field + one_of({"\"", "\"", ""}) : field);
      }
      text += one_of({"\n", "\n", "\r\n", "\n\n", ""});
    }
    return text + "\n";
  }
  std::string json(int depth) {
    switch (depth == 0 ? 0 : draw_() % 9) {
      case 0:
      case 1: {
        std::string text = "[";
        for (std::size_t i = 0; i < draw_() % 3 + 1; ++i) text += (i > 0 ? "," : "") + object(depth);
        return text + one_of({"]", "]", ",]", ""});
      }
      case 2: return object(depth);
      case 3: return one_of({"true", "false", "null", "NaN", "nul"});
      case 4: return one_of({"1", "64", "-1", "1.5", "1e400", "1e3", "01", "18446744073709551616"});
      default:
        return "\"" + one_of({"softmax", "bf16", "gfx950", "a\\nb", "\\ud800", "\\u0000", "\n", "\xff", "64"}) + "\"";
    }
  }
  std::string object(int depth) {
    std::string text = "{";
    for (std::size_t i = 0; i < draw_() % 5; ++i)
      text += (i > 0 ? "," : "") +
              one_of({"\"kind\"", "\"columns\"", "\"config_rows\"", "\"rows\"", "\"x\"", "\"\"", "kind"}) +
              one_of({":", ":", ": ", " "}) + (depth > 3 ? "1" : json(depth + 1));
    return text + one_of({"}", "}", "}", ""});
  }

  std::mt19937_64 draw_;
};

/// A file's configs, or the one line that refuses it.
std::string refusal_of(const std::string& file) {
  SoftmaxCase start;
  ShapeOptions options;
  options.shapes = file;
  try {
    for (const SoftmaxCase& c : cases_of(options, start, {"us", "real_time"}, SoftmaxOp::model_cases)) {
      CHECK(c.fault().empty());
      CHECK(c.columns > 0);
    }
    return "";
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
}

TEST_CASE("a file of configs is read, or one line says what it is instead") {
  const fs::path file = fs::temp_directory_path() / ("tilewave_shapes_" + std::to_string(getpid()));
  int read = 0;
  for (std::uint64_t seed = 0; seed < 4000; ++seed) {
    Grammar grammar(seed);
    const std::string text = grammar.file();
    std::ofstream(file, std::ios::binary) << text;
    INFO("seed " << seed << ":\n" << text);
    const std::string refusal = refusal_of(file.string());
    read += refusal.empty();
    if (refusal.empty()) continue;
    CHECK(refusal.starts_with(file.string() + ":"));
    CHECK(refusal.size() < 1000);
    for (const char c : refusal) REQUIRE(static_cast<unsigned char>(c) >= 32);
  }
  CHECK(read > 0);
  std::ofstream(file) << std::string(100'000, '[');
  CHECK(refusal_of(file.string()) == file.string() + ":1: not JSON");
  std::ofstream(file) << "columns,config_rows\n8,8\n";
  CHECK(refusal_of(file.string()).empty());
  fs::remove(file);
  CHECK(refusal_of(fs::temp_directory_path().string()).ends_with(": a folder, not a file of configs"));
}

}  // namespace
}  // namespace tilewave::bench
