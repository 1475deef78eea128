// SPDX-License-Identifier: MIT
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "tools/tilewave/trace/diff.hpp"

namespace tilewave::tool {

namespace {

std::string shown(const std::optional<double>& value) { return value ? fmt::format("{:.6g}", *value) : "-"; }

std::string percent(const std::optional<double>& base, const std::optional<double>& next) {
  if (!base || !next || *base == 0) return "-";
  return fmt::format("{:+.1f} %", 100 * (*next / *base - 1));
}

std::string cell_of(std::string_view text) {
  std::string out;
  for (const char c : text) out += c == '|' ? "\\|" : c == '\n' ? std::string(" ") : std::string(1, c);
  return out;
}

std::string table(const std::vector<Change>& changes, const char* what) {
  std::string out = fmt::format("| {} | base | new | change |\n|---|---|---|---|\n", what);
  for (const Change& c : changes)
    out +=
        fmt::format("| {} | {} | {} | {} |\n", cell_of(c.what), shown(c.base), shown(c.next), percent(c.base, c.next));
  return out;
}

/// Returns the instructions whose stalls change most.
std::vector<InstructionChange> most_changed(const TraceChange& t, std::size_t top) {
  std::vector<InstructionChange> list = t.instructions;
  std::stable_sort(list.begin(), list.end(), [](const InstructionChange& a, const InstructionChange& b) {
    return std::abs(a.stall()) > std::abs(b.stall());
  });
  while (!list.empty() && (list.size() > top || list.back().stall() == 0)) list.pop_back();
  return list;
}

}  // namespace

std::string diff_md(const ProfileDiff& diff, const std::string& base, const std::string& next, std::size_t top) {
  std::string out = fmt::format("# Profile diff\n\nBase: {}. New: {}.\n\n## Kernels\n", base, next);
  std::size_t n = 0;
  for (const KernelChange& k : diff.kernels) {
    if (n++ == top) break;
    out += fmt::format("### {}\n", k.name);
    if (!k.of_launch.empty()) out += table(k.of_launch, "launch") + "\n";
    if (!k.of_counter.empty()) out += table(k.of_counter, "counter") + "\n";
  }
  if (diff.kernels.empty()) out += "Not in both: no times and no counters.\n";
  out += "\n## Instructions\n";
  if (diff.traces.empty()) out += "Not in both: no thread trace and no page source of ncu.\n";
  for (const TraceChange& t : diff.traces) {
    out += fmt::format(
        "### {}\n{:.6g} {} in the base, {:.6g} in the new one ({}). {} instructions are in both, {} are gone, {} came.\n\n{}\n",
        t.name, t.base_latency, t.unit, t.next_latency, percent(t.base_latency, t.next_latency), t.kept, t.gone,
        t.added, table(t.kinds, "stalls by class"));
    out +=
        "| # | stall | base | new | hits | new hits | kind | instruction | address | new address | source line |\n"
        "|---|---|---|---|---|---|---|---|---|---|---|\n";
    std::size_t row = 0;
    const auto address_or = [](const std::string& address, const char* none) {
      return address.empty() ? none : address;
    };
    for (const InstructionChange& i : most_changed(t, top))
      out += fmt::format("| {} | {:+.6g} | {:.6g} | {:.6g} | {:.6g} | {:.6g} | {} | {} | {} | {} | {} |\n", ++row,
                         i.stall(), i.base_stall, i.next_stall, i.base_hits, i.next_hits, i.kind, cell_of(i.what),
                         address_or(i.base_address, "came"), address_or(i.next_address, "gone"),
                         i.source.empty() ? "-" : i.source);
    out += "\n";
  }
  return out;
}

std::string diff_json(const ProfileDiff& diff, std::size_t top) {
  const auto changes = [](const std::vector<Change>& list) {
    Json out = Json::object();
    const auto value = [](const std::optional<double>& v) { return v ? Json(*v) : Json(); };
    for (const Change& c : list) out[c.what] = {{"base", value(c.base)}, {"new", value(c.next)}};
    return out;
  };
  Json kernels = Json::array(), traces = Json::array();
  for (const KernelChange& k : diff.kernels)
    kernels.push_back({{"name", k.name}, {"launch", changes(k.of_launch)}, {"counters", changes(k.of_counter)}});
  for (const TraceChange& t : diff.traces) {
    Json instructions = Json::array();
    for (const InstructionChange& i : most_changed(t, top))
      instructions.push_back({{"what", i.what},
                              {"kind", i.kind},
                              {"source", i.source},
                              {"base_address", i.base_address},
                              {"new_address", i.next_address},
                              {"base_hits", i.base_hits},
                              {"new_hits", i.next_hits},
                              {"base_stall", i.base_stall},
                              {"new_stall", i.next_stall}});
    traces.push_back({{"name", t.name},
                      {"unit", t.unit},
                      {"base_latency", t.base_latency},
                      {"new_latency", t.next_latency},
                      {"kept", t.kept},
                      {"gone", t.gone},
                      {"added", t.added},
                      {"stalls", changes(t.kinds)},
                      {"instructions", instructions}});
  }
  return dump({{"schema", "tilewave.trace_diff/1"}, {"kernels", kernels}, {"thread_traces", traces}});
}

}  // namespace tilewave::tool
