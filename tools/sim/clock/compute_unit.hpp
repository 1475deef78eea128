// SPDX-License-Identifier: MIT
// One compute unit in time: waves run on four SIMDs, the oldest ready one first, one instruction of a class and SIMD at
// a time.
#pragma once

#include <deque>
#include <limits>
#include <memory>

#include "sim/clock/timed_pass.hpp"
#include "sim/trace/wave_trace.hpp"

namespace tilewave::sim {

constexpr double never = std::numeric_limits<double>::infinity();

/// State that all CUs of a timed launch share.
struct TimedLaunch {
  const Context& context;
  const std::vector<Pace>& paces;
  const ArchClock& clock;
  XcdMemory& memory;
  std::vector<OpClock>& ops;
  std::vector<Touch> touched{};
  std::vector<std::uint32_t> lds_touched{};
  std::uint64_t instructions = 0, loaded = 0;  // bytes of vector loads
  double matrix_flops = 0;
  WaveTrace* trace = nullptr;
  bool whole_chip = false;  // all blocks that a wave may wait for are timed with it
};

struct TimedWave {
  Wave* wave = nullptr;
  int simd = 0, slot = 0, priority = 0;
  TracedWave* traced = nullptr;
  std::uint64_t age = 0;
  double ready = 0;       // the last instruction lets the next one go
  std::size_t index = 0;  // in the order of its CU
  double scc_ready = 0;
  bool after_valu = false;
  int waiting = 0;           // scalar instructions since it did anything else
  std::uint64_t polled = 0;  // the load it did last,
  int polls = 0;             // how often in a row, from the same place
  Stall why = Stall::none;
  std::deque<double> vm, lgkm;  // outstanding: when they are done
  std::vector<double> vector_ready;
  std::array<double, scalar_registers> scalar_ready{};
};

struct TimedBlock {
  Block block;
  std::vector<TimedWave> waves;
  int ended = 0;
  double started = 0;
  std::uint64_t number = 0, instructions = 0, loaded = 0;
};

class ComputeUnit {
 public:
  ComputeUnit(TimedLaunch& launch, int number) : launch_(launch), number_(number) {}

  void start_block(std::uint64_t block, double t);
  /// Issue everything that goes at time `t`; blocks that end are moved to `finished`.
  void step(double t, std::vector<std::unique_ptr<TimedBlock>>& finished);
  double next() const { return next_; }
  const std::vector<std::unique_ptr<TimedBlock>>& blocks() const { return blocks_; }

  double valu_busy = 0, matrix_busy = 0, lds_busy = 0, vmem_busy = 0;

 private:
  struct Simd {
    double valu = 0, matrix = 0, salu = 0, branch = 0, vmem = 0, lds = 0;
  };
  double earliest(TimedWave& w, double t);
  void issue(TimedBlock& block, TimedWave& w, double t);
  void issue_memory(TimedBlock& block, TimedWave& w, const Pace& pace, double t);
  void note_poll(TimedWave& w, std::size_t pc, const Pace& pace) const;
  void trace_step(TimedWave& w, std::size_t pc, double attempt, double t);
  void trace_end(TimedWave& w, double t);
  void release_barrier(TimedBlock& block, double t);

  TimedLaunch& launch_;
  int number_;
  std::array<Simd, 4> simds_{};
  double ta_free_ = 0, next_ = never;
  std::array<double, 2> lds_free_{};
  std::array<std::uint32_t, 4> slots_{};  // of each SIMD, those taken
  std::vector<bool> fetched_;
  std::map<std::uint64_t, double> scalar_lines_;
  std::vector<std::unique_ptr<TimedBlock>> blocks_;
  /// A wave in its turn, and when it is worth trying again; together, for all are asked at every step.
  struct Turn {
    double next;
    TimedBlock* block;
    TimedWave* wave;
  };
  void number_turns();

  std::vector<Turn> order_;  // by priority, then age
  bool ordered_ = true;
  std::uint64_t ages_ = 0;
  int first_simd_ = 0;
};

}  // namespace tilewave::sim
