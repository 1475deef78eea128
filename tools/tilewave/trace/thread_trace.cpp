// SPDX-License-Identifier: MIT
#include "tools/tilewave/trace/thread_trace.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "tools/tilewave/common/error.hpp"
#include "tools/tilewave/common/json.hpp"
#include "tools/tilewave/common/text.hpp"

namespace tilewave::tool {

namespace fs = std::filesystem;

const char* stall_class(std::string_view i) {
  const auto has = [&](std::string_view word) { return i.find(word) != std::string_view::npos; };
  const auto starts = [&](std::string_view word) { return i.starts_with(word); };
  if (starts("s_waitcnt"))
    return has("vmcnt") ? "VMEM-wait" : has("lgkmcnt") ? "LDS/SMEM-wait" : has("expcnt") ? "EXP-wait" : "waitcnt";
  if (starts("s_barrier") || starts("s_wait_idle")) return "barrier";
  for (const char* space : {"buffer_", "global_", "flat_"}) {
    if (starts(std::string(space) + "load")) return "VMEM-load";
    if (starts(std::string(space) + "store")) return "VMEM-store";
  }
  if (starts("ds_")) return "LDS";
  if (starts("s_load") || starts("s_store") || starts("s_buffer_load")) return "SMEM";
  if (starts("v_mfma") || starts("v_smfmac") || starts("v_fma") || starts("v_pk_fma")) return "MFMA/FMA";
  return "other";
}

namespace {

std::int64_t count_of(const Json& value, const std::string& source) {
  // A count above 2^53 is no count of cycles, and sums of smaller ones do not overflow.
  if (!value.is_number_integer() || value.get<double>() < 0 || value.get<double>() > 9e15 / 1e3)
    refuse(source + ": a count that is none");
  return value.get<std::int64_t>();
}

std::uint64_t address_of(const Json& value, const std::string& source) {
  if (!value.is_number_integer() || (!value.is_number_unsigned() && value.get<std::int64_t>() < 0))
    refuse(source + ": an address that is none");
  return value.get<std::uint64_t>();
}

}  // namespace

ThreadTrace parse_code(std::string_view text, const std::string& source) {
  const Json json = parse_json(text, source);
  ThreadTrace trace;
  if (json.is_object() && json.contains("version") && json.at("version").is_string())
    trace.version = json.at("version").get<std::string>();
  for (const Json& row : list_member(json, "code", source)) {
    if (!row.is_array() || row.size() != 10 || !row[0].is_string() || !row[3].is_string())
      refuse(fmt::format("{}: row {} is not [ISA, _, LineNumber, Source, Codeobj, Vaddr, Hit, Latency, Stall, Idle]",
                         source, trace.code.size()));
    Instruction i;
    i.text = row[0].get<std::string>(), i.source = row[3].get<std::string>();
    if (i.text.starts_with(";")) {  // a symbol; the first is the kernel
      if (trace.kernel.empty()) trace.kernel = trim(std::string_view(i.text).substr(1));
      continue;
    }
    const std::string where = fmt::format("{}: row {}", source, trace.code.size());
    i.line = count_of(row[2], where), i.code_object = count_of(row[4], where), i.address = address_of(row[5], where);
    i.hits = count_of(row[6], where), i.latency = count_of(row[7], where), i.stall = count_of(row[8], where),
    i.idle = count_of(row[9], where);
    if (i.stall > i.latency) refuse(where + ": more stall than latency");
    trace.latency += i.latency, trace.stall += i.stall, trace.mapped += !i.source.empty();
    trace.code.push_back(i);
  }
  if (trace.code.empty()) refuse(source + " holds no instruction");
  return trace;
}

Wave parse_wave(std::string_view text, const std::string& source) {
  const Json json = parse_json(text, source);
  Wave wave;
  wave.duration = count_of(member(json, "duration", source), source);
  wave.instructions = count_of(member(json, "num_insts", source), source);
  for (const Json& run : list_member(member(json, "wave", source), "timeline", source)) {
    if (!run.is_array() || run.size() != 2) refuse(source + ": a run of the timeline is [state, cycles]");
    const std::int64_t state = count_of(run[0], source);
    if (state >= static_cast<std::int64_t>(wave_states.size()))
      refuse(fmt::format("{}: wave state {} is none of the profiler's", source, state));
    wave.states[static_cast<std::size_t>(state)] += count_of(run[1], source);
  }
  return wave;
}

ThreadTrace read_thread_trace(const std::string& folder) {
  const fs::path root(folder);
  ThreadTrace trace = parse_code(read_file((root / "code.json").string()), (root / "code.json").string());
  trace.files.push_back("code.json");
  std::vector<fs::path> waves;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(root, error)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with("se") && name.ends_with(".json") && name.find("_wv") != std::string::npos)
      waves.push_back(entry.path());
  }
  std::sort(waves.begin(), waves.end());
  for (const fs::path& path : waves) {
    trace.waves.push_back(parse_wave(read_file(path.string()), path.string()));
    for (std::size_t s = 0; s < trace.states.size(); ++s) trace.states[s] += trace.waves.back().states[s];
    trace.files.push_back(path.filename().string());
  }
  if (trace.waves.empty()) refuse(folder + " is an empty shell: it has no wave (se*_wv*.json)");
  return trace;
}

namespace {

std::vector<HotSpot> hottest(std::vector<HotSpot> spots, std::size_t most) {
  std::stable_sort(spots.begin(), spots.end(), [](const HotSpot& a, const HotSpot& b) { return a.stall > b.stall; });
  while (!spots.empty() && (spots.size() > most || spots.back().stall == 0)) spots.pop_back();
  return spots;
}

}  // namespace

std::string kind_of(const Instruction& i) { return i.kind.empty() ? stall_class(i.text) : i.kind; }

std::vector<Part> parts_of(const ThreadTrace& trace) {
  const auto& code = trace.code;
  const auto repeats = [&](const Instruction& i) { return i.hits >= 2 * std::max<std::int64_t>(1, code.front().hits); };
  const auto first = std::find_if(code.begin(), code.end(), repeats);  // asks for none of an empty code
  if (first == code.end()) return {{"whole kernel, no loop", 0, code.size()}};
  const auto last = std::find_if(code.rbegin(), code.rend(), repeats).base();
  const auto begin = static_cast<std::size_t>(first - code.begin()),
             end = static_cast<std::size_t>(last - code.begin());
  return {{"prologue", 0, begin}, {"loop", begin, end}, {"post-process", end, code.size()}};
}

std::vector<HotSpot> by_instruction(const ThreadTrace& trace, std::size_t most, std::size_t begin, std::size_t end) {
  std::vector<HotSpot> spots;
  for (std::size_t n = begin; n < std::min(end, trace.code.size()); ++n) {
    const Instruction& i = trace.code[n];
    HotSpot spot{i.text, kind_of(i), i.line, i.hits, i.latency, i.stall};
    spot.address = i.at.empty() ? fmt::format("{:#x}", i.address) : i.at, spot.source = i.source;
    constexpr std::size_t around = 2;
    for (std::size_t m = n - std::min(n, around); m < n; ++m) spot.before.push_back(trace.code[m].text);
    for (std::size_t m = n + 1; m < std::min(n + 1 + around, trace.code.size()); ++m)
      spot.after.push_back(trace.code[m].text);
    spots.push_back(std::move(spot));
  }
  return hottest(std::move(spots), most);
}

std::vector<HotSpot> by_source(const ThreadTrace& trace, std::size_t most) {
  std::map<std::string, HotSpot> lines;
  std::map<std::string, std::map<std::string, std::int64_t>> kinds;
  for (const Instruction& i : trace.code) {
    HotSpot& spot = lines[i.source];
    spot.what = i.source.empty() ? "(no source line)" : i.source;
    spot.hits += i.hits, spot.latency += i.latency, spot.stall += i.stall;
    kinds[i.source][kind_of(i)] += i.stall;
  }
  std::vector<HotSpot> spots;
  for (auto& [source, spot] : lines) {
    const auto& by_kind = kinds[source];
    spot.kind = std::max_element(by_kind.begin(), by_kind.end(), [](const auto& a, const auto& b) {
                  return a.second < b.second;
                })->first;
    spots.push_back(spot);
  }
  return hottest(std::move(spots), most);
}

std::map<std::string, std::int64_t> stalls_by_class(const ThreadTrace& trace) {
  std::map<std::string, std::int64_t> classes;
  for (const Instruction& i : trace.code) classes[kind_of(i)] += i.stall;
  return classes;
}

}  // namespace tilewave::tool
