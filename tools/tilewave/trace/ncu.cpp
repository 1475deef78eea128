// SPDX-License-Identifier: MIT
#include "tools/tilewave/trace/ncu.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "tools/tilewave/common/csv.hpp"
#include "tools/tilewave/common/error.hpp"
#include "tools/tilewave/common/text.hpp"

namespace tilewave::tool {

namespace {

std::optional<double> ncu_value(const std::string& word) {
  std::string digits;
  std::remove_copy(word.begin(), word.end(), std::back_inserter(digits), ',');
  return number(digits);
}

std::int64_t count_of(const std::string& word, const std::string& where) {
  const double value = ncu_number(word, where);
  if (!(value >= 0 && value < 1e15)) refuse(fmt::format("{}: '{}' is no count", where, printable(word)));
  return static_cast<std::int64_t>(value);
}

/// A page is tables one after the other, each behind a line or two that say of what.
struct Block {
  std::string of;  // the kernel, or the file
  std::string_view table;
  std::size_t line;  // of its first
};
std::vector<Block> blocks_of(std::string_view text, const char* key, const std::string& source) {
  const std::string begin = fmt::format("\"{}\",", key);
  std::vector<Block> blocks;
  std::size_t at = 0, line = 1;
  while (at < text.size()) {
    const std::size_t end = std::min(text.find('\n', at), text.size() - 1) + 1;
    const std::string_view here = text.substr(at, end - at);
    if (here.starts_with(begin)) {
      std::string_view of = trim(here.substr(begin.size()));
      if (of.size() < 2 || of.front() != '"' || !(of.ends_with('"') || of.ends_with("\",")))
        refuse(fmt::format("{}:{}: no {} in quotes", source, line, key));
      of = of.substr(1, of.rfind('"') - 1);
      blocks.push_back({std::string(of), text.substr(end), line + 1});
      if (blocks.size() > 1) {
        std::string_view& before = blocks[blocks.size() - 2].table;
        before = before.substr(0, static_cast<std::size_t>(text.data() + at - before.data()));
      }
    }
    at = end, ++line;
  }
  return blocks;
}

std::string place_of(const Block& block, const std::string& source) {
  return fmt::format("{} (table of line {})", source, block.line);
}

/// Names of the columns of what an instruction waits for when it does not issue, without their "stall_".
std::vector<std::pair<std::string, std::size_t>> stalls_of(const Csv& csv) {
  constexpr std::string_view begin = "stall_", end = " (Not Issued)";
  std::vector<std::pair<std::string, std::size_t>> stalls;
  for (std::size_t c = 0; c < csv.columns.size(); ++c) {
    const std::string& name = csv.columns[c];
    if (name.starts_with(begin) && name.ends_with(end))
      stalls.emplace_back(name.substr(begin.size(), name.size() - begin.size() - end.size()), c);
  }
  return stalls;
}

std::string shown(const std::string& file, const std::string& line) {
  for (const char* root : {"/include/tilewave/", "/bench/", "/include/"}) {
    const std::size_t at = file.rfind(root);
    if (at != file.npos) return file.substr(at + std::string_view(root).size()) + ":" + line;
  }
  return file + ":" + line;
}
/// Returns the rank of a source file: an op's own files come before shared ones, and those before the compiler's
/// headers.
int rank_of(const std::string& file) {
  return file.find("/tilewave/ops/") != file.npos ? 2 : file.find("/tilewave/") != file.npos ? 1 : 0;
}

}  // namespace

double ncu_number(const std::string& word, const std::string& where) {
  if (const auto value = ncu_value(word)) return *value;
  refuse(fmt::format("{}: '{}' is no number", where, printable(word)));
}

double ncu_microseconds(const std::string& unit, const std::string& where) {
  static const std::map<std::string, double> units{{"ns", 1e-3},   {"nsecond", 1e-3}, {"us", 1},
                                                   {"usecond", 1}, {"ms", 1e3},       {"msecond", 1e3},
                                                   {"s", 1e6},     {"second", 1e6},   {"nanosecond", 1e-3}};
  const auto found = units.find(unit);
  if (found == units.end()) refuse(fmt::format("{}: time in '{}', which is no unit of time", where, printable(unit)));
  return found->second;
}

std::optional<double> NcuKernel::find(std::string_view metric) const {
  for (const NcuMetric& m : metrics)
    if (m.name == metric) return m.value;
  return std::nullopt;
}

std::map<std::string, double> NcuKernel::use() const {
  std::map<std::string, double> launch;
  const auto take = [&](const char* key, const char* metric, double times = 1) {
    if (const auto value = find(metric); value && std::isfinite(*value)) launch[key] = *value * times;
  };
  take("vgpr", "Registers Per Thread");
  take("workgroup", "Block Size");
  take("waves_per_simd", "Theoretical Active Warps per SM", 0.25);
  take("blocks_by_registers", "Block Limit Registers");
  take("blocks_by_lds", "Block Limit Shared Mem");
  take("blocks_by_waves", "Block Limit Warps");
  return launch;
}

std::vector<NcuKernel> parse_ncu_details(std::string_view text, const std::string& source) {
  const Csv csv = parse_csv(text, source, "Metric Name", true);
  const std::size_t name = csv.need("Kernel Name"), metric = csv.need("Metric Name"), unit = csv.need("Metric Unit"),
                    value = csv.need("Metric Value");
  const auto id = csv.find("ID"), rule = csv.find("Rule Name"), type = csv.find("Rule Type"),
             text_of = csv.find("Rule Description"), gain = csv.find("Estimated Speedup"),
             gain_of = csv.find("Estimated Speedup Type");
  std::vector<NcuKernel> launches;
  std::string last;
  bool timed = true;
  for (std::size_t r = 0; r < csv.rows.size(); ++r) {
    const auto& row = csv.rows[r];
    const bool time = row[metric] == ncu_duration || row[metric] == "Duration";
    if (launches.empty() || (id ? row[*id] != last : time)) {
      if (!timed) refuse(csv.where(r) + ": the launch before has no duration");
      launches.push_back({});
      launches.back().kernel = row[name];
      last = id ? row[*id] : "";
      timed = false;
    }
    NcuKernel& launch = launches.back();
    if (row[name] != launch.kernel) refuse(csv.where(r) + ": another kernel in the same launch");
    if (time) {
      launch.us = ncu_number(row[value], csv.where(r)) * ncu_microseconds(row[unit], csv.where(r));
      timed = true;
    }
    if (const auto number = ncu_value(row[value]); number && !row[metric].empty())
      launch.metrics.push_back({row[metric], row[unit], *number});
    if (rule && type && text_of && row[*type] == "OPT")
      launch.rules.push_back({row[*rule], row[*text_of],
                              gain && gain_of && row[*gain_of] == "global" ? ncu_value(row[*gain]) : std::nullopt});
  }
  if (!timed) refuse(source + ": the last launch has no duration");
  return launches;
}

std::vector<NcuKernel> longest_of(std::vector<NcuKernel> launches) {
  std::stable_sort(launches.begin(), launches.end(), [](const auto& a, const auto& b) { return a.us > b.us; });
  std::vector<NcuKernel> longest;
  for (NcuKernel& launch : launches) {
    const auto same = [&](const NcuKernel& k) { return k.kernel == launch.kernel; };
    if (std::none_of(longest.begin(), longest.end(), same)) longest.push_back(std::move(launch));
  }
  return longest;
}

std::vector<ThreadTrace> parse_ncu_source(std::string_view text, const std::string& source) {
  std::vector<ThreadTrace> traces;
  for (const Block& block : blocks_of(text, "Kernel Name", source)) {
    const Csv csv = parse_csv(block.table, place_of(block, source), "Address");
    const std::size_t address = csv.need("Address"), instruction = csv.need("Source"),
                      samples = csv.need("Warp Stall Sampling (All Samples)"),
                      stalled = csv.need("Warp Stall Sampling (Not-issued Samples)"),
                      executed = csv.need("Instructions Executed");
    const auto stalls = stalls_of(csv);
    auto trace = std::find_if(traces.begin(), traces.end(), [&](const auto& t) { return t.kernel == block.of; });
    if (trace == traces.end()) {
      trace = traces.insert(trace, ThreadTrace{});
      trace->kernel = block.of;
      trace->unit = "samples";
    }
    for (std::size_t r = 0; r < csv.rows.size(); ++r) {
      const auto& row = csv.rows[r];
      const bool first = trace->code.size() <= r;  // else of another launch of the same code
      if (first) trace->code.push_back({});
      Instruction& i = trace->code[r];
      if (!first && i.text != std::string(trim(row[instruction]))) refuse(csv.where(r) + ": other code of one kernel");
      i.text = trim(row[instruction]), i.at = row[address], i.line = static_cast<std::int64_t>(r);
      i.hits += count_of(row[executed], csv.where(r));
      const std::int64_t all = count_of(row[samples], csv.where(r)), waited = count_of(row[stalled], csv.where(r));
      i.latency += all, i.stall += waited;
      trace->latency += all, trace->stall += waited;
      std::int64_t most = 0;
      for (const auto& [kind, column] : stalls) {
        const std::int64_t n = count_of(row[column], csv.where(r));
        if (n > most) most = n, i.kind = kind;
      }
      if (i.kind.empty()) i.kind = "none";
    }
  }
  if (traces.empty()) refuse(source + " has no \"Kernel Name\": it is no page source of ncu");
  return traces;
}

void add_ncu_lines(std::string_view text, const std::string& source, std::vector<ThreadTrace>& traces) {
  std::map<std::string, std::pair<int, std::string>> lines;  // by address
  for (const Block& block : blocks_of(text, "File Path", source)) {
    // Quotes within a line of the source are not doubled, and two columns have one name: no CSV. A line of the source begins
    // with its number, one of its instructions with two empty fields.
    if (block.table.find("\"Line No\",\"Source\",\"Address\",\"Source\"") == block.table.npos) continue;
    std::string number;
    for (const std::string& line : lines_of(block.table)) {
      constexpr std::string_view instruction = "\"\",\"\",\"0x";
      const std::size_t begin = line.starts_with(instruction) ? instruction.size() - 2 : 1, end = line.find('"', begin);
      if (line.empty() || line.front() != '"' || end == line.npos) continue;
      const std::string word = line.substr(begin, end - begin);
      if (begin == 1) {
        if (integer(word)) number = word;
        continue;
      }
      auto& known = lines[word];
      if (known.second.empty() || rank_of(block.of) > known.first) known = {rank_of(block.of), shown(block.of, number)};
    }
  }
  for (ThreadTrace& trace : traces) {
    for (Instruction& i : trace.code) {
      const auto found = lines.find(i.at);
      if (found == lines.end() || !i.source.empty()) continue;
      i.source = found->second.second;
      ++trace.mapped;
    }
  }
}

std::string ncu_script(const std::string& kernels, const std::string& options, const std::string& command,
                       const std::string& folder) {
  // By default a kernel's name is its function's, which all of ours share, and the clocks are not those of a benchmark.
  std::string script = fmt::format(
      "ncu --set full --import-source yes --clock-control none --kernel-name-base demangled --kernel-name {} {}-f -o {}/out {} >{}/out.log\n",
      shell_word("regex:" + kernels), options, folder, command, folder);
  for (const auto& [page, file] :
       {std::pair("details", "out_ncu"), std::pair("source --print-source sass", "out_ncu_source"),
        std::pair("source --print-source cuda,sass", "out_ncu_lines")})
    script += fmt::format("ncu --import {0}/out.ncu-rep --csv --page {1} >{0}/{2}.csv\n", folder, page, file);
  return script;
}

}  // namespace tilewave::tool
