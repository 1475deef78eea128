// SPDX-License-Identifier: MIT
// memory/v<N>.json: what each accepted version taught. A masked one is as if it were not there.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "tools/tilewave/campaign/state.hpp"

namespace tilewave::tool {

/// Writes v<N>.json of an accepted round unless it is there; one that is there must be readable.
void write_memory(const std::filesystem::path& folder, int version, const Round& round,
                  const std::vector<std::string>& pitfalls = {});
void mask_memory(const std::filesystem::path& folder, int version, bool masked);

/// True if the text of a memory file is masked; refuses text that is no memory file.
bool is_masked(std::string_view json, const std::string& source);

/// Spares the disk, and whoever watches the file.
void write_if_other(const std::filesystem::path& path, std::string_view content);

}  // namespace tilewave::tool
