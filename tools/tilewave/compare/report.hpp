// SPDX-License-Identifier: MIT
#pragma once

#include <map>
#include <string>

#include "tools/tilewave/compare/compare.hpp"

namespace tilewave::tool {

std::string text_report(const Comparison& comparison, const std::string& metric);
std::string json_report(const Comparison& comparison, const std::string& metric);

/// Ratio by class, from the JSON of an earlier comparison.
std::map<std::string, double> ratios_of(std::string_view json, const std::string& source);

}  // namespace tilewave::tool
