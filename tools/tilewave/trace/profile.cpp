// SPDX-License-Identifier: MIT
#include "tools/tilewave/trace/profile.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <set>

#include "tools/tilewave/common/csv.hpp"
#include "tools/tilewave/common/error.hpp"
#include "tools/tilewave/common/text.hpp"
#include "tools/tilewave/trace/registers.hpp"

namespace tilewave::tool {

namespace fs = std::filesystem;

std::vector<CounterRow> parse_counters(std::string_view text, const std::string& source) {
  const Csv csv = parse_csv(text, source, "Counter_Name");
  const std::size_t kernel = csv.need("Kernel_Name"), name = csv.need("Counter_Name"),
                    value = csv.need("Counter_Value"), dispatch = csv.need("Dispatch_Id");
  const auto process = csv.find("Process_Id");
  std::vector<CounterRow> rows;
  for (std::size_t r = 0; r < csv.rows.size(); ++r) {
    const auto& row = csv.rows[r];
    const double v = csv.need_number(r, value);
    if (!std::isfinite(v) || v < 0) refuse(csv.where(r) + ": a counter below 0 or beyond all bounds");
    if (row[kernel].empty() || row[name].empty()) refuse(csv.where(r) + ": a counter without kernel or name");
    rows.push_back({row[kernel], row[name], "", "", process ? row[*process] : "", row[dispatch], v});
  }
  return rows;
}

Counters means_of(const std::vector<CounterRow>& rows) {
  using Key = std::array<std::string, 3>;  // of a dispatch
  std::map<std::string, std::map<std::string, std::map<Key, std::pair<double, int>>>> counted;
  std::map<std::string, std::map<std::string, std::set<Key>>> dispatches;  // by kernel and pass
  for (const CounterRow& row : rows) {
    const Key key{row.folder, row.process, row.dispatch};
    auto& [sum, times] = counted[row.kernel][row.counter][key];
    sum += row.value, ++times;
    dispatches[row.kernel][row.pass].insert(key);
  }
  Counters counters;
  for (const auto& [kernel, by_counter] : counted) {
    for (const auto& [counter, by_dispatch] : by_counter) {
      double sum = 0;
      for (const auto& [key, value] : by_dispatch) sum += value.first / value.second;
      counters.per_dispatch[kernel][counter] = sum / static_cast<double>(by_dispatch.size());
    }
    // Each pass runs the program again, as another process.
    for (const auto& [pass, keys] : dispatches[kernel])
      counters.dispatches[kernel] = std::max(counters.dispatches[kernel], keys.size());
  }
  return counters;
}

namespace {

/// Returns the occupancy that the profiler reports, and how few registers one more block would need.
Occupancy occupancy_by_ncu(const std::map<std::string, double>& launch, double waves, const Chip& chip) {
  Occupancy o;
  o.waves = static_cast<int>(waves);
  const auto value = [&](const char* key) { return launch.contains(key) ? launch.at(key) : HUGE_VAL; };
  const double by_registers = value("blocks_by_registers"), by_lds = value("blocks_by_lds"),
               by_waves = value("blocks_by_waves");
  o.limiter = by_waves <= std::min(by_registers, by_lds) ? "the hardware"
              : by_lds <= by_registers                   ? "LDS"
                                                         : "registers";
  o.registers = launch.contains("vgpr") ? static_cast<int>(launch.at("vgpr")) : 0;
  if (o.limiter == "registers" && launch.contains("workgroup")) {
    const double granule = chip.need("register_granule", "registers"), wave = chip.need("wave_lanes", "lanes");
    const double waves_of_block = std::ceil(launch.at("workgroup") / wave);
    const double of_simd = std::ceil((by_registers + 1) * waves_of_block / chip.need("simds_per_cu", "count"));
    o.target =
        static_cast<int>(std::floor(chip.need("register_file_lanes", "registers") / of_simd / granule) * granule);
  }
  return o;
}

}  // namespace

std::optional<Occupancy> occupancy_of(const KernelTime& kernel, const Chip& chip) {
  const auto value = [&](const char* key) {
    const auto found = kernel.launch.find(key);
    return found == kernel.launch.end() ? std::optional<double>() : found->second;
  };
  if (const auto waves = value("waves_per_simd")) return occupancy_by_ncu(kernel.launch, *waves, chip);
  const auto vgpr = value("vgpr"), lds = value("lds_bytes"), block = value("workgroup");
  if (!vgpr) return std::nullopt;
  Occupancy o;
  const double granule = chip.need("register_granule", "registers"),
               file = chip.need("register_file_lanes", "registers");
  o.registers = static_cast<int>(std::ceil(std::max(1.0, *vgpr + value("accum_vgpr").value_or(0)) / granule) * granule);
  const int most = static_cast<int>(chip.need("max_waves_per_simd", "waves"));
  const int by_registers = std::max(1, static_cast<int>(file / o.registers));
  o.waves = std::min(most, by_registers);
  o.limiter = by_registers < most ? "registers" : "the hardware";
  if (lds && *lds > 0 && block) {
    const double waves_of_block = std::ceil(*block / chip.need("wave_lanes", "lanes"));
    const double blocks = std::floor(chip.need("lds", "KiB") * 1024 / *lds);
    const int by_lds = std::max(1, static_cast<int>(blocks * waves_of_block / chip.need("simds_per_cu", "count")));
    if (by_lds < o.waves) o.waves = by_lds, o.limiter = "LDS";
  }
  if (kernel.registers_halved && chip.arch == "gfx950") {
    o.perhaps = std::min(o.waves, std::max(1, static_cast<int>(file / (2 * o.registers))));
    return o;
  }
  if (o.limiter == "registers") o.target = static_cast<int>(std::floor(file / (o.waves + 1) / granule) * granule);
  return o;
}

namespace {

/// Files of one run of rocprofv3, which differ in what follows the run's name.
struct Run {
  fs::path trace, stats, counters, db, json;
};

/// Returns the member of its run that `name` belongs to, and the run's name; null: it is none of these files.
fs::path Run::*part_of(std::string& name) {
  static constexpr std::pair<const char*, fs::path Run::*> parts[] = {
      {"kernel_trace.csv", &Run::trace}, {"kernel_stats.csv", &Run::stats}, {"counter_collection.csv", &Run::counters},
      {"results.json", &Run::json},      {"results.db", &Run::db},          {".db", &Run::db}};
  for (const auto& [end, part] : parts) {
    if (!name.ends_with(end)) continue;
    name.resize(name.size() - std::string_view(end).size());
    return part;
  }
  return nullptr;
}

/// pmc_1 or pass_2 of a path, which is taken out of it.
std::string take_pass(fs::path& folder) {
  std::string pass;
  fs::path rest;
  for (const fs::path& part : folder) {
    const std::string name = part.string();
    const std::size_t digits = name.starts_with("pmc_") ? 4 : name.starts_with("pass_") ? 5 : 0;
    if (digits > 0 && integer(name.substr(digits))) {
      pass = name;
    } else {
      rest /= part;
    }
  }
  folder = rest;
  return pass;
}

/// Reads the files of runs, each launch and counter from one of them.
class RunReader {
 public:
  RunReader(const fs::path& root, Profile& profile) : root_(root), profile_(profile) {}

  void read(const Run& run) {
    Recording recording;  // read when something is needed that no CSV has
    if (run.trace.empty() || run.counters.empty()) recording = results_of(run);
    bool timed = !run.trace.empty();
    if (timed) {
      add_times(read_kernel_times(used(run.trace)));
    } else if (!recording.dispatches.empty()) {
      add_times(times_of(recording.dispatches, used(results_)));
      timed = true;
    }
    if (!timed && !run.stats.empty()) add_times(read_kernel_times(used(run.stats)));
    if (!run.counters.empty()) {
      const std::string file = used(run.counters);
      add_counters(parse_counters(read_file(file), file), run.counters);
    } else if (!recording.counters.empty()) {
      used(results_);
      add_counters(std::move(recording.counters), results_);
    }
  }
  void add_times(KernelTimes times) {
    if (profile_.times) return merge(*profile_.times, std::move(times));
    profile_.times = std::move(times);
  }
  void finish() {
    if (!rows_.empty()) profile_.counters = means_of(rows_);
  }

 private:
  std::string used(const fs::path& path) {
    const std::string shown = fs::relative(path, root_).string();
    if (!contains(profile_.files, shown)) profile_.files.push_back(shown);
    return path.string();
  }
  Recording results_of(const Run& run) {
    Recording recording;
    if (results_ = run.db; !run.db.empty()) recording = read_results_db(run.db.string());
    if ((recording.dispatches.empty() && recording.counters.empty()) && !run.json.empty())
      results_ = run.json, recording = parse_results_json(read_file(run.json.string()), run.json.string());
    return recording;
  }
  void add_counters(std::vector<CounterRow> rows, const fs::path& path) {
    fs::path folder = fs::relative(path.parent_path(), root_);
    const std::string pass = take_pass(folder);
    for (CounterRow& row : rows) {
      row.pass = pass, row.folder = folder.string();
      rows_.push_back(std::move(row));
    }
  }

  const fs::path& root_;
  Profile& profile_;
  fs::path results_;
  std::vector<CounterRow> rows_;
};

bool is_code_object(const std::string& name) {
  return name.ends_with(".co") || name.ends_with(".hsaco") ||
         (name.find("code_object_id_") != std::string::npos && name.ends_with(".out"));
}

const std::map<std::string, std::string>& advice() {
  static const std::map<std::string, std::string> texts{
      {"VMEM-wait", "issue global loads earlier, or have more of them in flight (another stage, more waves)"},
      {"LDS/SMEM-wait", "put independent work between LDS or scalar reads and their use; look for bank conflicts"},
      {"EXP-wait", "stores wait for their data: write later, or fewer and wider"},
      {"waitcnt", "a wait for everything: split it by counter"},
      {"barrier", "waves of a block arrive at different times: fewer barriers, or work that is the same for all"},
      {"VMEM-load", "the queue of loads is full or addresses are slow: wider loads, fewer instructions"},
      {"VMEM-store", "the queue of stores is full: wider stores, fewer instructions"},
      {"LDS", "the LDS pipe is busy: conflicts, padding, or fewer round trips"},
      {"SMEM", "scalar loads stall: load arguments once, before the loop"},
      {"MFMA/FMA",
       "the matrix pipe is busy or its operands come late: this is the good kind, unless results are waited for"},
      {"other", "address arithmetic and the like: hoist it out of the loop"},
      // The names are those of ncu (Nsight Compute's profiling guide, "Warp Stall Reasons").
      {"long_sb", "waits for global or local memory: issue loads earlier, or have more of them in flight"},
      {"short_sb", "waits for shared memory or a special function: put independent work between it and its use"},
      {"mio", "the queue of shared memory and special instructions is full: fewer and wider ones"},
      {"lg", "the queue of global and local accesses is full: fewer and wider ones"},
      {"wait", "fixed latencies: more waves, or independent instructions between dependent ones"},
      {"math", "the pipe of this arithmetic is busy: fewer such instructions, or another pipe"},
      {"no_inst", "instructions are not there: a smaller loop, or fewer branches far away"},
      {"imc", "constants are not in their cache: fewer different ones"},
      {"membar", "a fence waits for all that was written: fewer or narrower fences"},
      {"drain", "the end waits for stores: write earlier"},
      {"sleep", "waves sleep or are paced"},
      {"sleeping", "waves sleep or are paced"},
      {"tex", "the texture queue is full: fewer accesses"},
      {"dispatch", "the dispatcher holds it back: fewer registers of one bank at a time"},
      {"branch_resolving", "branches: fewer, or straighter code"}};
  return texts;
}

std::string advice_on(const std::string& kind) {
  const auto found = advice().find(kind);
  return found == advice().end() ? "see the profiler's guide" : found->second;
}

}  // namespace

Profile read_profile(const std::string& folder) {
  Profile profile;
  std::error_code error;
  std::vector<fs::path> paths;
  if (fs::is_regular_file(folder, error)) refuse(folder + " is a file: the folder it lies in is read");
  for (const auto& entry : fs::recursive_directory_iterator(folder, error)) {
    if (!entry.is_directory()) paths.push_back(entry.path());
  }
  if (error) refuse(fmt::format("cannot read {}: {}", folder, error.message()));
  std::sort(paths.begin(), paths.end());
  std::map<fs::path, Run> runs;
  std::vector<DeviceCode> objects;
  std::vector<NcuKernel> launches;
  const fs::path root(folder);
  RunReader reader(root, profile);
  for (const fs::path& path : paths) {
    std::string name = path.filename().string();
    if (is_code_object(name)) {
      // Some are of the driver's own kernels, and say less: a kernel that is looked for in vain is in none.
      try {
        for (DeviceCode& code : parse_binary(read_file(path.string()), fs::relative(path, folder).string()))
          objects.push_back(std::move(code));
      } catch (const Error&) {
        continue;
      }
    } else if (name.ends_with("ncu.csv")) {
      const std::string text = read_file(path.string());
      reader.add_times(parse_kernel_times(text, path.string()));
      if (text.find("Metric Name") != std::string::npos) {
        for (NcuKernel& launch : parse_ncu_details(text, path.string())) launches.push_back(std::move(launch));
      }
    } else if (name.ends_with("ncu_source.csv")) {
      auto traces = parse_ncu_source(read_file(path.string()), path.string());
      const fs::path lines = path.parent_path() / (name.substr(0, name.size() - 10) + "lines.csv");
      if (fs::exists(lines)) {
        add_ncu_lines(read_file(lines.string()), lines.string(), traces);
        profile.files.push_back(fs::relative(lines, folder).string());
      }
      for (ThreadTrace& trace : traces) profile.traces.push_back(std::move(trace));
    } else if (name == "code.json") {
      profile.traces.push_back(read_thread_trace(path.parent_path().string()));
    } else {
      if (const auto part = part_of(name); part != nullptr) runs[path.parent_path() / name].*part = path;
      continue;
    }
    profile.files.push_back(fs::relative(path, folder).string());
  }
  for (const auto& [name, run] : runs) reader.read(run);
  reader.finish();
  profile.ncu = longest_of(std::move(launches));
  if (profile.files.empty())
    refuse(folder +
           " holds no *kernel_trace.csv, *kernel_stats.csv, *counter_collection.csv, *results.json or *results.db with "
           "launches, *ncu.csv, *ncu_source.csv or code.json");
  if (profile.times) correct_registers(profile.times->kernels, profile.traces, objects);
  std::sort(profile.files.begin(), profile.files.end());
  return profile;
}

std::vector<Hint> hints_of(const Profile& profile, const Chip* chip) {
  std::vector<Hint> hints;
  for (const ThreadTrace& trace : profile.traces) {
    if (trace.latency == 0) continue;
    for (const auto& [kind, stall] : stalls_by_class(trace)) {
      const double share = static_cast<double>(stall) / static_cast<double>(trace.latency);
      if (share < 0.05) continue;
      hints.push_back({share, fmt::format("{}: {:.1f} % of all {} stall here: {}", kind, share * 100, trace.unit,
                                          advice_on(kind))});
    }
    if (trace.mapped == 0)
      hints.push_back({0, fmt::format("no instruction has a source line: compile with {} and capture again",
                                      trace.unit == "cycles" ? "-g" : "-lineinfo")});
  }
  if (!profile.ncu.empty()) {  // of the kernel that takes longest
    for (const NcuRule& rule : profile.ncu.front().rules) {
      if (rule.name == "MemoryL2Compression") continue;  // of how the caller allocates, whatever the kernel does
      hints.push_back({rule.gain.value_or(0) / 100, fmt::format("{} (a rule of ncu{}): {}", rule.name,
                                                                rule.gain ? fmt::format(", {:.1f} %", *rule.gain) : "",
                                                                rule.text.substr(0, rule.text.find(". ")))});
    }
  }
  if (profile.times && chip != nullptr) {
    const KernelTime& hot = profile.times->kernels.front();
    const auto o = occupancy_of(hot, *chip);
    if (o && o->perhaps > 0) {
      hints.push_back(
          {0, fmt::format("{} or {} registers: rocprofv3 up to 1.1.0 writes half of gfx950's (ROCm/rocm-systems pull "
                          "request 5862); code.json or the code object beside the trace would tell",
                          o->registers, 2 * o->registers)});
    }
    if (o && o->target > 0) {
      hints.push_back(
          {1.0 / (o->waves + 1), fmt::format("{} registers hold {} waves per SIMD: {} or fewer would hold {}",
                                             o->registers, o->waves, o->target, o->waves + 1)});
    }
    const auto scratch = hot.launch.find("scratch_bytes");
    if (scratch != hot.launch.end() && scratch->second > 0)
      hints.push_back({1, fmt::format("{:.0f} bytes of scratch a lane: registers are spilled", scratch->second)});
  }
  std::stable_sort(hints.begin(), hints.end(), [](const Hint& a, const Hint& b) { return a.share > b.share; });
  return hints;
}

}  // namespace tilewave::tool
