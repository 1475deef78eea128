// SPDX-License-Identifier: MIT
// The results that every row of every benchmark has for one call, and the tools that all rows of a process share to
// measure them.
#pragma once

#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "bench/harness/ceiling.hpp"
#include "bench/harness/column.hpp"
#include "bench/harness/launch_bundle.hpp"
#include "bench/harness/sampler.hpp"
#include "bench/harness/work.hpp"

namespace tilewave::bench {

struct Measurement {
  bool ok = false;  // true: the call ran and was verified
  double max_abs_err = std::numeric_limits<double>::quiet_NaN();
  double max_rel_err = std::numeric_limits<double>::quiet_NaN();
  Timing timing;  // empty on the emulated device
  Work work;
  Ceilings ceilings;

  bool failed() const { return !ok && !timing.modelled.known(); }

  /// Returns the numbers that people look at first.
  std::vector<std::pair<const char*, double>> console() const;

  /// Returns the same columns for every op, whatever happened to the row.
  Columns columns() const;
};

struct MeasureOptions {
  int threads = 0;                     // threads of generator and reference; 0: one per core
  double max_seconds = 0.3;            // time of cold samples per row
  std::optional<double> ceiling_gbps;  // ceilings of reads, copies and writes, in place of measured or data-sheet ones
  bool measure_ceilings = true;        // false: the ceilings are those of the data sheet
  bool inject_error = false;           // damages one element before verification, so the checks must fail
};

/// The stream, the sampler and the ceilings of all rows of a process.
class Meter {
 public:
  using Log = std::function<void(const std::string&)>;

  Meter(const MeasureOptions& options, Log log);
  Meter(Meter&&) = delete;
  ~Meter();

  void log(const std::string& text) const { log_(text); }

  /// Looks up the ceilings and calls body(row), which fills in the rest. It never throws: a row that could not be run
  /// comes back with ok false, and the reason is logged.
  Measurement fill(ArchId arch, const std::function<void(Measurement&)>& body);

  /// Times launch(stream), or runs it once on the emulated device. Its work is done on return. Returns false if there
  /// is nothing to verify: the launch returned a bad Status, which is logged, or its time was modelled. A bundle of the
  /// row, if one is requested, has expected values of `outputs`.
  bool run(ArchId arch, const std::function<Status(hipStream_t)>& launch, Timing& timing,
           std::span<const TwinBuffer* const> outputs);

 private:
  void make_stream();  // made with the first row: a list of rows needs no device
  const Ceilings& ceilings(ArchId arch);
  Sampler& sampler(ArchId arch);

  MeasureOptions options_;
  Log log_;
  hipStream_t stream_{};
  bool has_stream_ = false;
  std::optional<Sampler> sampler_;
  std::unique_ptr<ModelClock> clock_;
  std::optional<Ceilings> ceilings_;
};

}  // namespace tilewave::bench
