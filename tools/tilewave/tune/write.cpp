// SPDX-License-Identifier: MIT
// Tables of measured choices, include/tilewave/ops/<op>/tuned/<arch>.hpp, and what makes a library's call look into them.
#include <fmt/format.h>

#include <algorithm>
#include <tuple>
#include <utility>

#include "tools/tilewave/common/error.hpp"
#include "tools/tilewave/common/text.hpp"
#include "tools/tilewave/tune/tune.hpp"
#include "tools/tilewave/tune/words.hpp"

namespace tilewave::tool {

namespace {

/// A row of a table: a class of problems, a run of them along one extent, and what was fastest for it.
struct Line {
  std::string spec, before, after, policy;  // as written; the run stands between before and after
  std::int64_t splits, order, from, to;     // order: of lines of one class that are no run
  bool left = false;                        // to the cost model, which is as good: no row, but the end of a run

  auto config() const { return std::tie(spec, before, after); }
  bool same_choice(const Line& o) const { return config() == o.config() && policy == o.policy && splits == o.splits; }
};

Line gemm_line(const Csv& csv, std::size_t row) {
  const auto number = [&](const char* column) { return tried_count(csv, row, column); };
  for (const char* extent : {"m", "n", "k"})
    if (number(extent) != number((std::string("config_") + extent).c_str()))
      refuse(csv.where(row) + ": a part of its config was launched, which says nothing about the whole");
  Line line;
  line.spec = gemm_spec_text(csv, row), line.policy = gemm_policy_text(csv, row);
  line.after = fmt::format("{}, {}, {}, {}", number("n"), number("k"), number("batch"), number("groups"));
  line.splits = number("splits"), line.from = line.to = number("m");
  return line;
}

Line paged_attention_line(const Csv& csv, std::size_t row) {
  const auto number = [&](const char* column) { return tried_count(csv, row, column); };
  if (number("sliding_window") > 0 || number("split_tokens") > 0 || number("balanced") > 0 || number("sinks") > 0)
    refuse(csv.where(row) + ": windows, sinks, fixed splits and balanced calls are not looked up");
  const std::int64_t block = number("block_size");
  if (block < 1) refuse(csv.where(row) + ": block_size is 0");
  Line line;
  line.spec = paged_attention_spec_text(csv, row), line.policy = paged_attention_policy_text(csv, row);
  line.before = fmt::format("{}, {}, {}, {}, {}", block, number("mtp"), number("num_q_heads"), number("num_kv_heads"),
                            number("batch_size"));
  line.splits = number("num_splits");
  line.from = line.to = (number("context_length") + block - 1) / block * block;
  return line;
}

/// Fields in lines as short as those of a header are.
std::string wrapped(const std::string& braces) {
  std::string out;
  std::size_t line = 0;
  for (const std::string& field : split(braces, ',')) {
    if (!out.empty()) out += ",";
    const bool next = line + field.size() > 94;
    out += out.empty() ? "" : next ? "\n               " : " ";
    out += field, line = (next ? 0 : line) + field.size() + 2;
  }
  return out;
}

struct TunedOp {
  const char *op, *row_type;
  Line (*line)(const Csv&, std::size_t);
};
const TunedOp& tuned_op(const std::string& op) {
  static const TunedOp ops[] = {{"gemm", "TunedGemm", gemm_line},
                                {"paged_attention", "TunedPagedAttention", paged_attention_line}};
  for (const TunedOp& known : ops)
    if (op == known.op) return known;
  refuse("tables are written for gemm and paged_attention; '" + printable(op) + "' has no lookup");
}

}  // namespace

std::string tuned_header(const Csv& tried, const Tuned& tuned, const TunedSource& source) {
  const TunedOp& op = tuned_op(source.op);
  std::vector<Line> lines;
  for (const TunedConfig& c : tuned.configs) {
    const Tried& best = c.tried.front();
    if (tried.rows[best.row][tried.need("arch")] != source.arch)
      refuse(tried.where(best.row) + ": its arch is not " + source.arch);
    lines.push_back(op.line(tried, best.row));
    lines.back().left = !best.right || (c.selected_rank && best.rank * (1 + source.least_gain) > *c.selected_rank);
  }
  std::stable_sort(lines.begin(), lines.end(), [](const Line& a, const Line& b) {
    return std::make_tuple(a.config(), a.from) < std::make_tuple(b.config(), b.from);
  });
  // Between two neighbours that were measured and chose the same, so does what lies between.
  std::vector<Line> merged;
  bool broken = false;
  for (const Line& line : lines) {
    if (line.left) {
      broken = true;
      continue;
    }
    const bool run = !std::exchange(broken, false);
    if (run && !merged.empty() && merged.back().same_choice(line)) {
      merged.back().to = line.to;
    } else {
      merged.push_back(line);
    }
  }
  if (merged.empty()) throw Error(Exit::refused, "nothing that was measured is better than what the library chooses");
  std::string text = fmt::format(
      "// SPDX-License-Identifier: MIT\n"
      "// Written by `tilewave tune write`: {} configs, {} candidates.\n"
      "// source: {}\n// device: {}\n// commit: {}\n// benchmark: {}\n"
      "#pragma once\n\n#include <array>\n\n#include \"tilewave/ops/{}/tuned/row.hpp\"\n\nnamespace tilewave {{\n\n"
      "// clang-format off\n"
      "inline constexpr std::array tuned_{}_{}{{\n",
      tuned.configs.size(), tried.rows.size(), printable(source.csv, 200), printable(source.device),
      printable(source.commit), printable(source.benchmark, 100), source.op, source.op, source.arch);
  for (std::size_t i = 0; i < merged.size(); ++i) {
    const Line& l = merged[i];
    const std::string run = fmt::format("{}, {}", l.from, l.to);
    text += fmt::format("    {}{{{},\n              {}{}{},\n              {}, {}}}{}\n", op.row_type, wrapped(l.spec),
                        l.before.empty() ? "" : l.before + ", ", run, l.after.empty() ? "" : ", " + l.after,
                        wrapped(l.policy), l.splits, i + 1 < merged.size() ? "," : "};");
  }
  return text + "// clang-format on\n\n}  // namespace tilewave\n";
}

std::string tuned_tables(const std::string& op, const std::vector<std::string>& archs) {
  const TunedOp& known = tuned_op(op);
  std::string includes, choice;
  for (const std::string& arch : archs) {
    includes += fmt::format("#include \"tilewave/ops/{}/tuned/{}.hpp\"\n", op, arch);
    choice += fmt::format("  if (arch == ArchId::{}) return tuned_{}_{};\n", arch, op, arch);
  }
  return fmt::format(
      "// SPDX-License-Identifier: MIT\n// Written by `tilewave tune write`: the tables of this folder that "
      "{0}_select looks into.\n#pragma once\n\n#include <span>\n\n#include \"tilewave/ops/{0}/tuned/row.hpp\"\n{1}\n"
      "namespace tilewave {{\n\nconstexpr std::span<const {2}> tuned_{0}(ArchId{3}) {{{4}}}\n\n}}  // namespace tilewave\n",
      op, includes, known.row_type, archs.empty() ? "" : " arch",
      archs.empty() ? " return {}; " : "\n" + choice + "  return {};\n");
}

}  // namespace tilewave::tool
