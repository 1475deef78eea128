// SPDX-License-Identifier: MIT
// What follows from a round: counters, stop rules, hints. Nothing here touches files.
#pragma once

#include <string>

#include "tools/tilewave/campaign/manifest.hpp"
#include "tools/tilewave/campaign/state.hpp"
#include "tools/tilewave/common/csv.hpp"

namespace tilewave::tool {

inline constexpr int max_fix_attempts = 3, max_regressions = 5;

/// Takes over the finished round: a regression (discard) counts, anything else resets; a keep is the new best.
void conclude_round(State& state, const Round& round);

/// Why to stop now, or empty: five regressions in a row, max_iterations, the target reached.
std::string stop_reason(const State& state, const Manifest& manifest, const Csv* best);

/// What to change after two rollbacks in a row; empty before.
std::string stagnation_hint(const State& state);

/// Whether the rows reach "> 500 TFLOPS", "> 60 %", "> 3000 GB/s" or "< 12 us" in the geometric mean; null never does.
/// Refuses another form. `metric`: the column of the time, which "us" then is.
bool target_reached(const std::string& target, const Csv& rows, const std::string& metric = "us");

}  // namespace tilewave::tool
