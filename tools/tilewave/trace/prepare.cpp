// SPDX-License-Identifier: MIT
// Makes the input of `trace library` from our own benchmarks: a folder for each, by a profiler or by the simulator's
// clock.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "tools/tilewave/common/error.hpp"
#include "tools/tilewave/common/process.hpp"
#include "tools/tilewave/common/text.hpp"
#include "tools/tilewave/trace/library.hpp"
#include "tools/tilewave/trace/ncu.hpp"
#include "tools/tilewave/tune/tune.hpp"

namespace tilewave::tool {

namespace fs = std::filesystem;

namespace {

/// bench_OP of a folder, by op; other names of a program are links, and no op of their own.
std::vector<std::pair<std::string, fs::path>> benches_of(const std::string& folder) {
  std::vector<std::pair<std::string, fs::path>> found;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with("bench_") && name.find('.') == name.npos && entry.is_regular_file() && !entry.is_symlink())
      found.emplace_back(name.substr(6), entry.path());
  }
  if (error) refuse("cannot read " + folder + ": " + error.message());
  if (found.empty()) refuse(folder + " holds no bench_OP");
  std::sort(found.begin(), found.end());
  return found;
}

/// A configuration that a benchmark does not know, or that needs none of its calls, is no fault: the op has no folder then.
bool runs(const std::string& command, const fs::path& out, const LibraryOptions& o) {
  ProcessOptions p;
  p.timeout_s = o.timeout_s, p.out_path = out.string(), p.quiet = true;
  const ProcessResult result = run_shell(command, p);
  if (result.status == 2) return false;
  if (result.status != 0) throw Error(Exit::failed, fmt::format("{}: exit status {}", command, result.status));
  return true;
}

}  // namespace

std::string slowest_row(const Csv& csv, const std::string& metric) {
  const std::size_t name = csv.need("name"), time = csv.need(metric);
  double most = 0;
  std::string row;
  for (std::size_t r = 0; r < csv.rows.size(); ++r) {
    const double us = csv.need_number(r, time);
    if (std::isfinite(us) && us > most) most = us, row = csv.rows[r][name];
  }
  if (row.empty()) refuse(csv.source + ": no row has a time");
  return row.substr(0, row.find("/iterations:"));
}

/// Kernels of the ops, not those that flush caches (Traffic), of which a benchmark launches hundreds, and each is run forty
/// times.
constexpr const char* kernels_of_ops = "entry<tilewave::([A-SU-Z]|Top)";
/// Launches: a row's are two or three, each a few times.
constexpr int recorded_launches = 4;

std::vector<std::string> prepare_library(const LibraryOptions& o) {
  std::vector<std::string> left_out;
  const auto benches = benches_of(o.benches);
  for (const auto& [op, program] : benches) {
    const fs::path folder = fs::path(o.from) / op, csv = folder / "bench.csv", script = folder / "capture.sh";
    const bool modelled = o.profiler == "model";
    const auto with = [&](const std::string& config) {
      return fmt::format("{}{}{}{} --benchmark_format=csv", shell_word(program.string()), config.empty() ? "" : " ",
                         config, modelled ? " --arch=" + o.arch + " --model-time" : "");
    };
    fs::create_directories(folder);
    std::string rows;
    for (const std::string& config : o.configs) {
      rows = with(config);
      if (runs(rows, csv, o)) break;
      rows.clear();
    }
    if (rows.empty()) {
      left_out.push_back(op), fs::remove_all(folder);
      continue;
    }
    // It is the row that takes longest. A second filter would replace the first, which is wider.
    const std::string row =
        fmt::format("{} --benchmark_filter={}", rows,
                    shell_word(filter_of({slowest_row(read_csv(csv.string(), "name"), modelled ? "model_us" : "us")})));
    const std::string in = shell_word(folder.string());
    if (!modelled) {
      const std::string recorded = row + " --max-seconds=0";
      const std::string profiler =
          o.profiler == "ncu"
              ? ncu_script(kernels_of_ops, fmt::format("--launch-count {} ", recorded_launches), recorded, in)
              : fmt::format("rocprofv3 --kernel-trace --stats -f csv -d {} -o out -- {} >{}/out.log\n", in, recorded,
                            in);
      write_atomically(script, fmt::format("#!/bin/sh\n# Needs the GPU to itself: tilewave gpu wait -- sh capture.sh\n"
                                           "set -e\n{}",
                                           profiler));
      continue;
    }
    const std::string traced = row + " --model-trace=" + shell_word((folder / "trace").string());
    fs::remove_all(folder / "trace");
    fs::create_directories(folder / "trace");
    if (!runs(traced, folder / "trace" / "row.csv", o)) throw Error(Exit::failed, traced + ": exit status 2");
    write_atomically(script, "#!/bin/sh\n" + traced + "\n");
  }
  if (left_out.size() == benches.size())
    refuse(fmt::format("no benchmark of {} ran a row of {}: each ends with 2", o.benches, join(o.configs, ", ")));
  return left_out;
}

}  // namespace tilewave::tool
