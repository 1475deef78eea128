// SPDX-License-Identifier: MIT
// What the benchmarks of row operations (norm, quant, softmax) share: the choice of rows, running and verifying one.
//
// An Op has the types Case, Problem, Entry, Tensors and the static functions entries(), select(), problem_of(), fill(),
// outputs(), work_of(), verify_row(), default_sweep(). A Case has arch, rows, config_rows, columns, seed and describes its
// types with x(), out(), scale_mode() and has_residual().
#pragma once

#include <algorithm>
#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "bench/harness/measurement.hpp"
#include "bench/harness/rows.hpp"
#include "bench/harness/tool.hpp"
#include "tilewave/reference/rows.hpp"
#include "tilewave/tile/row_check.hpp"

namespace tilewave::bench {

template <class Op>
struct RowOpRow : Measurement {
  typename Op::Case config;
  const typename Op::Entry* entry;  // null: no entry serves the config
  int config_id;

  std::vector<Counter> counters() const {
    const RowPolicy policy = entry != nullptr ? entry->policy : RowPolicy{.lanes = 0, .chunks = 0, .vec = 0};
    const std::vector<Counter> own{{"rows", config.rows},
                                   {"columns", config.columns},
                                   {"x_dtype", static_cast<double>(config.x())},
                                   {"out_dtype", static_cast<double>(config.out())},
                                   {"scale_mode", static_cast<double>(config.scale_mode())},
                                   {"residual", config.has_residual()},
                                   {"lanes", policy.lanes},
                                   {"chunks", policy.chunks},
                                   {"vec", policy.vec},
                                   {"config_id", config_id},
                                   {"arch", static_cast<double>(config.arch)},
                                   {"seed", static_cast<double>(config.seed)}};
    return Measurement::counters(own);  // braces as an argument: nvcc's front end loses them in a template
  }
};

template <class Op>
class RowOpRunner {
 public:
  RowOpRunner(const MeasureOptions& options, Meter::Log log) : options_(options), meter_(options, std::move(log)) {}

  /// Never throws: a row that could not be run or is wrong comes back with ok false, and why is logged.
  RowOpRow<Op> run(const typename Op::Case& c, const typename Op::Entry* entry, int config_id) {
    return meter_.fill(RowOpRow<Op>{{}, c, entry, config_id}, c.arch, [&](RowOpRow<Op>& row) {
      row.work = Op::work_of(c);
      if (entry == nullptr) {
        meter_.log("no entry serves this config");
      } else {
        run(row);
      }
    });
  }

 private:
  void run(RowOpRow<Op>& row) {
    const typename Op::Case& c = row.config;
    const typename Op::Tensors tensors = Op::fill(c, options_.threads);
    const auto problem = Op::problem_of(c, tensors, [](const TwinBuffer& b) -> void* { return b.device(); });
    if (!meter_.run(
            c.arch, [&](hipStream_t stream) { return row.entry->launch(problem, stream); }, row.timing))
      return;
    for (const TwinBuffer* buffer : Op::outputs(tensors)) buffer->download();
    if (options_.inject_error) {  // the bit below the sign: the top of an exponent, or 64 of an i8
      tensors.out.host()[size_of(c.out()) - 1] ^= std::byte{0x40};
    }

    const auto on_host = Op::problem_of(c, tensors, [](const TwinBuffer& b) -> void* { return b.host(); });
    const std::vector<std::int32_t> rows = verified_rows(c.rows, c.columns);
    std::vector<RowErrors> found(rows.size());
    reference::parallel_for(std::ssize(rows), options_.threads,
                            [&](std::int64_t i) { Op::verify_row(on_host, rows[i], found[i]); });
    conclude(found, meter_, row);
  }

  MeasureOptions options_;
  Meter meter_;
};

/// A config with one entry that serves it, or with none.
template <class Op>
struct RowOpPlan {
  typename Op::Case config;
  const typename Op::Entry* entry;
  int config_id;
  std::string name;
  std::string refusal;  // why no entry serves the config; empty if one does

  std::string label() const { return entry != nullptr ? name_of(entry->spec) + "/" + name_of(entry->policy) : "none"; }
};

/// The rows of the default sweep, in the order of its configs, then of the entries.
template <class Op>
std::vector<RowOpPlan<Op>> plans_of(ArchId arch, const ToolOptions& o) {
  using Entry = typename Op::Entry;
  const std::span<const Entry* const> entries = Op::entries();
  std::vector<RowOpPlan<Op>> plans;
  int config_id = 0;
  for (typename Op::Case c : Op::default_sweep(arch)) {
    c.seed = o.seed;
    // The library chooses for the whole config. It looks at shapes only, but wants to see tensors.
    alignas(16) static std::byte somewhere[16];
    const auto problem = Op::problem_of(c, {}, [](const TwinBuffer&) -> void* { return somewhere; });
    c.rows = launched_rows(c.config_rows, c.columns);
    std::vector<const Entry*> chosen;
    std::string refusal;
    const auto select = [&](std::span<const Entry* const> candidates) {
      const Entry* entry = nullptr;
      const Status status = Op::select(problem, candidates, facts_of(arch), entry);
      if (status.ok()) {
        chosen.push_back(entry);
      } else {
        refusal = std::string(name_of(status.code)) + ": " + status.reason;
      }
    };
    if (o.policies == "all") {
      for (std::size_t i = 0; i < entries.size(); ++i) select(entries.subspan(i, 1));
    } else {
      select(entries);
    }
    if (chosen.empty()) chosen.push_back(nullptr);
    for (const Entry* entry : chosen) {
      const std::string policy = entry != nullptr ? name_of(entry->policy) : "none";
      plans.push_back({c, entry, config_id, name_of(c) + "/" + policy, entry != nullptr ? "" : refusal});
    }
    ++config_id;
  }
  return plans;
}

/// main of the benchmark of a row operation.
template <class Op>
int row_op_main(const char* about, int argc, char** argv) {
  ToolOptions o;
  MeasureOptions measure;
  CLI::App app(about, tool_name);
  declare(app, o, measure);
  if (const std::optional<int> status = parse(app, argc, argv)) return *status;
  const std::string output = initialize_google(app.remaining());
  const ArchId arch = choose_arch(o.arch, Op::entries());
  const std::string filter = benchmark::GetBenchmarkFilter();
  const auto wanted = row_filter(filter);
  std::vector<RowOpPlan<Op>> rows = plans_of<Op>(arch, o);
  std::erase_if(rows, [&](const RowOpPlan<Op>& row) { return !wanted(row.name); });
  if (rows.empty()) return fail("--benchmark_filter=" + filter + ": matches no row");
  RowLog log;
  RowOpRunner<Op> runner(measure, std::ref(log));
  return run_rows(rows, arch, output, log,
                  [&](const RowOpPlan<Op>& row) { return runner.run(row.config, row.entry, row.config_id); });
}

}  // namespace tilewave::bench
