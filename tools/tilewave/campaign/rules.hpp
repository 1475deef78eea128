// SPDX-License-Identifier: MIT
// Consequences of a round: counters, stop rules, hints. Nothing here touches files.
#pragma once

#include <string>

#include "tools/tilewave/campaign/manifest.hpp"
#include "tools/tilewave/campaign/state.hpp"
#include "tools/tilewave/common/csv.hpp"
#include "tools/tilewave/roofline/roofline.hpp"

namespace tilewave::tool {

inline constexpr int max_fix_attempts = 3, max_regressions = 5;

/// Takes over the finished round: a regression (discard) counts, anything else resets; a keep is the new best.
void conclude_round(State& state, const Round& round);

/// Why to stop now, or empty: five regressions in a row, max_iterations, the target reached.
std::string stop_reason(const State& state, const Manifest& manifest, const Csv* best, const Roof* roof = nullptr);

/// Returns what to change after two rollbacks in a row; empty before.
std::string stagnation_hint(const State& state);

/// "roof" as a performance_target: this share of the roof.
inline constexpr const char* roof_target = "roof";
inline constexpr double roof_share = 0.9;

/// True if the rows reach "roof", "> 500 TFLOPS", "> 60 %", "> 3000 GB/s" or "< 12 us" in the geometric mean; null is
/// never reached. Refuses another form, and rows that cannot reach it because they have no such number. `metric` is the
/// column of the time; `roof` is that of the chip, for the share that modelled rows reach.
bool target_reached(const std::string& target, const Csv& rows, const std::string& metric = "us",
                    const Roof* roof = nullptr);

}  // namespace tilewave::tool
