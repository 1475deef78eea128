// SPDX-License-Identifier: MIT
// One HTML page that needs nothing else: no script, no font, no file beside it.
#pragma once

#include <string>
#include <vector>

#include "tools/tilewave/campaign/state.hpp"
#include "tools/tilewave/common/csv.hpp"
#include "tools/tilewave/compare/compare.hpp"
#include "tools/tilewave/isa/tables.hpp"
#include "tools/tilewave/roofline/roofline.hpp"

namespace tilewave::tool {

/// Numbers of one class of a benchmark's CSV; what the CSV lacks, or no row of the class has, is not there. `metric` is the
/// column of the times; rates of a modelled time follow from bytes_ideal, flops and roof_us.
struct ClassSummary {
  std::string name;
  std::size_t rows = 0, wrong = 0, untimed = 0;
  std::optional<double> us, gbps, tflops, roof_pct;  // geometric means over rows that have them
  std::optional<double> clk, mhz;                    // of modelled times
};
std::vector<ClassSummary> summarise(const Csv& csv, const std::vector<std::string>& by,
                                    const std::string& metric = "us");

/// A kernel x model table from a CSV with columns kernel, model and speedup, or us and baseline_us: geometric mean and
/// number of shapes in each cell; where there is a column shape, behind it every row.
std::string ledger_html(const Csv& csv);

std::string summary_html(const Csv& csv, const std::vector<std::string>& by, const Roof* roof,
                         const std::string& metric = "us");
std::string comparison_html(const std::string& base, const std::string& cand, const Comparison& comparison);
std::string campaign_html(const std::string& name, const State& state);
std::string table_html(const Csv& csv);
std::string isa_html(const IsaTables& tables);

std::string page_html(const std::string& title, const std::vector<std::string>& sections);

}  // namespace tilewave::tool
