// SPDX-License-Identifier: MIT
// Measures every legal candidate of a benchmark, in chunks that can be interrupted, distributed and merged again.
#pragma once

#include <algorithm>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "tools/tilewave/common/csv.hpp"

namespace tilewave::tool {

struct TuneRun {
  std::filesystem::path folder;
  std::string benchmark;      // shell command; gets --benchmark_list_tests, --benchmark_filter and --benchmark_format
  int chunk_rows = 16;        // of one process
  int patience = 0;           // so many candidates in a row that are slower end a config; 0: none does
  std::string metric = "us";  // by which they are
  int shard = 1, shards = 1;  // this takes every shards-th chunk, from the shard-th on
  int workers = 1;            // processes at a time, each on a GPU of its own if gpus is set
  bool gpus = false;
  double retry_s = 600, limit_s = 3600, timeout_s = 3600;
};

struct TuneProgress {
  std::size_t chunks = 0, done = 0, failed = 0;  // of the shard
  std::size_t left = 0;                          // of those that are done: not measured, since their config had ended
};

/// Measures what is not there yet. The plan, written by the first run, is the list of rows; a benchmark that lists others
/// is refused. A chunk is there when its CSV is, which has exactly its rows, or a .left, which says that its config had ended.
/// With patience no chunk has rows of two configs (names without what follows the last '/'), of which a benchmark lists
/// candidates in the order of its cost model.
TuneProgress run_tune(const TuneRun& options);

/// True if the last `patience` rows are all wrong, or slower than the fastest before them by more than both times'
/// noise.
bool has_ended(const Csv& rows, int patience, const std::string& metric);

/// "i/n" with 1 <= i <= n.
std::pair<int, int> parse_shard(const std::string& text);

/// Returns a --benchmark_filter that matches these names and no longer ones.
std::string filter_of(const std::vector<std::string>& names);

/// Returns the folder of round 1, 2, ... of what --generate made.
inline std::filesystem::path generated_folder(const std::filesystem::path& folder, int round) {
  return folder / ("generated-" + std::to_string(round));
}

struct Tried {
  std::string policy, entry;
  double us = 0;
  bool right = false;
  std::size_t row = 0;  // of the CSV
  double rank = 0;      // by what it is fast or slow: us, or where by_cycles says so that at one clock
};

struct TunedConfig {
  std::string config, group;
  std::vector<Tried> tried;             // fastest right one first
  std::optional<double> selected_us{};  // what the library would have taken
  bool by_cycles = false;               // modelled rows, ranked at one clock
  std::optional<double> selected_rank{};
};

struct TunedClass {
  std::string name;
  std::size_t configs = 0, tried = 0, wrong = 0;
  std::string policy;                   // best over all its configs that all of them have; empty: none has
  double loss = 1;                      // its time over that of each config's own best, geometric mean
  std::optional<double> selected_loss;  // the same of the library's choice
};

struct Tuned {
  std::vector<TunedConfig> configs;
  std::vector<TunedClass> classes;
  bool by_cycles() const {
    return std::any_of(configs.begin(), configs.end(), [](const TunedConfig& c) { return c.by_cycles; });
  }
};

/// Merges all chunks of folders with the same plan, and of what --generate made in them, into one CSV. Refuses an
/// incomplete plan (unless partial) and other columns.
Csv gather(const std::vector<std::string>& folders, bool partial);

/// Refuses rows without a time, and a candidate that was measured twice for one config.
/// `metric`: the column of the time, us or that of a model.
Tuned judge_tuning(const Csv& tried, const Csv* selected, const std::vector<std::string>& by,
                   const std::string& metric = "us");

struct TunedSource {
  std::string op, arch, device, commit, csv, benchmark;
  double least_gain = 0;  // over the library's own choice, where that is known
};

/// The text of include/tilewave/ops/<op>/tuned/<arch>.hpp: the best right candidate of each config, neighbours in M (gemm) or in
/// context (paged_attention) that chose the same as one. Refuses configs of which a part was launched, and words that are none.
std::string tuned_header(const Csv& tried, const Tuned& tuned, const TunedSource& source);

/// The text of include/tilewave/ops/<op>/tuned/tables.hpp, by which calls of the library look into the tables of these
/// architectures.
std::string tuned_tables(const std::string& op, const std::vector<std::string>& archs);

}  // namespace tilewave::tool
