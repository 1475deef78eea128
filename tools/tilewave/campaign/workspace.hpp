// SPDX-License-Identifier: MIT
// execution_mode workspace: a small repository of the kernel, its tests and its benchmark, taken out of the project, and the
// way back.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "tools/tilewave/campaign/manifest.hpp"
#include "tools/tilewave/campaign/state.hpp"

namespace tilewave::tool {

/// Paths of the project's HEAD, files or folders, for each part of the stack.
struct WorkspaceParts {
  std::vector<std::string> src, tests, bench;
};

/// Makes FOLDER/stack, a git repository with src/, tests/ and bench/, whose file UPSTREAM says from which commit which files
/// are. The manifest's repository, worktree and sources are then those of the stack.
void make_workspace(Manifest& manifest, const std::filesystem::path& folder, const WorkspaceParts& parts);

/// FOLDER/integrate.patch: what src/ gained from the baseline to the best version, as a patch of the project. Refuses
/// (Exit::conflict) one that its checkout would not take; the checkout is not touched.
std::filesystem::path integrate(const Manifest& manifest, const State& state, const std::filesystem::path& folder);

}  // namespace tilewave::tool
