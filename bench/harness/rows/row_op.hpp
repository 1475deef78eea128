// SPDX-License-Identifier: MIT
// Parts that the benchmarks of row operations (norm, quant, softmax) share: a row, running it and verifying it.
//
// An Op has the types Case, Problem, Entry, Tensors and the static functions entries(), select(), problem_of(), fill(),
// outputs(), work_of(), verify_row(), default_sweep(). A Case has arch, rows, config_rows, columns, seed, out() (the
// type of its output), and each_column(), which declares what distinguishes configs: the columns of the CSV. An Op with
// `indexes_by_results` is run once before it is modelled: its later launches take addresses from the results of earlier
// ones, and the model leaves memory unchanged. Where an entry has launch_indexes(), that is run instead: the launches
// whose results are addresses.
#pragma once

#include <algorithm>
#include <functional>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "bench/harness/measurement.hpp"
#include "bench/harness/model_time.hpp"
#include "bench/harness/rows/rows.hpp"
#include "tilewave/reference/rows.hpp"
#include "tilewave/tile/row_check.hpp"

namespace tilewave::bench {

/// Returns pointers to `entries` as entries of type Timed, which is made of one and launches more than it does. They are
/// made once.
template <class Timed, class Entry>
std::span<const Timed* const> timed_entries(std::span<const Entry* const> entries) {
  static const std::vector<Timed> all = [&] {
    std::vector<Timed> timed;
    for (const Entry* e : entries) timed.push_back({*e});
    return timed;
  }();
  static const std::vector<const Timed*> pointers = [] {
    std::vector<const Timed*> some;
    for (const Timed& e : all) some.push_back(&e);
    return some;
  }();
  return pointers;
}

/// Declares the columns of a policy. Without a policy all are 0.
template <class Visit>
void each_column(const RowPolicy* policy, Visit& visit) {
  const RowPolicy p = policy != nullptr ? *policy : RowPolicy{0, 0, 0, 0, 0, 0, false, 0};
  visit("lanes", p.lanes);
  visit("rows_per_block", p.rows);
  visit("chunks", p.chunks);
  visit("vec", p.vec);
  visit("span", p.span);
  visit("cluster", p.blocks);
  visit("held", p.held);
  visit("waves_per_simd", p.waves_per_simd);
}

/// A config with one entry that serves it, or with none.
template <class Op>
struct RowOpPlan {
  typename Op::Case config;
  const typename Op::Entry* entry;
  int config_id;
  std::string name;
  std::string refusal;  // the reason why no entry serves the config; empty if one does

  std::string entry_name() const {
    return entry != nullptr ? name_of(entry->spec) + "/" + name_of(entry->policy) : "none";
  }
  Columns identity() const {
    ColumnWriter visit;
    Op::Case::each_column(config, visit);
    visit.policy = true;
    each_column(entry != nullptr ? &entry->policy : nullptr, visit);
    return visit.columns;
  }
};

template <class Op>
class RowOpRunner {
 public:
  RowOpRunner(const MeasureOptions& options, Meter::Log log) : options_(options), meter_(options, std::move(log)) {}

  /// Runs a row. It never throws: a row that could not be run or is wrong comes back with ok false, and the reason is
  /// logged.
  Measurement run(const RowOpPlan<Op>& plan) {
    return meter_.fill(plan.config.arch, [&](Measurement& row) {
      row.work = Op::work_of(plan.config);
      if (plan.entry == nullptr) {
        meter_.log("no entry serves this config");
      } else {
        run(plan, row);
      }
    });
  }

 private:
  void run(const RowOpPlan<Op>& plan, Measurement& row) {
    const typename Op::Case& c = plan.config;
    const typename Op::Tensors tensors = Op::fill(c, options_.threads);
    const auto problem = Op::problem_of(c, tensors, [](const TwinBuffer& b) -> void* { return b.device(); });
    const std::vector<const TwinBuffer*> outputs = Op::outputs(tensors);
    const auto launch = [&](hipStream_t stream) { return plan.entry->launch(problem, stream); };
    if constexpr (requires { Op::indexes_by_results; }) {
      const auto indexes = [&] {
        if constexpr (requires { plan.entry->launch_indexes(problem, hipStream_t{}); }) {
          return plan.entry->launch_indexes(problem, {});
        } else {
          return launch({});
        }
      };
      if (const Status s = model_time.on ? indexes() : Status{}; !s.ok()) throw std::runtime_error(s.reason);
    }
    if (!meter_.run(c.arch, launch, row.timing, outputs)) return;
    for (const TwinBuffer* buffer : outputs) buffer->download();
    if (options_.inject_error) {  // the bit below the sign is the top bit of an exponent, or 64 in an i8
      tensors.out.host()[size_of(c.out()) - 1] ^= std::byte{0x40};
    }

    const auto on_host = Op::problem_of(c, tensors, [](const TwinBuffer& b) -> void* { return b.host(); });
    const std::vector<std::int32_t> rows = verified_rows(c.rows, row_elements(c));
    std::vector<RowErrors> found(rows.size());
    reference::parallel_for(std::ssize(rows), options_.threads,
                            [&](std::int64_t i) { Op::verify_row(on_host, rows[i], found[i]); });
    conclude(found, meter_, row);
  }

  MeasureOptions options_;
  Meter meter_;
};

}  // namespace tilewave::bench
