// SPDX-License-Identifier: MIT
#include "tools/tilewave/trace/kernel_times.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <regex>

#include "tools/tilewave/common/csv.hpp"
#include "tools/tilewave/common/error.hpp"
#include "tools/tilewave/common/text.hpp"
#include "tools/tilewave/trace/ncu.hpp"

namespace tilewave::tool {

namespace {

class Collector {
 public:
  KernelTime& add(const std::string& name, double us, std::int64_t calls, const std::string& where) {
    if (name.empty()) refuse(where + ": a kernel without a name");
    if (!std::isfinite(us) || us < 0 || calls < 1)
      refuse(fmt::format("{}: a time of {} us in {} calls", where, us, calls));
    const double each = us / static_cast<double>(calls);
    auto [at, fresh] = kernels_.try_emplace(name);
    KernelTime& k = at->second;
    k.name = name;
    k.calls += calls;
    k.total_us += us;
    k.min_us = fresh ? each : std::min(k.min_us, each);
    k.max_us = std::max(k.max_us, each);
    return k;
  }
  KernelTimes take(const std::string& format) {
    KernelTimes times{format, {}};
    for (auto& [name, kernel] : kernels_) times.kernels.push_back(std::move(kernel));
    std::stable_sort(times.kernels.begin(), times.kernels.end(),
                     [](const auto& a, const auto& b) { return a.total_us > b.total_us; });
    return times;
  }

 private:
  std::map<std::string, KernelTime> kernels_;
};

/// Takes the numbers of one launch, where the file has the column.
void take_launch(const Csv& csv, std::size_t row, std::map<std::string, double>& launch) {
  static constexpr std::pair<const char*, const char*> fields[] = {{"VGPR_Count", "vgpr"},
                                                                   {"Accum_VGPR_Count", "accum_vgpr"},
                                                                   {"SGPR_Count", "sgpr"},
                                                                   {"LDS_Block_Size", "lds_bytes"},
                                                                   {"Scratch_Size", "scratch_bytes"}};
  for (const auto& [column, key] : fields) {
    if (const auto at = csv.find(column)) launch[key] = csv.need_number(row, *at);
  }
  for (const char* what : {"Workgroup_Size", "Grid_Size"}) {
    double product = 1;
    bool all = true;
    for (const char axis : {'X', 'Y', 'Z'}) {
      const auto at = csv.find(fmt::format("{}_{}", what, axis));
      all = all && at;
      if (at) product *= csv.need_number(row, *at);
    }
    if (all) launch[what[0] == 'W' ? "workgroup" : "grid"] = product;
  }
}

std::vector<Dispatch> dispatches_of(const Csv& csv) {
  const std::size_t name = csv.need("Kernel_Name"), begin = csv.need("Start_Timestamp"),
                    end = csv.need("End_Timestamp");
  const auto kind = csv.find("Kind"), queue = csv.find("Queue_Id"), agent = csv.find("Agent_Id");
  std::vector<Dispatch> dispatches;
  for (std::size_t r = 0; r < csv.rows.size(); ++r) {
    const auto& row = csv.rows[r];
    if (kind && row[*kind] != "KERNEL_DISPATCH") continue;
    // Nanoseconds since boot do not fit a double's exact integers after 104 days, so they are subtracted as integers.
    const auto from = integer(row[begin]), to = integer(row[end]);
    if (!from || !to || *from < 0 || *to < *from) refuse(csv.where(r) + ": timestamps that are no interval");
    if (row[name].empty()) refuse(csv.where(r) + ": a kernel without a name");
    Dispatch d{row[name], "", *from, *to, {}};
    if (queue) d.queue = (agent ? row[*agent] : "") + "/" + row[*queue];
    take_launch(csv, r, d.launch);
    dispatches.push_back(std::move(d));
  }
  return dispatches;
}

/// Counts launches during which a later one of the same queue begins.
void add_overlaps(const std::vector<Dispatch>& dispatches, std::map<std::string, KernelTime*> kernels) {
  std::map<std::string, std::vector<const Dispatch*>> queues;
  for (const Dispatch& d : dispatches)
    if (!d.queue.empty()) queues[d.queue].push_back(&d);
  for (auto& [queue, list] : queues) {
    std::stable_sort(list.begin(), list.end(),
                     [](const Dispatch* a, const Dispatch* b) { return a->begin_ns < b->begin_ns; });
    for (auto at = list.begin(); at != list.end(); ++at) {
      const auto behind = std::lower_bound(at + 1, list.end(), (*at)->end_ns,
                                           [](const Dispatch* d, std::int64_t end) { return d->begin_ns < end; });
      if (behind == at + 1) continue;
      KernelTime& k = *kernels.at((*at)->kernel);
      ++k.overlapping, k.overlapped += behind - (at + 1);
    }
  }
}

KernelTimes from_stats(const Csv& csv) {
  const std::size_t name = csv.need("Name"), calls = csv.need("Calls"), total = csv.need("TotalDurationNs");
  const auto least = csv.find("MinNs"), most = csv.find("MaxNs");
  Collector collector;
  for (std::size_t r = 0; r < csv.rows.size(); ++r) {
    const auto count = integer(csv.rows[r][calls]);
    if (!count) refuse(csv.where(r) + ": Calls is no integer");
    KernelTime& k = collector.add(csv.rows[r][name], csv.need_number(r, total) * 1e-3, *count, csv.where(r));
    if (least) k.min_us = csv.need_number(r, *least) * 1e-3;
    if (most) k.max_us = csv.need_number(r, *most) * 1e-3;
  }
  return collector.take("rocprofv3 kernel stats");
}

KernelTimes from_ncu_details(std::string_view text, const std::string& source) {
  Collector collector;
  for (const NcuKernel& launch : parse_ncu_details(text, source)) {
    KernelTime& kernel = collector.add(launch.kernel, launch.us, 1, source);
    if (auto use = launch.use(); !use.empty()) kernel.launch = std::move(use);
  }
  return collector.take("page details of ncu");
}

KernelTimes from_ncu_raw(const Csv& csv) {
  const std::size_t name = csv.need("Kernel Name"), time = csv.need(ncu_duration);
  const double scale = ncu_microseconds(csv.rows[0][time], csv.where(0));  // the first row holds the units
  Collector collector;
  for (std::size_t r = 1; r < csv.rows.size(); ++r) {
    collector.add(csv.rows[r][name], ncu_number(csv.rows[r][time], csv.where(r)) * scale, 1, csv.where(r));
  }
  return collector.take("page raw of ncu");
}

}  // namespace

KernelTimes times_of(const std::vector<Dispatch>& dispatches, const std::string& source) {
  Collector collector;
  for (const Dispatch& d : dispatches) {
    KernelTime& k = collector.add(d.kernel, static_cast<double>(d.end_ns - d.begin_ns) * 1e-3, 1, source);
    for (const auto& [key, value] : d.launch) k.launch[key] = value;
  }
  const bool modelled = !dispatches.empty() && dispatches[0].kernel.find(modelled_kernel) != std::string::npos;
  KernelTimes times = collector.take(modelled ? "kernel trace of the simulator's clock: modelled, not measured"
                                              : "rocprofv3 kernel trace");
  std::map<std::string, KernelTime*> kernels;
  for (KernelTime& k : times.kernels) kernels[k.name] = &k;
  add_overlaps(dispatches, kernels);
  return times;
}

void merge(KernelTimes& times, KernelTimes more) {
  if (times.format.find(more.format) == std::string::npos)
    times.format += (times.format.empty() ? "" : ", ") + more.format;
  for (KernelTime& k : more.kernels) {
    const auto same = std::find_if(times.kernels.begin(), times.kernels.end(),
                                   [&](const KernelTime& known) { return known.name == k.name; });
    if (same == times.kernels.end()) {
      times.kernels.push_back(std::move(k));
      continue;
    }
    same->calls += k.calls, same->total_us += k.total_us;
    same->min_us = std::min(same->min_us, k.min_us), same->max_us = std::max(same->max_us, k.max_us);
    same->overlapping += k.overlapping, same->overlapped += k.overlapped;
    same->launch.insert(k.launch.begin(), k.launch.end());
  }
  std::stable_sort(times.kernels.begin(), times.kernels.end(),
                   [](const auto& a, const auto& b) { return a.total_us > b.total_us; });
}

KernelTimes parse_kernel_times(std::string_view text, const std::string& source) {
  KernelTimes times;
  const auto has = [&](const char* word) { return text.find(word) != std::string_view::npos; };
  if (has("Start_Timestamp") && has("Kernel_Name")) {
    times = times_of(dispatches_of(parse_csv(text, source, "Start_Timestamp")), source);
  } else if (has("TotalDurationNs")) {
    times = from_stats(parse_csv(text, source, "TotalDurationNs"));
  } else if (has("Metric Name")) {
    times = from_ncu_details(text, source);
  } else if (has(ncu_duration)) {
    times = from_ncu_raw(parse_csv(text, source, ncu_duration));
  } else {
    refuse(source + " is no kernel trace, kernel stats (rocprofv3 -f csv) or ncu --csv file");
  }
  if (times.kernels.empty()) refuse(source + " holds no kernel time");
  return times;
}

KernelTimes read_kernel_times(const std::string& path) { return parse_kernel_times(read_file(path), path); }

std::vector<KernelTime> matching(const KernelTimes& times, const std::string& regex, const std::string& source) {
  std::vector<KernelTime> found;
  std::regex pattern;
  try {
    pattern = std::regex(regex);
  } catch (const std::regex_error& error) {
    refuse(fmt::format("'{}' is no regular expression: {}", printable(regex), error.what()));
  }
  for (const KernelTime& kernel : times.kernels) {
    if (regex.empty() || std::regex_search(kernel.name.substr(0, 4000), pattern)) found.push_back(kernel);
  }
  if (found.empty()) refuse(fmt::format("no kernel of {} matches '{}'", source, printable(regex)));
  return found;
}

}  // namespace tilewave::tool
