// SPDX-License-Identifier: MIT
#include "tools/tilewave/specs/chips.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "tools/tilewave/common/error.hpp"
#include "tools/tilewave/common/text.hpp"

namespace tilewave::tool {

const Spec& Chip::find(std::string_view key) const {
  std::vector<std::string> keys;
  for (const Spec& spec : specs) {
    if (spec.key == key) return spec;
    keys.push_back(spec.key);
  }
  refuse(fmt::format("{} has no '{}'; it has: {}", name, printable(key), join(keys, " ")));
}

double Chip::need(std::string_view key, std::string_view unit) const {
  const Spec& spec = find(key);
  if (!spec.value) {
    throw Error(Exit::unknown, fmt::format("{}: UNKNOWN, {}:{}: {}", key, file, spec.line, spec.citation));
  }
  if (spec.unit != unit) refuse(fmt::format("{}:{}: {} is in {}, not {}", file, spec.line, key, spec.unit, unit));
  return *spec.value;
}

namespace {

/// The cells of "| a | b |"; nothing for another line.
std::vector<std::string> cells_of(std::string_view line) {
  line = trim(line);
  if (line.size() < 2 || !line.starts_with('|') || !line.ends_with('|')) return {};
  return split(line.substr(1, line.size() - 2), '|');
}

bool is_rule(const std::vector<std::string>& cells) {
  return std::all_of(cells.begin(), cells.end(),
                     [](const std::string& c) { return c.find_first_not_of("-:") == std::string::npos; });
}

Spec spec_of(const std::vector<std::string>& cells, const std::string& where) {
  if (cells.size() != 4) refuse(fmt::format("{}: {} cells instead of key, value, unit, source", where, cells.size()));
  Spec spec;
  spec.key = cells[0], spec.unit = cells[2], spec.source = cells[3];
  if (spec.key.empty() || spec.unit.empty() || spec.source.empty())
    refuse(where + ": a number needs a key, a unit and a source");
  if (cells[1] != "UNKNOWN") {
    spec.value = number(cells[1]);
    if (!spec.value || !std::isfinite(*spec.value) || *spec.value < 0) {
      refuse(fmt::format("{}: '{}' is neither a number nor UNKNOWN", where, printable(cells[1])));
    }
  }
  return spec;
}

}  // namespace

Chip parse_chip(std::string_view text, const std::string& file) {
  Chip chip;
  chip.file = file;
  std::map<std::string, std::string> citations;
  bool in_table = false, in_sources = false;
  const auto lines = lines_of(text);
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const std::string& line = lines[i];
    const std::string where = fmt::format("{}:{}", file, i + 1);
    const auto cells = cells_of(line);
    if (line.starts_with("# ") && chip.name.empty()) {
      chip.name = trim(std::string_view(line).substr(2));
    } else if (line.starts_with("Architecture: ")) {
      chip.arch = trim(std::string_view(line).substr(14));
    } else if (line.starts_with("## ")) {
      in_sources = line == "## Sources", in_table = false;
    } else if (in_sources && line.starts_with("- ")) {
      const std::size_t colon = line.find(": ");
      if (colon == std::string::npos || trim(std::string_view(line).substr(colon + 2)).empty())
        refuse(where + ": a source is '- name: where it is found'");
      citations[line.substr(2, colon - 2)] = trim(std::string_view(line).substr(colon + 2));
    } else if (cells == std::vector<std::string>{"key", "value", "unit", "source"}) {
      in_table = true;
    } else if (in_table && !cells.empty() && !is_rule(cells)) {
      Spec spec = spec_of(cells, where);
      spec.line = i + 1;
      for (const Spec& other : chip.specs) {
        if (other.key == spec.key) refuse(fmt::format("{}: {} stands in line {} already", where, spec.key, other.line));
      }
      chip.specs.push_back(spec);
    }
  }
  if (chip.name.empty()) refuse(file + " has no '# NAME'");
  if (chip.arch.empty()) refuse(file + " has no 'Architecture: '");
  if (chip.specs.empty()) refuse(file + " has no table of key, value, unit, source");
  for (Spec& spec : chip.specs) {
    const auto found = citations.find(spec.source);
    if (found == citations.end())
      refuse(fmt::format("{}:{}: source '{}' is not in the list of sources", file, spec.line, printable(spec.source)));
    spec.citation = found->second;
  }
  return chip;
}

std::vector<Chip> all_chips(const std::string& folder) {
  std::vector<Chip> chips;
  if (folder.empty()) {
    for (const auto& [name, text] : hardware_files())
      chips.push_back(parse_chip(text, "docs/reference/hardware/" + name));
    return chips;
  }
  std::error_code error;
  std::vector<std::string> paths;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    if (entry.path().extension() == ".md" && entry.path().filename() != "README.md")
      paths.push_back(entry.path().string());
  }
  if (error) refuse(fmt::format("cannot read {}: {}", folder, error.message()));
  std::sort(paths.begin(), paths.end());
  for (const std::string& path : paths) chips.push_back(parse_chip(read_file(path), path));
  if (chips.empty()) refuse(folder + " has no NAME.md");
  return chips;
}

const Chip& chip_of(const std::vector<Chip>& chips, std::string_view name) {
  static const std::map<std::string, std::string> of_arch{{"gfx942", "mi300x"}, {"gfx950", "mi350x"}, {"sm90", "h200"}};
  const auto arch = of_arch.find(lower(name));
  const std::string wanted = arch == of_arch.end() ? lower(name) : arch->second;
  std::vector<std::string> names;
  for (const Chip& chip : chips) {
    if (lower(chip.name) == wanted) return chip;
    names.push_back(chip.name);
  }
  refuse(fmt::format("no chip '{}': one of {} or gfx942, gfx950, sm90", printable(name), join(names, ", ")));
}

}  // namespace tilewave::tool
