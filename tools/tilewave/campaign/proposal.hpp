// SPDX-License-Identifier: MIT
#pragma once

#include <string>
#include <string_view>

#include "tools/tilewave/campaign/state.hpp"

namespace tilewave::tool {

/// Parses the text that the command of `campaign run` writes to $TILEWAVE_PROPOSAL: {"hypothesis": ..., "bucket": "K1"}
/// and optionally target, direction, tip, lesson, pitfalls_and_fixes, real_gain_pct, hit_rate.
Proposal parse_proposal(std::string_view json, const std::string& source);

}  // namespace tilewave::tool
