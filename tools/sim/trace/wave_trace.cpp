// SPDX-License-Identifier: MIT
#include "sim/trace/wave_trace.hpp"

#include <algorithm>
#include <cmath>

namespace tilewave::sim {

std::uint8_t trace_kind(const Pace& pace, const Op& op, bool jumped) {
  switch (pace.unit) {
    case Unit::smem: return 1;
    case Unit::salu: return 2;
    case Unit::vmem: return op.text.starts_with("buffer") ? 3 : 4;
    case Unit::lds: return 5;
    case Unit::valu:
    case Unit::matrix: return 6;
    case Unit::branch: return jumped ? 7 : 8;
    case Unit::wait:
    case Unit::barrier:
    case Unit::idle: return 9;
    case Unit::end: return 11;
  }
  return 9;
}

TracedWave* WaveTrace::start(int cu, int simd, int slot, double t) {
  occupancy_.push_back({t, cu, simd, slot, true});
  if (cu >= shader_engines) return nullptr;  // the first CU of each
  std::size_t steps = 0;
  int number = 0;
  for (const TracedWave& wave : waves_) {
    steps += wave.steps.size();
    number += wave.cu == cu && wave.simd == simd && wave.slot == slot;
  }
  if (steps >= most_steps) return nullptr;
  waves_.push_back({.cu = cu, .simd = simd, .slot = slot, .number = number, .begin = t, .end = t});
  return &waves_.back();
}

void TracedWave::record(const TraceStep& step, const Pace& pace) {
  steps.push_back(step);
  end = step.attempt + step.duration;
  if (pace.unit == Unit::vmem) vm.push_back(step.op);
  if (pace.unit == Unit::lds || pace.unit == Unit::smem) lgkm.push_back(step.op);
  if (pace.unit != Unit::wait) return;
  std::vector<std::uint32_t> waited;
  const auto take = [&](std::deque<std::uint32_t>& queue, int limit) {
    for (; limit >= 0 && static_cast<int>(queue.size()) > limit; queue.pop_front()) waited.push_back(queue.front());
  };
  take(vm, pace.vm_limit);
  take(lgkm, pace.lgkm_limit);
  if (!waited.empty()) producers.emplace_back(step.op, std::move(waited));
}

std::vector<StateRun> TracedWave::states() const {
  std::vector<StateRun> runs;
  std::int64_t at = std::llround(begin);
  const auto until = [&](double time, WaveState state) {
    const std::int64_t to = std::llround(time);
    if (to <= at) return;
    if (!runs.empty() && runs.back().state == state)
      runs.back().to = to;
    else
      runs.push_back({state, at, to});
    at = to;
  };
  for (const TraceStep& step : steps) {
    until(step.attempt, WaveState::idle);
    until(step.attempt + step.stall, step.waits ? WaveState::wait : WaveState::stall);
    until(step.attempt + step.duration, WaveState::exec);
  }
  return runs;
}

std::pair<std::size_t, std::size_t> ops_of_kernel(const CodeObject& object, const std::string& symbol) {
  const std::uint64_t entry = object.kernels.at(symbol).entry;
  std::uint64_t next = ~std::uint64_t{0};
  for (const auto& [name, kernel] : object.kernels)
    if (kernel.entry > entry) next = std::min(next, kernel.entry);
  const std::size_t first = object.program.at(entry);
  std::size_t end = first;
  while (end < object.program.ops.size() && object.program.ops[end].address < next) ++end;
  while (end > first + 1 && object.program.ops[end - 1].text.starts_with("s_nop")) --end;  // fetched ahead, never run
  return {first, end};
}

}  // namespace tilewave::sim
