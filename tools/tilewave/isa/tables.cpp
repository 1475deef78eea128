// SPDX-License-Identifier: MIT
#include "tools/tilewave/isa/tables.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <functional>

#include "tools/tilewave/common/text.hpp"
#include "tools/tilewave/isa/report.hpp"

namespace tilewave::tool {

namespace {

/// A column of a table: its name, and its cell of a kernel.
struct Column {
  const char* name;
  std::function<std::string(const Judged&)> cell;
};
template <class Value>
std::string cell(const Value& value) {
  return fmt::format("{}", value);
}
Column kind(const char* name, Mix Judged::*part, const char* of) {
  return {name, [=](const Judged& k) { return cell((k.*part).of(of)); }};
}

const Column chip{"arch", [](const Judged& k) { return k.arch; }};
const Column label{"kernel", [](const Judged& k) { return k.label; }};

const std::vector<Column>& resources() {
  static const std::vector<Column> columns{chip,
                                           label,
                                           {"VGPR", [](const Judged& k) { return cell(k.needs.vgprs); }},
                                           {"AGPR", [](const Judged& k) { return cell(k.needs.agprs); }},
                                           {"SGPR", [](const Judged& k) { return cell(k.needs.sgprs); }},
                                           {"LDS", [](const Judged& k) { return cell(k.needs.lds_bytes); }},
                                           {"scratch", [](const Judged& k) { return cell(k.needs.scratch_bytes); }},
                                           {"spills", [](const Judged& k) { return cell(k.needs.spills()); }},
                                           {"waves/SIMD", [](const Judged& k) { return cell(k.waves_per_simd); }},
                                           {"mfma", [](const Judged& k) { return cell(k.whole.products()); }},
                                           {"loads", [](const Judged& k) { return widths_text(k.whole.loads); }},
                                           kind("stores", &Judged::whole, "store"),
                                           kind("LDS ops", &Judged::whole, "lds"),
                                           kind("exchanges", &Judged::whole, "exchange"),
                                           kind("waitcnt", &Judged::whole, "wait"),
                                           kind("barriers", &Judged::whole, "barrier"),
                                           {"code bytes", [](const Judged& k) { return cell(k.needs.code_bytes); }}};
  return columns;
}

const std::vector<Column>& hot_loop() {
  static const std::vector<Column> columns{
      chip,
      label,
      {"instructions", [](const Judged& k) { return cell(k.hot.instructions); }},
      {"mfma", [](const Judged& k) { return shapes_text(k.hot.matrix); }},
      {"loads", [](const Judged& k) { return widths_text(k.hot.loads); }},
      {"KV 16 B %",
       [](const Judged& k) { return k.claims && k.claims->kv ? fmt::format("{:.0f}", 100 * kv_share(k)) : "-"; }},
      kind("VALU", &Judged::hot, "vector"),
      kind("AGPR moves", &Judged::hot, "acc_move"),
      kind("lane moves", &Judged::hot, "lane_move"),
      kind("LDS ops", &Judged::hot, "lds"),
      kind("exchanges", &Judged::hot, "exchange"),
      kind("waitcnt", &Judged::hot, "wait"),
      {"vmcnt(0)", [](const Judged& k) { return cell(std::count(k.hot.waits.begin(), k.hot.waits.end(), 0)); }},
      {"vmcnt max",
       [](const Judged& k) {
         return k.hot.waits.empty() ? "-" : cell(*std::max_element(k.hot.waits.begin(), k.hot.waits.end()));
       }},
      kind("barriers", &Judged::hot, "barrier"),
      kind("s_nop", &Judged::hot, "nop")};
  return columns;
}

const std::vector<Column>& gemm_loop() {
  static const std::vector<Column> columns{
      chip,
      {"kernel", [](const Judged& k) { return k.label.starts_with("gemm ") ? k.label.substr(5) : k.label; }},
      {"instructions", [](const Judged& k) { return cell(k.hot.instructions); }},
      {"mfma", [](const Judged& k) { return shapes_text(k.hot.matrix); }},
      {"issue", [](const Judged& k) { return fmt::format("{:.2f}", issue_share(k)); }},
      {"loads", [](const Judged& k) { return widths_text(k.hot.loads); }},
      {"LDS reads", [](const Judged& k) { return cell(k.hot.of("lds") - k.hot.lds_writes); }},
      {"LDS writes", [](const Judged& k) { return cell(k.hot.lds_writes); }},
      kind("VALU", &Judged::hot, "vector"),
      kind("barriers", &Judged::hot, "barrier"),
      kind("waitcnt", &Judged::hot, "wait"),
      {"vmcnt min", [](const Judged& k) {
         return k.hot.waits.empty() ? "-" : cell(*std::min_element(k.hot.waits.begin(), k.hot.waits.end()));
       }}};
  return columns;
}

const std::vector<Column>& steady_path_of_decode() {
  const auto per_kb = [](const char* name, auto count, const char* digits) {
    return Column{name, [=](const Judged& k) {
                    return fmt::format(fmt::runtime(digits), k.steady.per_kb(static_cast<double>(count(k.steady))));
                  }};
  };
  static const std::vector<Column> columns{
      chip,
      label,
      {"instructions", [](const Judged& k) { return cell(k.steady.mix.instructions); }},
      {"KB", [](const Judged& k) { return fmt::format("{:g}", k.steady.kb); }},
      per_kb(
          "VALU", [](const SteadyCost& s) { return s.mix.of("vector"); }, "{:.1f}"),
      per_kb(
          "quarter rate", [](const SteadyCost& s) { return s.mix.quarter_rate; }, "{:.1f}"),
      per_kb(
          "all", [](const SteadyCost& s) { return s.mix.instructions; }, "{:.1f}"),
      per_kb(
          "matrix clocks", [](const SteadyCost& s) { return s.matrix_clocks; }, "{:.0f}"),
      {"KB in flight", [](const Judged& k) { return fmt::format("{:g}", k.steady.kb_in_flight); }},
      {"of a CU", [](const Judged& k) {
         constexpr int simds = 4;
         return fmt::format("{:g}", k.steady.kb_in_flight * k.waves_per_simd * simds);
       }}};
  return columns;
}

template <class Belongs>
Table table_of(const char* title, const std::vector<Column>& columns, const std::vector<Judged>& kernels,
               const Belongs& belongs) {
  Table table{title, {}, {}};
  for (const Column& c : columns) table.columns.emplace_back(c.name);
  for (const Judged& k : kernels) {
    if (!belongs(k)) continue;
    auto& row = table.rows.emplace_back();
    for (const Column& c : columns) row.push_back(c.cell(k));
  }
  return table;
}

bool is_row(const Judged& k) { return k.claims && k.claims->row; }
bool is_gemm(const Judged& k) { return k.claims && k.claims->gemm; }

/// A line for each policy of an operation, in the order of their first kernels.
Table row_table(const std::vector<Judged>& kernels) {
  struct Worst {
    std::string arch, name;
    std::int64_t specs = 0, registers = 0, sgprs = 0, lds = 0, scratch = 0, spills = 0, waves = 1 << 20;
    std::int64_t barriers = 0, waits = 0, bytes = 0;
  };
  std::vector<Worst> all;
  std::map<std::pair<std::string, std::string>, std::size_t> index_of;
  for (const Judged& k : kernels) {
    if (!is_row(k)) continue;
    const auto [at, added] = index_of.try_emplace({k.arch, k.family}, all.size());
    if (added) all.push_back({.arch = k.arch, .name = k.family});
    Worst& w = all[at->second];
    const auto most = [](std::int64_t& value, auto other) {
      value = std::max(value, static_cast<std::int64_t>(other));
    };
    ++w.specs, most(w.registers, k.needs.vgprs + k.needs.agprs), most(w.sgprs, k.needs.sgprs);
    most(w.lds, k.needs.lds_bytes), most(w.scratch, k.needs.scratch_bytes), most(w.spills, k.needs.spills());
    w.waves = std::min<std::int64_t>(w.waves, k.waves_per_simd);
    most(w.barriers, k.whole.of("barrier")), most(w.waits, k.whole.of("wait")), most(w.bytes, k.needs.code_bytes);
  }
  Table table{rows_title,
              {"arch", "kernel", "specs", "VGPR", "SGPR", "LDS", "scratch", "spills", "waves/SIMD", "barriers",
               "waitcnt", "code bytes"},
              {}};
  for (const Worst& w : all) {
    auto& row = table.rows.emplace_back(std::vector{w.arch, w.name});
    for (const std::int64_t n :
         {w.specs, w.registers, w.sgprs, w.lds, w.scratch, w.spills, w.waves, w.barriers, w.waits, w.bytes})
      row.push_back(cell(n));
  }
  return table;
}

}  // namespace

std::vector<Table> tables_of(const std::vector<Judged>& kernels) {
  std::vector<Table> tables{
      table_of(uses_title, resources(), kernels, [](const Judged& k) { return !is_row(k); }),
      table_of("Hot loop", hot_loop(), kernels,
               [](const Judged& k) { return !is_row(k) && !is_gemm(k) && k.hot.instructions > 0; }),
      table_of("Steady loop of GEMM", gemm_loop(), kernels, is_gemm),
      table_of("Steady path of decode, for each KB of K and V", steady_path_of_decode(), kernels,
               [](const Judged& k) { return !is_row(k) && k.claims && k.claims->steady; }),
      row_table(kernels)};
  std::erase_if(tables, [](const Table& t) { return t.rows.empty(); });
  return tables;
}

std::string tables_text(const std::vector<Table>& tables, bool markdown) {
  std::string text;
  for (const Table& table : tables) {
    std::vector<std::size_t> width;
    for (const std::string& name : table.columns) width.push_back(name.size());
    for (const auto& row : table.rows)
      for (std::size_t i = 0; i < row.size(); ++i) width[i] = std::max(width[i], row[i].size());
    const auto line = [&](const std::vector<std::string>& cells) {
      std::string all;
      for (std::size_t i = 0; i < cells.size(); ++i) {
        all += markdown ? (i > 0 ? " | " : "| ") : i > 0 ? "  " : "";
        all += i < 2 ? fmt::format("{:<{}}", cells[i], width[i]) : fmt::format("{:>{}}", cells[i], width[i]);
      }
      if (markdown) return all + " |\n";
      return all.substr(0, all.find_last_not_of(' ') + 1) + "\n";
    };
    text += markdown ? fmt::format("### {}\n\n", table.title) : table.title + ":\n";
    text += line(table.columns);
    if (markdown) {
      std::vector<std::string> rule;
      for (std::size_t i = 0; i < width.size(); ++i)
        rule.push_back(i < 2 ? std::string(width[i], '-') : std::string(width[i] - 1, '-') + ":");
      text += line(rule);
    }
    for (const auto& row : table.rows) text += line(row);
    text += "\n";
  }
  return text;
}

}  // namespace tilewave::tool
