// SPDX-License-Identifier: MIT
// Reports of many ops, ranked.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "tools/tilewave/common/csv.hpp"
#include "tools/tilewave/common/json.hpp"
#include "tools/tilewave/trace/profile.hpp"

namespace tilewave::tool {

struct LibraryPage {
  std::string op, report, hint, ran;  // the first recommendation; the command of capture.sh
  std::string table;                  // of bench.csv's rows, as lines of Markdown
  std::optional<double> of_roof;      // roof over time, geometric mean over the rows of bench.csv
  std::size_t rows = 0;
  std::optional<double> stalled;  // of the latency of traced instructions
  bool modelled = false;
};

/// Makes the page of a folder that a profiler wrote, as read_profile takes it. It may also have bench.csv, the rows
/// that ran, and capture.sh, which made it.
LibraryPage library_page(const std::filesystem::path& folder, const Chip* chip, std::size_t top);

/// The page that ranks them, in this order, and the same as JSON.
std::string library_index(const std::vector<LibraryPage>& pages, const std::string& note = "");
Json library_json(const std::vector<LibraryPage>& pages);

struct LibraryOptions {
  std::string from, out;  // a folder for each op; OUT/<op>/REPORT.md and OUT/README.md
  bool capture = false;   // run each capture.sh before
  std::string note{};     // device, date, commit: on every page
  std::string benches{};  // folder of our benchmarks, or empty: what `from` holds is prepared by prepare_library
  std::string profiler = "model", arch = "gfx950";
  // A benchmark runs the first that it has rows of: a dense model's decode step, one of experts, of its own sweep what is
  // no ceiling and no prefill.
  std::vector<std::string> configs{"--model=llama3-70b --tp=8 --batch=64", "--model=gpt-oss-120b --batch=64",
                                   "--benchmark_filter='^(vec_add|paged)/'"};
  std::size_t top = 15;
  double timeout_s = 3600;
};
/// The name of the row that takes longest, as --benchmark_filter knows it. Refuses where none has a time.
std::string slowest_row(const Csv& csv, const std::string& metric);
/// A folder in `from` for each benchmark: the rows of a configuration, and of the one that takes longest by modelled time the
/// trace, by a profiler the capture.sh that records it. The ops that have no row of any configuration come back; refuses where
/// none has, as without the GPU that the benchmarks are built for.
std::vector<std::string> prepare_library(const LibraryOptions& options);
/// The ops there were, most headroom first.
std::vector<LibraryPage> write_library(const LibraryOptions& options, const Chip* chip);

}  // namespace tilewave::tool
