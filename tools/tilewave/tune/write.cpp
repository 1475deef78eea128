// SPDX-License-Identifier: MIT
// Tables of measured choices, include/tilewave/tuned/<op>_<arch>.hpp.
#include <fmt/format.h>

#include <algorithm>
#include <tuple>

#include "tools/tilewave/common/error.hpp"
#include "tools/tilewave/common/text.hpp"
#include "tools/tilewave/tune/tune.hpp"

namespace tilewave::tool {

namespace {

/// A word of the CSV that may stand in source code.
std::string word(const Csv& csv, std::size_t row, const char* column) {
  const std::string& text = csv.rows[row][csv.need(column)];
  const bool plain = !text.empty() && std::all_of(text.begin(), text.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_';
  });
  if (!plain || (text[0] >= '0' && text[0] <= '9')) refuse(csv.where(row) + ": " + column + " is no word");
  return text;
}
std::int64_t count(const Csv& csv, std::size_t row, const char* column) {
  const auto value = integer(csv.rows[row][csv.need(column)]);
  if (!value || *value < 0 || *value > 1 << 30) refuse(csv.where(row) + ": " + column + " is no count");
  return *value;
}

struct Line {
  std::string spec, policy;  // as written
  std::int64_t n, k, batch, groups, splits, m_from, m_to;

  auto config() const { return std::tie(spec, n, k, batch, groups); }
  bool same_choice(const Line& o) const { return config() == o.config() && policy == o.policy && splits == o.splits; }
};

Line gemm_line(const Csv& csv, std::size_t row) {
  const auto name = [&](const char* column) { return word(csv, row, column); };
  const auto number = [&](const char* column) { return count(csv, row, column); };
  for (const char* extent : {"m", "n", "k"})
    if (number(extent) != number((std::string("config_") + extent).c_str()))
      refuse(csv.where(row) + ": a part of its config was launched, which says nothing about the whole");
  Line line;
  line.spec = fmt::format(
      "{{.a = DType::{}, .b = DType::{}, .out = DType::{}, .scale = GemmScale::{}, .layout = GemmLayout::{}, "
      ".weights = GemmWeights::{}, .groups = GemmGroups::{}, .activation = ActivationKind::{}, "
      ".gated = {}, .out_scale = ScaleMode::{}}}",
      name("a_dtype"), name("b_dtype"), name("out_dtype"), name("scale"), name("layout"), name("weights"),
      name("group_kind"), name("activation"), number("gated") != 0, name("out_scale"));
  line.policy = fmt::format(
      "{{.rows = {}, .columns = {}, .depth = {}, .stages = {}, .waves_rows = {}, .waves_columns = {}, "
      ".path = GemmPath::{}, .swapped = {}, .cluster = {}, .splits = {}, .waves_per_simd = {}}}",
      number("tile_rows"), number("tile_columns"), number("depth"), number("stages"), number("waves_rows"),
      number("waves_columns"), name("path") == "wreg" ? "weights_in_registers" : name("path"), number("swapped") != 0,
      number("cluster"), number("most_splits"), number("waves_per_simd"));
  line.n = number("n"), line.k = number("k"), line.batch = number("batch"), line.groups = number("groups");
  line.splits = number("splits");
  line.m_from = line.m_to = number("m");
  return line;
}

}  // namespace

std::string tuned_header(const Csv& tried, const Tuned& tuned, const TunedSource& source) {
  if (source.op != "gemm") refuse("tables are written for gemm; '" + printable(source.op) + "' has no lookup");
  std::vector<Line> lines;
  for (const TunedConfig& c : tuned.configs) {
    const Tried& best = c.tried.front();
    if (!best.right || (c.selected_us && best.us * (1 + source.least_gain) > *c.selected_us)) continue;
    if (tried.rows[best.row][tried.need("arch")] != source.arch)
      refuse(tried.where(best.row) + ": its arch is not " + source.arch);
    lines.push_back(gemm_line(tried, best.row));
  }
  std::stable_sort(lines.begin(), lines.end(), [](const Line& a, const Line& b) {
    return std::make_tuple(a.config(), a.m_from) < std::make_tuple(b.config(), b.m_from);
  });
  // Between two neighbours that were measured and chose the same, so does what lies between.
  std::vector<Line> merged;
  for (const Line& line : lines) {
    if (!merged.empty() && merged.back().same_choice(line)) {
      merged.back().m_to = line.m_to;
    } else {
      merged.push_back(line);
    }
  }
  if (merged.empty()) throw Error(Exit::refused, "nothing that was measured is better than what the library chooses");
  std::string text = fmt::format(
      "// SPDX-License-Identifier: MIT\n"
      "// Written by `tilewave tune write`: {} configs, {} candidates measured on {}, commit {}; all of them in {}.\n"
      "// Benchmark: {}\n"
      "#pragma once\n\n#include <array>\n\n#include \"tilewave/ops/gemm/tuned.hpp\"\n\nnamespace tilewave {{\n\n"
      "// clang-format off\n"
      "inline constexpr std::array tuned_gemm_{}{{\n",
      tuned.configs.size(), tried.rows.size(), printable(source.device), printable(source.commit),
      printable(source.csv, 200), printable(source.benchmark, 400), source.arch);
  for (std::size_t i = 0; i < merged.size(); ++i) {
    const Line& l = merged[i];
    text += fmt::format("    TunedGemm{{{},\n              {}, {}, {}, {}, {}, {},\n              {}, {}}}{}\n", l.spec,
                        l.m_from, l.m_to, l.n, l.k, l.batch, l.groups, l.policy, l.splits,
                        i + 1 < merged.size() ? "," : "};");
  }
  return text + "// clang-format on\n\n}  // namespace tilewave\n";
}

}  // namespace tilewave::tool
