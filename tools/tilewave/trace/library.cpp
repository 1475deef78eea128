// SPDX-License-Identifier: MIT
// A report for every op of a folder, and the page that ranks them.
#include "tools/tilewave/trace/library.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "tools/tilewave/common/csv.hpp"
#include "tools/tilewave/common/error.hpp"
#include "tools/tilewave/common/process.hpp"
#include "tools/tilewave/common/text.hpp"

namespace tilewave::tool {

namespace fs = std::filesystem;

namespace {

/// The rows that have a time and a roof, and the geometric mean of roof over time.
void add_rows(const std::string& file, LibraryPage& page) {
  const Csv csv = read_csv(file, "name");
  const bool modelled = !csv.find("us") || csv.find("model_us");
  const std::size_t err = csv.need("err"), roof = csv.need("roof_us");
  const auto name = csv.find("name"), flops = csv.find("flops"), bytes = csv.find("bytes_ideal");
  double logs = 0;
  for (std::size_t r = 0; r < csv.rows.size(); ++r) {
    if (csv.need_number(r, err) != 0) refuse(csv.where(r) + ": a wrong row is no profile of anything");
    double us = csv.find("us") ? csv.need_number(r, csv.need("us")) : std::nan("");
    const bool timed = std::isfinite(us);
    if (!timed && modelled && csv.find("model_us")) us = csv.need_number(r, csv.need("model_us"));
    const double least = csv.need_number(r, roof);
    if (!std::isfinite(us) || us <= 0 || !std::isfinite(least) || least <= 0) continue;
    page.modelled = page.modelled || !timed;
    logs += std::log(least / us), ++page.rows;
    const auto rate = [&](std::optional<std::size_t> column, double of) {
      return column ? fmt::format("{:.4g}", csv.need_number(r, *column) / us / of) : std::string("-");
    };
    page.table += fmt::format("| {} | {:.2f} | {} | {} | {:.1f} % |\n",
                              name ? csv.rows[r][*name].substr(0, csv.rows[r][*name].find("/iterations:")) : "-", us,
                              rate(bytes, 1e3), rate(flops, 1e6), 100 * least / us);
  }
  if (page.rows > 0) page.of_roof = std::exp(logs / static_cast<double>(page.rows));
}

std::string percent(const std::optional<double>& value) {
  return value ? fmt::format("{:.1f} %", 100 * *value) : std::string("not in the trace");
}

}  // namespace

LibraryPage library_page(const fs::path& folder, const Chip* chip, std::size_t top) {
  LibraryPage page;
  page.op = folder.filename().string();
  const Profile profile = read_profile(folder.string());
  if (fs::exists(folder / "bench.csv")) add_rows((folder / "bench.csv").string(), page);
  std::int64_t latency = 0, stall = 0;
  for (const ThreadTrace& t : profile.traces) {
    latency += t.latency, stall += t.stall;
    // The simulator's clock says so in the name of the kernel.
    page.modelled = page.modelled || t.kernel.find("modelled") != t.kernel.npos;
  }
  if (latency > 0) page.stalled = static_cast<double>(stall) / static_cast<double>(latency);
  const auto hints = hints_of(profile, chip);
  if (!hints.empty()) page.hint = hints.front().text;
  if (fs::exists(folder / "capture.sh")) {
    const auto lines = lines_of(read_file((folder / "capture.sh").string()));
    const auto ran = std::find_if(lines.begin(), lines.end(), [](const std::string& line) {
      return !trim(line).empty() && line.front() != '#' && trim(line) != "set -e";
    });
    if (ran != lines.end()) page.ran = trim(*ran);
  }
  page.report = report_md(profile, chip, page.op, top);
  page.report += fmt::format("\n## 6. What ran\n{}\n",
                             page.ran.empty() ? "Not in the trace: no capture.sh." : "`" + page.ran + "`");
  if (page.of_roof)
    page.report += fmt::format(
        "\n{} rows of bench.csv are at {:.1f} % of their roof on average, {}.\n\n"
        "| row | us | GB/s | TFLOP/s | of roof |\n|---|---|---|---|---|\n{}",
        page.rows, 100 * *page.of_roof, page.modelled ? "by modelled time" : "as measured", page.table);
  return page;
}

std::string library_index(const std::vector<LibraryPage>& pages, const std::string& note) {
  std::string text =
      "# Profiles\n\n" + (note.empty() ? "" : note + "\n\n") +
      "Written by `tilewave trace library`; most headroom first. Headroom is what is left to the roof, over all rows of the "
      "op's bench.csv; stalled is the share of the traced instructions' latency. Modelled is what the simulator's clock says of a chip "
      "that was not there.\n\n| op | headroom | of roof | stalled | from | first recommendation |\n|---|---|---|---|---|---|\n";
  for (const LibraryPage& p : pages) {
    std::string hint;
    for (const char c : p.hint) hint += c == '|' ? std::string("\\|") : std::string(1, c);
    text += fmt::format("| [{}]({}/REPORT.md) | {} | {} | {} | {} | {} |\n", p.op, p.op,
                        percent(p.of_roof ? std::optional(1 - *p.of_roof) : std::nullopt), percent(p.of_roof),
                        percent(p.stalled), p.modelled ? "a model" : "hardware", hint.empty() ? "none" : hint);
  }
  return text;
}

Json library_json(const std::vector<LibraryPage>& pages) {
  Json ops = Json::array();
  const auto share = [](const std::optional<double>& value) { return value ? Json(*value) : Json(); };
  for (const LibraryPage& p : pages)
    ops.push_back({{"op", p.op},
                   {"report", p.op + "/REPORT.md"},
                   {"of_roof", share(p.of_roof)},
                   {"rows", p.rows},
                   {"stalled", share(p.stalled)},
                   {"modelled", p.modelled},
                   {"recommendation", p.hint},
                   {"ran", p.ran}});
  return ops;
}

std::vector<LibraryPage> write_library(const LibraryOptions& o, const Chip* chip) {
  std::vector<fs::path> folders;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(o.from, error))
    if (entry.is_directory()) folders.push_back(entry.path());
  if (error) refuse("cannot read " + o.from + ": " + error.message());
  if (folders.empty()) refuse(o.from + ": no folder in it, one for each op");
  std::sort(folders.begin(), folders.end());
  std::vector<LibraryPage> pages;
  for (const fs::path& folder : folders) {
    if (o.capture && fs::exists(folder / "capture.sh")) {
      const int status =
          run_shell("sh " + shell_word(fs::absolute(folder / "capture.sh").string()),
                    {.timeout_s = o.timeout_s, .out_path = (folder / "capture.log").string(), .errors_too = true})
              .status;
      if (status != 0)
        throw Error(Exit::failed,
                    fmt::format("{}/capture.sh ends with {}; capture.log says why", folder.string(), status));
    }
    pages.push_back(library_page(folder, chip, o.top));
    if (!o.note.empty()) pages.back().report += "\n" + o.note + "\n";
  }
  // Pages are written only when all could be read, so that no half of a library is left.
  for (const LibraryPage& page : pages) {
    fs::create_directories(fs::path(o.out) / page.op);
    write_atomically(fs::path(o.out) / page.op / "REPORT.md", page.report);
  }
  // Most to gain first; where no roof is known, most stalled first, behind all others.
  std::stable_sort(pages.begin(), pages.end(), [](const LibraryPage& a, const LibraryPage& b) {
    if (a.of_roof.has_value() != b.of_roof.has_value()) return a.of_roof.has_value();
    return a.of_roof ? *a.of_roof < *b.of_roof : a.stalled.value_or(-1) > b.stalled.value_or(-1);
  });
  write_atomically(fs::path(o.out) / "README.md", library_index(pages, o.note));
  return pages;
}

}  // namespace tilewave::tool
