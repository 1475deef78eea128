// SPDX-License-Identifier: MIT
// Everything that a profiler left in a folder, and the conclusions from it.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "tools/tilewave/specs/chips.hpp"
#include "tools/tilewave/trace/kernel_times.hpp"
#include "tools/tilewave/trace/ncu.hpp"
#include "tools/tilewave/trace/thread_trace.hpp"

namespace tilewave::tool {

/// Means over the dispatches in which a counter was counted, by kernel and counter; dispatches by kernel. A dispatch that was
/// counted several times, replayed or in several passes, is one.
struct Counters {
  std::map<std::string, std::map<std::string, double>> per_dispatch;
  std::map<std::string, std::size_t> dispatches;
};
std::vector<CounterRow> parse_counters(std::string_view csv, const std::string& source);
Counters means_of(const std::vector<CounterRow>& rows);

/// How many waves a SIMD holds, which resource limits them, and how few registers the next wave would need. It uses
/// only what the trace has: registers (vgpr + accum_vgpr), and the LDS of a block.
struct Occupancy {
  int waves = 0;
  std::string limiter;            // registers, LDS, or the hardware
  int registers = 0, target = 0;  // of a lane, rounded as the hardware does; for one wave more (0: no more to have)
  int perhaps = 0;                // waves if registers are twice as many, where nothing tells whether they are; else 0
};
std::optional<Occupancy> occupancy_of(const KernelTime& kernel, const Chip& chip);

struct Hint {
  double share;  // of what the trace counted
  std::string text;
};

struct Profile {
  std::vector<std::string> files;
  std::optional<KernelTimes> times;
  std::optional<Counters> counters;
  std::vector<ThreadTrace> traces;
  std::vector<NcuKernel> ncu;  // of each kernel the longest launch
};

/// Finds kernel traces, stats, counters, results (*results.json, *results.db), pages of ncu (*ncu.csv, *ncu_source.csv, *ncu_lines.csv)
/// and thread traces in a folder and below, and adds up the launches of all. Where files of one name differ in what follows
/// it, as out_kernel_trace.csv and out_results.db, each launch counts once. Code objects beside them (*.co, *.hsaco,
/// *code_object_id_*.out) say what kernels reserve. Refuses a folder with none of them, and names a file that has such a name
/// but cannot be read.
Profile read_profile(const std::string& folder);

/// Worst first; each names the number it follows from.
std::vector<Hint> hints_of(const Profile& profile, const Chip* chip);

/// REPORT.md: only what was in the trace; what was not is said to be missing.
std::string report_md(const Profile& profile, const Chip* chip, const std::string& title, std::size_t top);
std::string report_json(const Profile& profile, const Chip* chip, std::size_t top);

}  // namespace tilewave::tool
