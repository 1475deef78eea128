// SPDX-License-Identifier: MIT
// A row of bench_gemm, and how it is run: fill the tensors, time the launch, verify what the timed buffer then holds.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bench/harness/measurement.hpp"
#include "bench/ops/gemm/tensors.hpp"
#include "bench/ops/gemm/verify.hpp"
#include "tilewave/ops/gemm/registry.hpp"

namespace tilewave::bench {

/// Visits the columns of a plan. Without an entry, all of them are 0.
template <class Visit>
void each_column(const GemmPlan& plan, Visit& visit) {
  const bool has = plan.entry != nullptr;
  const GemmPolicy p = has ? plan.entry->policy : GemmPolicy{0, 0, 0, 0, 0, 0, {}, false, 0, 0, 0, 0};
  visit("tile_rows", p.rows);
  visit("tile_columns", p.columns);
  visit("depth", p.depth_bytes);
  visit("stages", p.stages);
  visit("waves_rows", p.waves_rows);
  visit("waves_columns", p.waves_columns);
  visit("path", has ? name_of(p.path) : "none");
  visit("swapped", p.swapped);
  visit("cluster", p.cluster);
  visit("splits", has ? plan.splits : 0);
  visit("most_splits", p.splits);
  visit("waves_per_simd", p.waves_per_simd);
  visit("waves_k", p.waves_k);
  visit("stream", p.stream);
}

/// A config with the plan that is timed.
struct GemmRow {
  GemmCase config;
  GemmPlan plan;  // Its entry is null if no entry serves the config.
  int config_id;
  std::string name;
  std::string refusal;  // why the library has no plan for the config; empty if it has

  std::string entry_name() const {
    return plan.entry != nullptr ? name_of(plan.entry->spec) + "/" + name_of(plan.entry->policy) : "none";
  }
  Columns identity() const {
    ColumnWriter visit;
    GemmCase::each_column(config, visit);
    visit.policy = true;
    each_column(plan, visit);
    return visit.columns;
  }
};

/// Runs rows one after the other, and keeps the tensors of a config for all of its plans.
class GemmRunner {
 public:
  GemmRunner(const MeasureOptions& options, Meter::Log log) : options_(options), meter_(options, std::move(log)) {}

  /// Runs a row, and never throws. If it could not be run or is wrong, ok is false and the reason is logged.
  Measurement run(const GemmRow& row) {
    return meter_.fill(row.config.arch, [&](Measurement& measured) {
      measured.work = work_of(row.config);
      if (row.plan.entry == nullptr) {
        meter_.log("no entry serves this config");
      } else {
        run(row, measured);
      }
    });
  }

 private:
  /// The tensors of a config, which all of its plans share, and the output that is expected.
  struct Prepared {
    std::string config;
    GemmTensors tensors;
    std::vector<GemmWanted> wanted;
  };

  const Prepared& prepared(const GemmCase& c) {
    if (prepared_ && prepared_->config == name_of(c)) return *prepared_;
    prepared_.reset();  // The old tensors go first, since the new ones may fill the device.
    prepared_.emplace(Prepared{name_of(c), fill(c, options_.threads), {}});
    return *prepared_;
  }
  static GemmProblem on_host(const GemmCase& c, const GemmTensors& t) {
    return problem_of(c, t, [](const TwinBuffer& b) -> void* { return b.host(); });
  }

  void run(const GemmRow& row, Measurement& measured) {
    const GemmCase& c = row.config;
    const GemmTensors& tensors = prepared(c).tensors;
    poison_output(c, tensors);
    GemmProblem p = problem_of(c, tensors, [](const TwinBuffer& b) -> void* { return b.device(); });
    const DeviceBuffer workspace(row.plan.workspace_bytes(p));
    workspace.fill(0xff);
    p.workspace = workspace.data();
    p.workspace_bytes = workspace.bytes();

    const auto launch = [&](hipStream_t stream) { return row.plan.launch(p, stream); };
    if (!meter_.run(c.arch, launch, measured.timing, std::array{&tensors.out, &tensors.out_scale})) return;
    tensors.out.download();
    if (c.out_scales() > 0) tensors.out_scale.download();
    const GemmProblem host = on_host(c, tensors);
    if (prepared_->wanted.empty()) prepared_->wanted = wanted_rows(host, matrix_unit_of(c), options_.threads);
    if (options_.inject_error) damage(c, host);
    conclude(verify(host, prepared_->wanted, tolerance_of(c), options_.threads), meter_, measured);
  }

  /// Flips the top bit of the exponent of an element that is verified.
  void damage(const GemmCase& c, const GemmProblem& host) const {
    if (prepared_->wanted.empty()) return;
    const GemmWanted& wanted = prepared_->wanted.front();
    const std::int64_t at = wanted.a_layer * host.out_batch_stride + wanted.rows.front() * host.out_stride;
    static_cast<std::byte*>(host.out)[(at + 1) * size_of(c.spec.out) - 1] ^= std::byte{0x40};
  }

  MeasureOptions options_;
  Meter meter_;
  std::optional<Prepared> prepared_;
};

}  // namespace tilewave::bench
