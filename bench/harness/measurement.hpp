// SPDX-License-Identifier: MIT
// The results that every row of every benchmark has for one call, and the tools that all rows of a process share to
// measure them.
#pragma once

#include <array>
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

/// Which states a row is measured in: one, or first rested, then sustained.
enum class StateChoice : int { as_is, rested, sustained, both };
constexpr const char* name_of(StateChoice s) {
  constexpr const char* names[] = {"as_is", "rested", "sustained", "both"};
  return names[static_cast<int>(s)];
}

inline constexpr std::array all_state_choices{StateChoice::as_is, StateChoice::rested, StateChoice::sustained,
                                              StateChoice::both};

/// What a row is compared with, in turns by sample on the same device and stream.
struct Beside {
  std::vector<Side> peers;             // of these the fastest that answers with a good Status
  std::function<void()> prepare_peer;  // once it is chosen, before its timed calls: poisons what it writes
  std::int64_t floor_bytes = 0;        // above 0: a plain read of so many is timed as well
};

/// Times of the side that is measured and of those beside it, in one state of the chip.
struct StateTiming {
  SideTiming own, peer;
  SampleStats floor;
};

struct Timing {
  StateTiming main;           // in the state asked for, or with --state=both when rested
  StateTiming sustained;      // with --state=both alone
  std::string peer = "none";  // name of the side that was chosen
  ModelledTime modelled;      // with --model-time, in place of these
};

struct Measurement {
  bool ok = false;  // true: the call ran and was verified
  double max_abs_err = std::numeric_limits<double>::quiet_NaN();
  double max_rel_err = std::numeric_limits<double>::quiet_NaN();
  double peer_rel_err = std::numeric_limits<double>::quiet_NaN();  // of the peer's output, as max_rel_err
  StateChoice state = StateChoice::as_is;
  Timing timing;  // empty on the emulated device
  Work work;
  Ceilings ceilings;
  Columns results{};  // columns of this benchmark alone, see RowFacts

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
  StateChoice state = StateChoice::as_is;
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

  /// Times launch(stream), or on the emulated device runs it once; its work is done on return. False if there is nothing
  /// to verify: it answers with a bad Status, which is logged, or its time was modelled. `outputs`: what a bundle of the
  /// row, if one is asked for, has expected values of. `beside`: what a GPU times in turns with it.
  bool run(ArchId arch, const std::function<Status(hipStream_t)>& launch, Timing& timing,
           std::span<const TwinBuffer* const> outputs, const Beside& beside = {});

 private:
  void make_stream();  // made with the first row: a list of rows needs no device
  Status measure(ArchId arch, const Side& own, const Beside& beside, Timing& timing);
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
