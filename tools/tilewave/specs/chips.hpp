// SPDX-License-Identifier: MIT
// The numbers of docs/reference/hardware.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tilewave::tool {

struct Spec {
  std::string key, unit, source, citation;  // source: the short name; citation: the line it stands for
  std::optional<double> value;              // nothing: UNKNOWN
  std::size_t line = 0;
};

struct Chip {
  std::string name, arch, file;
  std::vector<Spec> specs;  // in the file's order

  const Spec& find(std::string_view key) const;  // refuses, naming the keys there are
  /// Returns the value in this unit. Throws Exit::unknown where the value is UNKNOWN, and refuses another unit.
  double need(std::string_view key, std::string_view unit) const;
};

/// Refuses anything but "# NAME", "Architecture: ARCH", a table of key, value, unit, source, and a list of the sources; a
/// value that is neither a number nor UNKNOWN; a unit or source that is empty or not listed; a key twice.
Chip parse_chip(std::string_view text, const std::string& file);

/// Returns all chips of a folder, or those that this program was built with.
std::vector<Chip> all_chips(const std::string& folder = {});

/// Returns the chip of this name, or for an architecture the one that ArchFacts describes (MI300X, MI350X, H200).
const Chip& chip_of(const std::vector<Chip>& chips, std::string_view name);

/// Name and text of the files of docs/reference/hardware, put in when the program was built.
const std::vector<std::pair<std::string, std::string>>& hardware_files();

}  // namespace tilewave::tool
