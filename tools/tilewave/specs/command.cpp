// SPDX-License-Identifier: MIT
#include "tools/tilewave/common/command.hpp"

#include <fmt/format.h>

#include <memory>

#include "tools/tilewave/common/error.hpp"
#include "tools/tilewave/common/json.hpp"
#include "tools/tilewave/common/text.hpp"
#include "tools/tilewave/specs/chips.hpp"

namespace tilewave::tool {

namespace {

struct Options {
  std::string chip, key, folder;
  bool json = false;
};

std::string shown(const Spec& spec) { return spec.value ? fmt::format("{}", *spec.value) : "UNKNOWN"; }

int run(const Options& o) {
  const auto chips = all_chips(o.folder);
  if (o.chip.empty()) {
    if (!o.key.empty()) throw Error(Exit::usage, "--key needs a chip");
    std::vector<std::vector<std::string>> table{{"chip", "arch", "numbers", "UNKNOWN", "file"}};
    Json list = Json::array();
    for (const Chip& chip : chips) {
      std::vector<std::string> unknown;
      for (const Spec& spec : chip.specs) {
        if (!spec.value) unknown.push_back(spec.key);
      }
      table.push_back({chip.name, chip.arch, std::to_string(chip.specs.size()), join(unknown, " "), chip.file});
      list.push_back({{"chip", chip.name}, {"arch", chip.arch}, {"unknown", unknown}, {"file", chip.file}});
    }
    fmt::print("{}", o.json ? dump({{"schema", "tilewave.specs/1"}, {"chips", list}}) : text_table(table));
    return 0;
  }
  const Chip& chip = chip_of(chips, o.chip);
  if (!o.key.empty()) {  // for a script: the number alone, or no success
    const Spec& spec = chip.find(o.key);
    const double value = chip.need(o.key, spec.unit);
    fmt::print("{}", o.json ? dump({{"schema", "tilewave.specs/1"},
                                    {"chip", chip.name},
                                    {"key", spec.key},
                                    {"value", value},
                                    {"unit", spec.unit},
                                    {"source", fmt::format("{}:{}", chip.file, spec.line)}})
                            : fmt::format("{}: {} {} <- {}:{}\n", spec.key, value, spec.unit, chip.file, spec.line));
    return 0;
  }
  Json list = Json::array();
  std::string text = fmt::format("{} ({})\n", chip.name, chip.arch);
  std::vector<std::vector<std::string>> table;
  for (const Spec& spec : chip.specs) {
    table.push_back({spec.key, shown(spec), spec.unit, fmt::format("<- {}:{}", chip.file, spec.line), spec.citation});
    list.push_back({{"key", spec.key},
                    {"value", spec.value ? Json(*spec.value) : Json("UNKNOWN")},
                    {"unit", spec.unit},
                    {"source", fmt::format("{}:{}", chip.file, spec.line)},
                    {"citation", spec.citation}});
  }
  fmt::print("{}",
             o.json ? dump({{"schema", "tilewave.specs/1"}, {"chip", chip.name}, {"arch", chip.arch}, {"specs", list}})
                    : text + text_table(table));
  return 0;
}

}  // namespace

void add_specs(Command& tilewave) {
  auto o = std::make_shared<Options>();
  Command sub =
      tilewave.add("specs", "the numbers of a chip, each with unit and source; UNKNOWN where there is no source");
  sub.option(
      "CHIP", o->chip,
      "MI300X, MI300A, MI308X, MI325X, MI350X, MI355X, H20, H100, H200, or gfx942, gfx950, sm90 (default: list them)");
  sub.option("--key", o->key, "this number alone; exit status 3 if it is UNKNOWN");
  sub.option("--hardware", o->folder, "folder to read instead of the docs/reference/hardware this was built with");
  sub.flag("--json", o->json, "the report as JSON");
  sub.example("  tilewave specs gfx950 --key hbm_bandwidth");
  sub.run([o] { return run(*o); });
}

}  // namespace tilewave::tool
