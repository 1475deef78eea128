// SPDX-License-Identifier: MIT
// The input for the next proposal: the profile of the best version, the last measurements, and the distance to the
// roof.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "tools/tilewave/campaign/manifest.hpp"
#include "tools/tilewave/campaign/state.hpp"

namespace tilewave::tool {

/// Reads the profile of a folder into the round (hottest kernel, what it takes, bottlenecks) and writes REPORT.md there.
void take_profile(const std::filesystem::path& folder, const Manifest& manifest, Round& round);

/// Returns the text for $TILEWAVE_FEEDBACK: hint of stagnation, last round, a split that is to become a dispatch, hot
/// spots, and the memory's pitfalls that are not masked.
std::string feedback_of(const State& state, const std::filesystem::path& campaign);

/// plans/v<N>_plan.md: the rounds that aim at version N, each with hypothesis, evidence and outcome.
std::string plan_md(const State& state, int version);

}  // namespace tilewave::tool
