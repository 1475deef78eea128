// SPDX-License-Identifier: MIT
// The actions of some waves of a timed launch and their times, as hardware's thread trace reports them for one CU of
// each shader engine.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "sim/clock/issue_cost.hpp"
#include "sim/programs/code_object.hpp"

namespace tilewave::sim {

constexpr int shader_engines = 4;  // of an XCD; its CUs are dealt to them in turn

/// The numbers are those of the profiler's enum, rocprofiler_thread_trace_decoder_wstate_type_t.
enum class WaveState : std::uint8_t { empty, idle, exec, wait, stall };

/// One instruction of a wave: clk of the first try, clk until it was issued, clk until its port was free again.
struct TraceStep {
  double attempt = 0, stall = 0, duration = 0;  // duration: with the stall
  std::uint32_t op = 0;
  std::uint8_t kind = 0;
  bool waits = false;
};

/// The profiler's number: 1 SMEM, 2 SALU, 3 buffer, 4 global, 5 LDS, 6 VALU, 7 branch taken, 8 not, 9 wait, 11 end.
std::uint8_t trace_kind(const Pace& pace, const Op& op, bool jumped);

struct StateRun {
  WaveState state;
  std::int64_t from, to;  // clk
};

struct TracedWave {
  int cu, simd, slot, number;  // number: of its slot, counted
  double begin, end;
  std::vector<TraceStep> steps{};
  std::deque<std::uint32_t> vm{}, lgkm{};                                         // operations not yet waited for
  std::vector<std::pair<std::uint32_t, std::vector<std::uint32_t>>> producers{};  // of each wait

  void record(const TraceStep& step, const Pace& pace);
  std::vector<StateRun> states() const;
};

struct OccupancyChange {
  double t;
  int cu, simd, slot;
  bool starts;
};

class WaveTrace {
 public:
  /// The wave, to be told of its steps, or null where it is not traced: after so many steps no further wave is.
  TracedWave* start(int cu, int simd, int slot, double t);
  void end(int cu, int simd, int slot, double t) { occupancy_.push_back({t, cu, simd, slot, false}); }

  const std::deque<TracedWave>& waves() const { return waves_; }
  const std::vector<OccupancyChange>& occupancy() const { return occupancy_; }

 private:
  static constexpr std::size_t most_steps = 200'000;
  std::deque<TracedWave> waves_;
  std::vector<OccupancyChange> occupancy_;
};

/// The origin that all files state.
struct TraceOrigin {
  const CodeObject& object;
  std::string symbol, chip;  // of the kernel's descriptor
  double cycles, mhz;
};

/// The files that AMD's viewer and hot-spot tools read, into a folder that is made; marked as modelled.
void write_thread_trace(const std::string& folder, const WaveTrace& trace, const TraceOrigin& origin);
/// A picture of the waves' states over time.
std::string timeline_svg(const WaveTrace& trace, const TraceOrigin& origin);
/// A kernel's instructions: from its entry to the next kernel's, without what fills up its end.
std::pair<std::size_t, std::size_t> ops_of_kernel(const CodeObject& object, const std::string& symbol);

}  // namespace tilewave::sim
