// SPDX-License-Identifier: MIT
// Stop Conditions of a campaign: what the chip allows its rows, computed from docs/reference/hardware.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tools/tilewave/campaign/manifest.hpp"
#include "tools/tilewave/campaign/state.hpp"
#include "tools/tilewave/common/csv.hpp"
#include "tools/tilewave/roofline/roofline.hpp"

namespace tilewave::tool {

struct StopConditions {
  std::optional<Chip> chip;
  std::optional<Roof> roof;  // nothing: `none` says why
  std::string none;
  std::vector<Point> rows;  // with a time and a place under the roof
  double share = 0;         // of the roof, geometric mean of the rows
};

/// Returns the targets from the baseline's rows. A number that is UNKNOWN, or rows without flops and bytes, make no
/// roof.
StopConditions stop_conditions(const Manifest& manifest, const Csv& rows);

/// The roof of these rows, for a target in % of it.
std::optional<Roof> roof_for(const Manifest& manifest, const Csv& rows);

/// README.md of a campaign: its task, the hardware's numbers, each with its source, the roofline and the Stop Conditions.
std::string readme_md(const Manifest& manifest, const StopConditions& conditions);

/// baseline_report.md: times by class, what the hottest kernel takes and waits for, and how far each row is from its target.
std::string baseline_report_md(const Manifest& manifest, const Round& baseline, const StopConditions& conditions);

}  // namespace tilewave::tool
