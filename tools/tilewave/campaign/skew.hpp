// SPDX-License-Identifier: MIT
// Whether a gain of an op that routes tokens holds where the experts' shares differ.
#pragma once

#include <string>

#include "tools/tilewave/compare/compare.hpp"

namespace tilewave::tool {

/// Experts or groups: moe_*, *grouped*.
bool is_routed(const std::string& op);

/// What the rows of skewed routing show: those whose column routing, skew, distribution or groups says something other
/// than balanced. Empty if there are none.
std::string skewed_rows(const Csv& base, const Csv& cand, const std::string& metric, double tie_pct, bool& holds);

}  // namespace tilewave::tool
