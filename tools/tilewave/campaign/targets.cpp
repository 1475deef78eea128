// SPDX-License-Identifier: MIT
#include "tools/tilewave/campaign/targets.hpp"

#include <fmt/format.h>

#include <cmath>

#include "tools/tilewave/campaign/rules.hpp"
#include "tools/tilewave/common/error.hpp"
#include "tools/tilewave/common/text.hpp"
#include "tools/tilewave/compare/columns.hpp"

namespace tilewave::tool {

namespace {

/// The matrix peak of the rows: the fastest that all their operands have.
std::string peak_of(const Manifest& m, const Csv& rows) {
  if (m.target_peak != "auto") return m.target_peak;
  int bits = 0;
  for (const char* column : {"a_dtype", "b_dtype", "q_dtype_w", "x_dtype"}) {
    const auto at = rows.find(column);
    for (std::size_t r = 0; at && r < rows.rows.size(); ++r) {
      const std::string& type = rows.rows[r][*at];
      const bool four = type.find("fp4") != std::string::npos || type.find("e2m1") != std::string::npos;
      const bool eight = type.find("fp8") != std::string::npos || type.find("e4m3") != std::string::npos ||
                         type.find("e5m2") != std::string::npos;
      bits = std::max(bits, four ? 4 : eight ? 8 : 16);
    }
  }
  return bits == 4 ? "fp4" : bits == 8 ? "fp8" : "bf16";
}

std::string table_cell(std::string text) {
  for (char& c : text) c = c == '|' ? '/' : c == '\n' ? ' ' : c;
  return text.empty() ? "-" : text;
}

std::string rows_md(const StopConditions& c) {
  std::string out =
      "| row | FLOP/B | bound | time us | floor us | target us | of roof |\n|---|---|---|---|---|---|---|\n";
  for (const Point& p : c.rows) {
    const double floor = c.roof->floor_us(p.work);
    out += fmt::format("| {} | {:.2f} | {} | {:.3f} | {:.3f} | {:.3f} | {:.1f} % |\n", table_cell(p.name),
                       p.work.flops / p.work.bytes, c.roof->memory_bound(p.work) ? "memory" : "compute", p.us, floor,
                       floor / roof_share, floor / p.us * 100);
  }
  return out;
}

}  // namespace

StopConditions stop_conditions(const Manifest& m, const Csv& rows) {
  StopConditions c;
  const auto chips = all_chips();
  try {
    c.chip = chip_of_rows(chips, m.target_chip.empty() ? m.target_gpu : m.target_chip, rows, m.primary_metric);
    std::size_t untimed = 0;
    c.rows = points_of(rows, {}, untimed, m.primary_metric);
    c.roof = roof_of(*c.chip, peak_of(m, rows));
  } catch (const Error& error) {
    if (error.exit == Exit::refused) throw;  // rows of another chip are no campaign for this one
    c.none = error.what(), c.roof.reset(), c.rows.clear();
    return c;
  }
  double sum = 0;
  for (const Point& p : c.rows) sum += std::log(c.roof->floor_us(p.work) / p.us);
  c.share = std::exp(sum / static_cast<double>(c.rows.size()));
  return c;
}

std::optional<Roof> roof_for(const Manifest& m, const Csv& rows) { return stop_conditions(m, rows).roof; }

std::string readme_md(const Manifest& m, const StopConditions& c) {
  std::string out = fmt::format(
      "# {}\n\n## Task Context\n- Op: {}, backend: {}, GPU: {}\n- Mode: {}, worktree: {}\n- Kernel source: {}\n"
      "- Metric: {}\n- Benchmark: `{}`\n- Test: `{}`\n- Representative configs: {}\n\n## Hardware Spec\n",
      m.name, m.target_op, m.target_backend, m.target_gpu, m.execution_mode, m.worktree, join(m.kernel_source, ", "),
      m.primary_metric, m.benchmark_command, m.test_command, join(m.representative_shapes, ", "));
  if (c.chip) {
    for (const Spec& s : c.chip->specs) {
      out += s.value ? fmt::format("- {}: {} {} <- {}:{}\n", s.key, *s.value, s.unit, c.chip->file, s.line)
                     : fmt::format("- {}: UNKNOWN ({}:{})\n", s.key, c.chip->file, s.line);
    }
  } else {
    out += fmt::format("- none: {}\n", c.none);
  }
  out += "\n## Roofline\n";
  if (!c.roof) return out + fmt::format("None: {}\n\n## Stop Conditions\nNone could be computed.\n", c.none);
  out += fmt::format("- Memory: {} TB/s ({}) <- {}\n- {}: {} TFLOP/s <- {}\n- Ridge: {:.1f} FLOP/B\n\n",
                     c.roof->bytes_per_s * 1e-12, c.roof->measured ? "measured" : "data sheet", c.roof->bytes_source,
                     c.roof->peak_key, c.roof->flops_per_s * 1e-12, c.roof->flops_source, c.roof->ridge());
  out += rows_md(c);
  return out + fmt::format(
                   "\n## Stop Conditions\n- Memory-bound rows: >= {:.4g} TB/s ({:.0f} % of the roof)\n"
                   "- Compute-bound rows: >= {:.4g} TFLOP/s\n- Each row's target time stands above.\n"
                   "- Reached at the baseline: {:.1f} % of the roof in the geometric mean\n- performance_target: {}\n",
                   roof_share * c.roof->bytes_per_s * 1e-12, roof_share * 100, roof_share * c.roof->flops_per_s * 1e-12,
                   c.share * 100,
                   m.performance_target.empty()          ? "null: these do not end the campaign"
                   : m.performance_target == roof_target ? "roof: these end it, in the geometric mean"
                                                         : m.performance_target);
}

std::string baseline_report_md(const Manifest& m, const Round& r, const StopConditions& c) {
  std::string out = fmt::format(
      "# Baseline of {}\n- Date: {}\n- Commit: {}\n- Correct: yes, every row of `{}`\n- {}: {:.3f}, geometric mean over "
      "classes\n\n| class | {} |\n|---|---|\n",
      m.name, r.date, r.commit, m.benchmark_command, m.primary_metric, r.us, m.primary_metric);
  for (const auto& [name, us] : r.classes) out += fmt::format("| {} | {:.3f} |\n", table_cell(name), us);
  out += fmt::format("\n## Hottest kernel\n{}\n", r.kernel.empty() ? "Not traced: no trace_command." : r.kernel);
  for (const auto& [name, value] : r.launch) out += fmt::format("- {}: {}\n", name, value);
  out += "\n## Bottlenecks\n";
  for (const std::string& line : r.bottlenecks) out += "- " + line + "\n";
  if (r.bottlenecks.empty()) out += "- none recorded\n";
  out += "\n## Under the roof\n";
  return out + (c.roof ? rows_md(c) : c.none + "\n");
}

}  // namespace tilewave::tool
