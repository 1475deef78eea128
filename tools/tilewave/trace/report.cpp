// SPDX-License-Identifier: MIT
#include <fmt/format.h>

#include "tools/tilewave/common/json.hpp"
#include "tools/tilewave/common/text.hpp"
#include "tools/tilewave/trace/profile.hpp"

namespace tilewave::tool {

namespace {

std::string cell(std::string_view text) {
  std::string out;
  for (const char c : text) out += c == '|' ? "\\|" : c == '\n' ? std::string(" ") : std::string(1, c);
  return out;
}

double share(std::int64_t part, std::int64_t all) {
  return all > 0 ? 100 * static_cast<double>(part) / static_cast<double>(all) : 0;
}

std::string spots(const std::vector<HotSpot>& list, const ThreadTrace& trace, bool instructions) {
  std::string out =
      fmt::format("| # | stalled {} | of all | hits | kind | {} |\n|---|---|---|---|---|---|{}\n", trace.unit,
                  instructions ? "instruction | address | source line | before | after" : "source line",
                  instructions ? "---|---|---|---|" : "");
  std::size_t n = 0;
  for (const HotSpot& s : list) {
    out += fmt::format("| {} | {} | {:.1f} % | {} | {} | {} |", ++n, s.stall, share(s.stall, trace.latency), s.hits,
                       s.kind, cell(s.what));
    if (instructions)
      out += fmt::format(" {} | {} | {} | {} |", s.address, s.source.empty() ? "-" : cell(s.source),
                         cell(join(s.before, "; ")), cell(join(s.after, "; ")));
    out += "\n";
  }
  return list.empty() ? "Nothing stalled.\n" : out;
}

std::string waves_of(const ThreadTrace& trace) {
  std::int64_t all = 0;
  for (const std::int64_t cycles : trace.states) all += cycles;
  std::string out;
  if (!trace.waves.empty()) {
    out = fmt::format(
        "{} waves. By the profiler's enum (0 EMPTY to 4 STALL):\n\n| state | cycles | share |\n|---|---|---|\n",
        trace.waves.size());
    for (std::size_t s = 0; s < trace.states.size(); ++s)
      out += fmt::format("| {} | {} | {:.1f} % |\n", wave_states[s], trace.states[s], share(trace.states[s], all));
    out += "\n";
  }
  std::map<std::string, std::pair<std::int64_t, std::int64_t>> classes;
  for (const Instruction& i : trace.code) classes[kind_of(i)].first += i.latency, classes[kind_of(i)].second += i.stall;
  out += fmt::format(
      "Latency {} {}, {:.1f} % of them stalled.\n\n| class | latency | stall | of all stalls |\n|---|---|---|---|\n",
      trace.latency, trace.unit, share(trace.stall, trace.latency));
  for (const auto& [name, cycles] : classes)
    out += fmt::format("| {} | {} | {} | {:.1f} % |\n", name, cycles.first, cycles.second,
                       share(cycles.second, trace.stall));
  return out;
}

/// Part by part: outside of the loop a third of the rows says enough.
std::string hot_spots(const ThreadTrace& trace, std::size_t top) {
  std::string out;
  const auto parts = parts_of(trace);
  for (std::size_t p = 0; p < parts.size(); ++p) {
    const auto& [name, begin, end] = parts[p];
    const bool loop = parts.size() == 1 || p == 1;
    std::int64_t latency = 0, stall = 0;
    for (std::size_t i = begin; i < end; ++i) latency += trace.code[i].latency, stall += trace.code[i].stall;
    const std::string number = parts.size() == 1 ? "" : fmt::format("2{}. ", static_cast<char>('a' + p));
    out += fmt::format("### {}{}\n{} instructions, {:.1f} % of all {}, {:.1f} % of them stalled.\n\n{}\n", number, name,
                       end - begin, share(latency, trace.latency), trace.unit, share(stall, latency),
                       spots(by_instruction(trace, loop ? top : (top + 2) / 3, begin, end), trace, true));
  }
  return out;
}

std::string times_of(const KernelTimes& times, const Chip* chip, std::size_t top) {
  double all = 0;
  for (const KernelTime& k : times.kernels) all += k.total_us;
  std::string out = fmt::format(
      "From a {}.\n\n| kernel | calls | mean us | min | max | of all time | waves per SIMD | limited by | registers | for one more |\n|---|---|---|---|---|---|---|---|---|---|\n",
      times.format);
  std::string notes;
  for (const KernelTime& k : times.kernels) {
    if (top-- == 0) break;
    const auto o = chip == nullptr ? std::nullopt : occupancy_of(k, *chip);
    const auto either = [&](int value, int other) {
      return !o                                  ? "-"
             : o->perhaps == 0 || value == other ? std::to_string(value)
                                                 : fmt::format("{} or {}", value, other);
    };
    out += fmt::format("| {} | {} | {:.3f} | {:.3f} | {:.3f} | {:.1f} % | {} | {} | {} | {} |\n", cell(k.name), k.calls,
                       k.mean_us(), k.min_us, k.max_us, all > 0 ? 100 * k.total_us / all : 0,
                       o ? either(o->waves, o->perhaps) : "not in the trace", o ? o->limiter : "-",
                       o ? either(o->registers, 2 * o->registers) : "-",
                       o && o->target > 0 ? std::to_string(o->target) : "-");
    if (chip != nullptr && !k.registers_from.empty())
      notes += fmt::format("- {}: registers by {}.\n", k.name, k.registers_from);
    if (k.overlapping > 0)
      notes += fmt::format(
          "- {}: {} of {} launches run while later ones of the same queue begin ({} of these): such a time is "
          "not that of a launch alone.\n",
          k.name, k.overlapping, k.calls, k.overlapped);
  }
  return out + (notes.empty() ? "" : "\n" + notes);
}

/// Ratios whose parts were counted.
std::vector<std::pair<std::string, double>> derived(const std::map<std::string, double>& c) {
  std::vector<std::pair<std::string, double>> list;
  const auto ratio = [&](const char* name, std::initializer_list<const char*> above,
                         std::initializer_list<const char*> below) {
    double a = 0, b = 0;
    for (const char* n : above) {
      if (!c.contains(n)) return;
      a += c.at(n);
    }
    for (const char* n : below) {
      if (!c.contains(n)) return;
      b += c.at(n);
    }
    if (b > 0) list.emplace_back(name, a / b);
  };
  ratio("L2 hit rate", {"TCC_HIT_sum"}, {"TCC_HIT_sum", "TCC_MISS_sum"});
  ratio("share of 32-byte reads from memory", {"TCC_EA0_RDREQ_32B_sum"}, {"TCC_EA0_RDREQ_sum"});
  ratio("LDS bank conflict cycles per LDS instruction", {"SQ_LDS_BANK_CONFLICT"}, {"SQ_INSTS_LDS"});
  for (const char* kind : {"VALU", "MFMA", "LDS", "VMEM", "SALU", "SMEM"}) {
    const std::string counter = fmt::format("SQ_INSTS_{}", kind), name = fmt::format("{} instructions per wave", kind);
    ratio(name.c_str(), {counter.c_str()}, {"SQ_WAVES"});
  }
  return list;
}

std::string counters_of(const Counters& counters) {
  std::string out;
  for (const auto& [kernel, means] : counters.per_dispatch) {
    out += fmt::format("{} ({} dispatches)\n\n| counter | per dispatch |\n|---|---|\n", kernel,
                       counters.dispatches.at(kernel));
    for (const auto& [name, mean] : means) out += fmt::format("| {} | {:.6g} |\n", name, mean);
    for (const auto& [name, value] : derived(means)) out += fmt::format("| {} | {:.4f} |\n", name, value);
    out += "\n";
  }
  return out;
}

/// Returns those of ncu's some hundred numbers that say how busy each unit is.
std::string metrics_of(const std::vector<NcuKernel>& kernels, std::size_t top) {
  constexpr const char* names[] = {"Duration",
                                   "Compute (SM) Throughput",
                                   "Memory Throughput",
                                   "DRAM Throughput",
                                   "L1/TEX Hit Rate",
                                   "L2 Hit Rate",
                                   "Executed Ipc Active",
                                   "Issue Slots Busy",
                                   "Eligible Warps Per Scheduler",
                                   "Warp Cycles Per Issued Instruction",
                                   "Executed Instructions",
                                   "Local Memory Spilling Requests",
                                   "Theoretical Occupancy",
                                   "Achieved Occupancy",
                                   "Waves Per SM"};
  std::string out;
  for (const NcuKernel& k : kernels) {
    if (top-- == 0) break;
    out += fmt::format("{}, its longest launch:\n\n| metric | value | unit |\n|---|---|---|\n", k.kernel);
    for (const char* name : names)
      for (const NcuMetric& m : k.metrics)  // a name may come in two sections, in different units
        if (m.name == name) out += fmt::format("| {} | {:.6g} | {} |\n", m.name, m.value, cell(m.unit));
    out += "\n";
  }
  return out;
}

Json json_of(const std::vector<HotSpot>& list) {
  Json out = Json::array();
  for (const HotSpot& s : list)
    out.push_back({{"what", s.what},
                   {"kind", s.kind},
                   {"line", s.line},
                   {"hits", s.hits},
                   {"latency", s.latency},
                   {"stall", s.stall},
                   {"address", s.address},
                   {"source", s.source},
                   {"before", s.before},
                   {"after", s.after}});
  return out;
}

}  // namespace

std::string report_md(const Profile& p, const Chip* chip, const std::string& title, std::size_t top) {
  std::string out = fmt::format("# {}\n\n{}\n\n## Workload and kernel times\n", title,
                                chip == nullptr ? "No chip was named: nothing is said of occupancy."
                                                : fmt::format("Chip: {} ({})", chip->name, chip->file));
  out += p.times ? times_of(*p.times, chip, top)
                 : "Not in the trace: no kernel_trace, kernel_stats or ncu CSV, no results.json or results.db.\n";
  out += "\n## 1. Wave states\n";
  if (p.traces.empty()) out += "Not in the trace: no thread trace (code.json).\n";
  for (const ThreadTrace& t : p.traces)
    out += fmt::format("{} (decoder {})\n\n{}\n", t.kernel.empty() ? "kernel without a name" : t.kernel,
                       t.version.empty() ? "unknown" : t.version, waves_of(t));
  out += "\n## 1a. Counters\n";
  if (p.counters) out += counters_of(*p.counters);
  out += metrics_of(p.ncu, top);
  if (!p.counters && p.ncu.empty()) out += "Not in the trace: no counter_collection CSV.\n";
  out += "\n## 2. Hot spots\n";
  if (p.traces.empty()) out += "Not in the trace.\n";
  for (const ThreadTrace& t : p.traces) out += hot_spots(t, top);
  out += "\n## 3. Source lines\n";
  if (p.traces.empty()) out += "Not in the trace.\n";
  for (const ThreadTrace& t : p.traces)
    out += fmt::format("{} of {} instructions have a source line.\n\n{}\n", t.mapped, t.code.size(),
                       spots(by_source(t, top), t, false));
  out += "\n## 4. Recommendations\n";
  const auto hints = hints_of(p, chip);
  if (hints.empty()) out += "Nothing that the trace has calls for any.\n";
  std::size_t n = 0;
  for (const Hint& h : hints) out += fmt::format("{}. {}\n", ++n, h.text);
  out += "\n## 5. Files\n";
  for (const std::string& file : p.files) out += "- " + file + "\n";
  return out;
}

std::string report_json(const Profile& p, const Chip* chip, std::size_t top) {
  Json kernels = Json::array(), traces = Json::array(), counters = Json::object(), hints = Json::array();
  if (p.times) {
    for (const KernelTime& k : p.times->kernels) {
      const auto o = chip == nullptr ? std::nullopt : occupancy_of(k, *chip);
      kernels.push_back(
          {{"name", k.name},
           {"calls", k.calls},
           {"mean_us", k.mean_us()},
           {"min_us", k.min_us},
           {"max_us", k.max_us},
           {"launch", k.launch},
           {"registers_from", k.registers_from.empty() ? "the profiler" : k.registers_from},
           {"overlapping", k.overlapping},
           {"overlapped", k.overlapped},
           {"occupancy", o ? Json{{"waves", o->waves},
                                  {"limiter", o->limiter},
                                  {"registers", o->registers},
                                  {"target", o->target},
                                  {"waves_if_twice_the_registers", o->perhaps > 0 ? Json(o->perhaps) : Json()}}
                           : Json()}});
    }
  }
  for (const ThreadTrace& t : p.traces) {
    Json states = Json::object();
    for (std::size_t s = 0; s < t.states.size(); ++s) states[wave_states[s]] = t.states[s];
    Json parts = Json::array();
    for (const Part& part : parts_of(t))
      parts.push_back({{"name", part.name}, {"begin", part.begin}, {"end", part.end}});
    traces.push_back({{"kernel", t.kernel},
                      {"waves", t.waves.size()},
                      {"states", states},
                      {"latency", t.latency},
                      {"stall", t.stall},
                      {"unit", t.unit},
                      {"mapped", t.mapped},
                      {"instructions", t.code.size()},
                      {"parts", parts},
                      {"stalls", stalls_by_class(t)},
                      {"by_instruction", json_of(by_instruction(t, top))},
                      {"by_source", json_of(by_source(t, top))}});
  }
  if (p.counters) {
    for (const auto& [kernel, means] : p.counters->per_dispatch) {
      counters[kernel] = {{"dispatches", p.counters->dispatches.at(kernel)}, {"per_dispatch", means}};
      for (const auto& [name, value] : derived(means)) counters[kernel]["derived"][name] = value;
    }
  }
  Json metrics = Json::object();
  for (const NcuKernel& k : p.ncu)
    for (const NcuMetric& m : k.metrics) metrics[k.kernel][m.name + (m.unit.empty() ? "" : ", " + m.unit)] = m.value;
  for (const Hint& h : hints_of(p, chip)) hints.push_back({{"share", h.share}, {"text", h.text}});
  return dump({{"schema", "tilewave.trace/2"},
               {"chip", chip == nullptr ? Json() : Json(chip->name)},
               {"kernels", kernels},
               {"thread_traces", traces},
               {"counters", counters},
               {"ncu", metrics},
               {"hints", hints},
               {"files", p.files}});
}

}  // namespace tilewave::tool
