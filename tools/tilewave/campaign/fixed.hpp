// SPDX-License-Identifier: MIT
// Files that no candidate may touch: everything that its verdict rests on.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace tilewave::tool {

/// Benchmarks, tests and their shapes; the tools, with the simulator whose clock gives modelled times; the reference, the
/// emulated device and the contracts that results are held against; how all of it is built; what git ignores.
const std::vector<std::string>& default_fixed();

/// True if a file is a fixed path, lies in one, or matches one with '*' or '?', which also match '/'.
bool is_fixed(const std::string& fixed, const std::string& file);

/// The words of shell commands that may be paths, also behind a '=' of an option.
std::vector<std::string> paths_in(const std::vector<std::string>& commands);

}  // namespace tilewave::tool
