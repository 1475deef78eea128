// SPDX-License-Identifier: MIT
#pragma once

#include <map>
#include <string>
#include <vector>

#include "tools/tilewave/compare/compare.hpp"

namespace tilewave::tool {

std::string text_report(const Comparison& comparison, const std::string& metric);
std::string json_report(const Comparison& comparison, const std::string& metric);

/// Returns the kernel that each class uses if both are kept: "block_size=16: candidate, ENTRY" where it gains, else
/// "...: base, ENTRY".
std::vector<std::string> routes_of(const Comparison& comparison);

/// Ratio by class of the classes that tied, from the JSON of an earlier comparison; none if that was kept: what was kept is
/// in the baseline since.
std::map<std::string, double> ratios_of(std::string_view json, const std::string& source);
/// Ratio of the GPU kernel times, if it has them, was a tie, and they decided for nothing.
std::optional<double> kernel_ratio_of(std::string_view json, const std::string& source);

}  // namespace tilewave::tool
