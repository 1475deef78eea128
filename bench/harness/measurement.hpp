// SPDX-License-Identifier: MIT
// What every row of every benchmark says about one call, and what all rows of a process share to find it out.
#pragma once

#include <exception>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bench/harness/ceiling.hpp"
#include "bench/harness/column.hpp"
#include "bench/harness/sampler.hpp"
#include "bench/harness/work.hpp"

namespace tilewave::bench {

struct Measurement {
  bool ok = false;  // run and verified
  double max_abs_err = std::numeric_limits<double>::quiet_NaN();
  double max_rel_err = std::numeric_limits<double>::quiet_NaN();
  Timing timing;  // empty on the emulated device
  Work work;
  Ceilings ceilings;

  bool failed() const { return !ok && !timing.modelled.known(); }

  /// What people look at first.
  std::vector<std::pair<const char*, double>> console() const {
    const double us = timing.cold.median;
    if (timing.modelled.known()) return {{"err", 0}, {"model_us", timing.modelled.us}};
    return {{"err", !ok},
            {"max_rel_err", max_rel_err},
            {"gbps", static_cast<double>(work.bytes) / us * 1e-3},
            {"roof_pct", ceilings.seconds(work) * 1e8 / us}};
  }

  /// The same columns for every op and whatever happened to the row.
  Columns columns() const {
    const double us = timing.cold.median, roof_us = ceilings.seconds(work) * 1e6;
    ColumnWriter visit;
    visit("ok", ok);
    visit("err", failed());
    visit("max_abs_err", max_abs_err);
    visit("max_rel_err", max_rel_err);
    visit("us", us);
    visit("us_min", timing.cold.min);
    visit("us_q1", timing.cold.q1);
    visit("us_q3", timing.cold.q3);
    visit("us_cold", us);
    visit("us_hot", timing.hot.median);
    visit("cv_pct", timing.cold.noise * 100);
    visit("samples", timing.cold.count);
    visit("gbps", static_cast<double>(work.bytes) / us * 1e-3);
    visit("tflops", static_cast<double>(work.flops) / us * 1e-6);
    visit("bytes_ideal", work.bytes);
    visit("flops", work.flops);
    visit("roof_us", roof_us);
    visit("roof_pct", roof_us / us * 100);
    visit("model_us", timing.modelled.us);
    visit("model_bound", timing.modelled.bound);
    visit("model_chip", timing.modelled.chip);
    return visit.columns;
  }
};

struct MeasureOptions {
  int threads = 0;                     // of generator and reference; 0: one per core
  double max_seconds = 0.3;            // of cold samples per row
  std::optional<double> ceiling_gbps;  // of reads, copies and writes, instead of the measured or data-sheet ones
  bool measure_ceilings = true;        // else those of the data sheet
  bool inject_error = false;           // damage one element before it is verified: the checks must notice
};

/// The stream, the sampler and the ceilings of all rows of a process.
class Meter {
 public:
  using Log = std::function<void(const std::string&)>;

  Meter(const MeasureOptions& options, Log log) : options_(options), log_(std::move(log)) {
    check_hip(hipStreamCreate(&stream_), "creating a stream");
  }
  Meter(Meter&&) = delete;
  ~Meter() { (void)hipStreamDestroy(stream_); }

  void log(const std::string& text) const { log_(text); }

  /// Looks up the ceilings and calls body(row), which fills in the rest. Never throws: a row that could not be run comes
  /// back with ok false, and why is logged.
  template <class Body>
  Measurement fill(ArchId arch, const Body& body) {
    Measurement row;
    try {
      row.ceilings = ceilings(arch);
      body(row);
    } catch (const std::exception& error) {
      row.ok = false;
      log_(error.what());
    }
    return row;
  }

  /// Times launch(stream), or on the emulated device runs it once; its work is done on return. False if there is nothing
  /// to verify: it answers with a bad Status, which is logged, or its time was modelled.
  template <class Launch>
  bool run(ArchId arch, const Launch& launch, Timing& timing) {
    const auto on_stream = [&]() -> Status { return launch(stream_); };
    if (model_time.on) {
      if (!clock_) clock_ = model_clock(arch);
      timing.modelled = clock_->time(on_stream);
      return false;
    }
    const Status status = emulated_device ? on_stream() : sampler(arch).measure(on_stream, timing);
    if (!status.ok()) {
      log_(std::string(name_of(status.code)) + ": " + status.reason);
      return false;
    }
    check_hip(hipStreamSynchronize(stream_), "running the kernels");
    return true;
  }

 private:
  const Ceilings& ceilings(ArchId arch) {
    if (!ceilings_) {
      const bool measure = !emulated_device && options_.measure_ceilings && !options_.ceiling_gbps;
      ceilings_ = measure ? measured_ceilings(arch, stream_)
                          : Ceilings::all(options_.ceiling_gbps ? *options_.ceiling_gbps * 1e9
                                                                : facts_of(arch).hbm_bytes_per_second);
      const auto gbps = [](double bytes_per_second) { return std::to_string(bytes_per_second * 1e-9); };
      log_("ceilings in GB/s: read " + gbps(ceilings_->read) + ", copy " + gbps(ceilings_->copy) + ", write " +
           gbps(ceilings_->write) +
           (measure                 ? " (measured)"
            : options_.ceiling_gbps ? " (given)"
                                    : " (data sheet)"));
    }
    return *ceilings_;
  }
  Sampler& sampler(ArchId arch) {
    if (!sampler_) sampler_.emplace(facts_of(arch), StopRule{.max_seconds = options_.max_seconds}, stream_);
    return *sampler_;
  }

  MeasureOptions options_;
  Log log_;
  hipStream_t stream_{};
  std::optional<Sampler> sampler_;
  std::unique_ptr<ModelClock> clock_;
  std::optional<Ceilings> ceilings_;
};

}  // namespace tilewave::bench
