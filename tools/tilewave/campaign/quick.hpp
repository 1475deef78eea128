// SPDX-License-Identifier: MIT
// quick_test_bench.sh: of each class one config, run and checked before the whole benchmark.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tools/tilewave/common/csv.hpp"

namespace tilewave::tool {

/// A row as our benchmarks' --config takes it: column=value/column=value.
std::string config_words(const Csv& csv, std::size_t row);

/// A benchmark command of ours (a program bench_*) that runs the one config "$1" instead of its sweep; nothing for a command
/// of another kind.
std::optional<std::string> quick_form(const std::string& benchmark_command);

/// The script; before the baseline there are no configs, and it does nothing.
std::string quick_script(const std::string& benchmark_command, const std::vector<std::string>& configs);

}  // namespace tilewave::tool
