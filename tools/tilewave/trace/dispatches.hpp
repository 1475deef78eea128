// SPDX-License-Identifier: MIT
// The launches that rocprofv3 recorded, whichever of its formats they come in.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace tilewave::tool {

/// One launch.
struct Dispatch {
  std::string kernel;
  std::string queue;  // of which process, agent and queue; empty: not in the file
  std::int64_t begin_ns = 0, end_ns = 0;
  std::map<std::string, double> launch;  // as KernelTime has it
};

/// One counter of one pass over one dispatch. A dispatch that is replayed, or that several passes count, has several
/// values of the same counter.
struct CounterRow {
  std::string kernel, counter;
  std::string pass, folder;       // pmc_1, pass_2, ... or empty; the rest of the folder
  std::string process, dispatch;  // dispatches are numbered in each process
  double value = 0;
};

struct Recording {
  std::vector<Dispatch> dispatches;
  std::vector<CounterRow> counters;
};

/// *_results.json of rocprofv3 (-f json). Refuses what has its key and not its form; anything else holds nothing.
Recording parse_results_json(std::string_view json, const std::string& source);

/// *_results.db of rocprofv3 (-f rocpd, its default): SQLite, schema rocpd 3. Refuses what is no such database.
Recording read_results_db(const std::string& path);

}  // namespace tilewave::tool
