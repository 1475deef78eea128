// SPDX-License-Identifier: MIT
#include "tools/tilewave/common/command.hpp"

#include <fmt/format.h>

#include <filesystem>
#include <memory>

#include "tools/tilewave/common/error.hpp"
#include "tools/tilewave/common/text.hpp"
#include "tools/tilewave/report/page.hpp"

namespace tilewave::tool {

namespace {

struct Options {
  std::vector<std::string> csvs, compares, campaigns, tables, ledgers, isa;
  std::string out, title = "Kernel performance", arch, peak = "bf16", by, hardware, time = "us";
};

int run(const Options& o) {
  std::vector<std::string> sections;
  const std::vector<std::string> by = o.by.empty() ? std::vector<std::string>{} : split(o.by, ',');
  std::vector<Chip> chips;
  if (!o.arch.empty()) chips = all_chips(o.hardware);
  for (const std::string& file : o.csvs) {
    const Csv csv = read_csv(file, o.time);
    std::optional<Roof> roof;  // of the rows' own chip
    if (!o.arch.empty()) roof = roof_of(chip_of_rows(chips, o.arch, csv, o.time), o.peak);
    sections.push_back(summary_html(csv, by, roof ? &*roof : nullptr, o.time));
  }
  if (o.compares.size() % 2 != 0) refuse("--compare takes a baseline and a candidate");
  for (std::size_t i = 0; i < o.compares.size(); i += 2) {
    CompareOptions options;
    options.by = by, options.map.us = o.time;
    sections.push_back(
        comparison_html(o.compares[i], o.compares[i + 1],
                        compare(read_csv(o.compares[i], o.time), read_csv(o.compares[i + 1], o.time), options)));
  }
  for (const std::string& folder : o.campaigns) {
    const auto file = (std::filesystem::path(folder) / "state.json").string();
    sections.push_back(
        campaign_html(std::filesystem::path(folder).filename().string(), parse_state(read_file(file), file)));
  }
  for (const std::string& file : o.ledgers) sections.push_back(ledger_html(read_csv(file, "kernel")));
  for (const std::string& file : o.isa) sections.push_back(isa_html(parse_tables(read_file(file), file)));
  for (const std::string& file : o.tables) sections.push_back(table_html(read_csv(file)));
  if (sections.empty()) refuse("report has nothing to show: --csv, --compare, --campaign, --ledger, --isa or --table");
  write_atomically(o.out, page_html(o.title, sections));
  return 0;
}

}  // namespace

void add_report(Command& tilewave) {
  auto o = std::make_shared<Options>();
  Command sub = tilewave.add("report", "one HTML page of CSVs, comparisons, campaigns and ledgers");
  sub.option("--out", o->out, "the page").required();
  sub.option("--title", o->title, "of the page");
  sub.option("--csv", o->csvs, "benchmark CSVs: a table by class, and a roofline if --arch is given");
  sub.option("--compare", o->compares, "BASE CANDIDATE [BASE CANDIDATE ...]: speedup by class");
  sub.option("--campaign", o->campaigns, "folders of campaigns: history by class");
  sub.option("--ledger", o->ledgers,
             "CSVs with kernel, model, and speedup or us and baseline_us: kernel x model, and of each shape");
  sub.option("--isa", o->isa, "what `isa gate --tables` or `isa table --json` wrote: compiled kernels");
  sub.option("--table", o->tables, "any CSVs, as they are");
  sub.option("--time", o->time, "column of the times of --csv and --compare (default: us); model_us: modelled ones");
  sub.option("--arch", o->arch, "chip for rooflines");
  sub.option("--peak", o->peak, "bf16 (default), fp8 or fp4").one_of({"bf16", "fp8", "fp4"});
  sub.option("--by", o->by, "columns that make a class");
  sub.option("--hardware", o->hardware, "folder to read instead of the docs/reference/hardware this was built with");
  sub.example(
      "  tilewave report --out page.html --csv decode.csv norm.csv --arch H200 --campaign agent/workspace/pa_hip_sm90_20260416");
  sub.run([o] { return run(*o); });
}

}  // namespace tilewave::tool
