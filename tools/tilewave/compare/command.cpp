// SPDX-License-Identifier: MIT
#include "tools/tilewave/common/command.hpp"

#include <fmt/format.h>

#include <memory>

#include "tools/tilewave/common/error.hpp"
#include "tools/tilewave/common/text.hpp"
#include "tools/tilewave/compare/kernels.hpp"
#include "tools/tilewave/compare/report.hpp"

namespace tilewave::tool {

namespace {

struct Options {
  std::string base, cand, map, by, metric, repeats = "refuse", previous, target, kernel, per_call;
  std::vector<std::string> traces;
  double tie = 1, row_loss = 5;
  bool json = false;
};

int run(const Options& o) {
  CompareOptions options;
  options.map = column_map(o.map);
  if (!o.metric.empty()) options.map.us = o.metric;
  if (is_modelled(options.map.us) && !o.traces.empty())
    refuse("--kernel-trace is measured, " + options.map.us + " modelled");
  if (!o.by.empty()) options.by = split(o.by, ',');
  options.tie_pct = o.tie, options.row_loss_pct = o.row_loss, options.target = o.target;
  options.repeats = o.repeats == "best" ? Repeats::best : o.repeats == "median" ? Repeats::median : Repeats::refuse;
  if (!o.previous.empty()) {
    const std::string before = read_file(o.previous);
    options.previous = ratios_of(before, o.previous), options.previous_kernel = kernel_ratio_of(before, o.previous);
  }
  const Csv base = read_csv(o.base, options.map.us), cand = read_csv(o.cand, options.map.us);
  Comparison result = compare(base, cand, options);
  if (!o.traces.empty() && result.verdict != Verdict::incorrect) {
    const auto [before, after] = kernel_sums(o.traces[0], o.traces[1], {o.kernel, o.per_call});
    decide_by_kernels(result, before, after, o.tie, options.previous_kernel);
  }
  fmt::print("{}", o.json ? json_report(result, options.map.us) : text_report(result, options.map.us));
  return static_cast<int>(exit_of(result.verdict));
}

}  // namespace

void add_compare(Command& tilewave) {
  auto o = std::make_shared<Options>();
  Command sub =
      tilewave.add("compare", "two CSVs of a benchmark, config by config: keep, discard, tie, split or incorrect");
  sub.option("BASE", o->base, "CSV of the baseline (- is stdin)").required();
  sub.option("CANDIDATE", o->cand, "CSV of the candidate").required();
  sub.option("--by", o->by,
             "columns that make a class (default: those there are of block_size, mtp, head_size, types, ...)");
  sub.option(
      "--metric,--time", o->metric,
      "column that is compared, lower is better (default: us); model_us, model_clk: modelled, of one model_chip");
  sub.option("--map", o->map,
             "whose CSV: tilewave, flydsl, aiter, or us=COLUMN,err=COLUMN|none,max_err=X,config=A+B,ignore=C+D");
  sub.option("--tie", o->tie, "a class that changes by less percent is a tie (default: 1)").range(0, 50);
  sub.option("--row-loss", o->row_loss, "no row of a class may lose more percent (default: 5)").range(0, 1e6);
  sub.option("--repeats", o->repeats, "rows of the same config: refuse, median (runs) or best (policies)")
      .one_of({"refuse", "median", "best"});
  sub.option("--target", o->target, "class that has to gain, for example block_size=16,mtp=1");
  sub.option("--previous", o->previous,
             "JSON of the comparison before: less than --tie counts the second time, after a tie");
  sub.option(
         "--kernel-trace", o->traces,
         "BASE CANDIDATE: rocprofv3 kernel trace or stats, or ncu --csv, of the same calls; the GPU time of all launches "
         "decides")
      .count(2);
  sub.option("--kernel", o->kernel, "regular expression: the kernels of the traces that are added up (default: all)");
  sub.option("--per-call", o->per_call,
             "regular expression: a kernel that each call launches once, where the traces are not of as many calls");
  sub.flag("--json", o->json, "the report as JSON");
  sub.example(
      "  bench_pa --benchmark_format=csv >base.csv; ...; bench_pa --benchmark_format=csv >new.csv\n"
      "  tilewave compare base.csv new.csv --by block_size,mtp,head_size");
  sub.run([o] { return run(*o); });
}

}  // namespace tilewave::tool
