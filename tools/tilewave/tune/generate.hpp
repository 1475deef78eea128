// SPDX-License-Identifier: MIT
#pragma once

#include <filesystem>
#include <string>

#include "tools/tilewave/tune/tune.hpp"

namespace tilewave::tool {

struct GenerateOptions {
  std::string op, arch, preset = "host", sources = ".";
  int rounds = 0, around = 2, jobs = 2;
};

struct Generated {
  std::string header;  // OP_generated.hpp, as cmake/TilewaveEntries.cmake takes it
  std::size_t policies = 0;
};

/// Policies one step away from the `around` best of each config that are not among those tried; which of them fit a spec,
/// the header finds out when it is compiled. None may be new.
Generated generate(const Csv& tried, const Tuned& tuned, const std::string& op, int around);

/// The path of a benchmark that has the header's candidates and no others, built in a folder of its own.
std::string build_generated(const std::filesystem::path& folder, const std::string& header, const GenerateOptions& o);

/// The benchmark's command with another program. Refuses one that does not begin with the op's own, after words like
/// `nice -n 5`.
std::string with_program(const std::string& command, const std::string& op, const std::string& program);

}  // namespace tilewave::tool
