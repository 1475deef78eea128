// SPDX-License-Identifier: MIT
// Checks whether a gain of an op that routes tokens holds where the experts' loads differ.
#pragma once

#include <string>

#include "tools/tilewave/compare/compare.hpp"

namespace tilewave::tool {

/// Experts or groups: moe_*, *grouped*.
bool is_routed(const std::string& op);

/// Returns the verdict on the rows of skewed routing: those whose column routing, skew, distribution or groups is not
/// balanced. It is empty if there are none.
std::string skewed_rows(const Csv& base, const Csv& cand, const std::string& metric, double tie_pct, bool& holds);

}  // namespace tilewave::tool
