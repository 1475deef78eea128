// SPDX-License-Identifier: MIT
#include "sim/clock/compute_unit.hpp"

#include <algorithm>
#include <bit>

namespace tilewave::sim {
namespace {

constexpr const CommonClock& k = common_clock;

void drop_done(std::deque<double>& queue, double t) {
  while (!queue.empty() && queue.front() <= t) queue.pop_front();
}

/// Returns when at most `limit` entries of the queue are left.
double left(const std::deque<double>& queue, int limit) {
  const int over = static_cast<int>(queue.size()) - limit;
  return over > 0 ? queue[static_cast<std::size_t>(over - 1)] : 0;
}

}  // namespace

void ComputeUnit::start_block(std::uint64_t number, double t) {
  auto made = std::make_unique<TimedBlock>();
  launch_.context.start(made->block, number);
  made->started = t;
  made->number = number;
  made->waves.resize(made->block.waves.size());
  if (fetched_.empty()) fetched_.resize(launch_.paces.size() / 8 + 2);
  for (std::size_t i = 0; i < made->waves.size(); ++i) {
    TimedWave& w = made->waves[i];
    w.wave = made->block.waves[i].get();
    w.simd = (first_simd_ + static_cast<int>(i)) % 4;
    w.age = ages_++;
    w.ready = t + k.wave_start + static_cast<double>(i);
    w.vector_ready.resize(vector_registers);
    w.index = order_.size();
    order_.push_back({w.ready, made.get(), &w});
    w.slot = std::countr_one(slots_[static_cast<std::size_t>(w.simd)]);
    slots_[static_cast<std::size_t>(w.simd)] |= 1u << w.slot;
    if (launch_.trace) w.traced = launch_.trace->start(number_, w.simd, w.slot, t + static_cast<double>(i));
  }
  first_simd_ = (first_simd_ + static_cast<int>(made->waves.size())) % 4;
  next_ = std::min(next_, t + k.wave_start);
  blocks_.push_back(std::move(made));
}

/// The earliest time the wave's next instruction may go, and what it waits for until then.
double ComputeUnit::earliest(TimedWave& w, double t) {
  const std::size_t pc = w.wave->pc;
  const Pace& pace = launch_.paces[pc];
  Simd& simd = simds_[static_cast<std::size_t>(w.simd)];
  double at = w.ready;
  w.why = Stall::none;
  const auto until = [&](double time, Stall why) {
    if (time > at) at = time, w.why = why;
  };
  switch (pace.unit) {
    case Unit::valu:
      until(simd.valu, Stall::valu);
      if (pace.packed && simd.matrix > at) until(simd.matrix + launch_.clock.packed_after_matrix, Stall::matrix);
      for (int i = 0; i < pace.sources; ++i) until(w.vector_ready[pace.source[i]], Stall::valu);
      break;
    case Unit::matrix:
      until(simd.valu, Stall::valu);
      until(simd.matrix, Stall::matrix);
      break;
    case Unit::salu:
    case Unit::smem:
      until(simd.salu, Stall::scalar);
      for (int i = 0; i < pace.sources; ++i) until(w.scalar_ready[pace.source[i]], Stall::scalar);
      break;
    case Unit::branch:
      until(simd.branch, Stall::scalar);
      if (pace.reads_scc)
        until(w.scc_ready, Stall::scalar);
      else
        until(std::max(w.scalar_ready[vcc_lo], w.scalar_ready[exec_lo]), Stall::scalar);
      break;
    case Unit::vmem:
      if (w.after_valu) until(w.ready + k.valu_to_memory, Stall::valu);
      until(simd.vmem, Stall::vmem);
      until(ta_free_ - k.vmem_queue, Stall::vmem);
      drop_done(w.vm, t);
      if (w.vm.size() >= 63) until(w.vm.front(), Stall::vmem);
      if (at <= t) {
        const double room = launch_.memory.room(number_, t);
        if (room > t) until(std::max(room, t + 16), Stall::vmem);
      }
      break;
    case Unit::lds:
      if (w.after_valu) until(w.ready + k.valu_to_memory, Stall::valu);
      until(simd.lds, Stall::lds);
      until(lds_free_[static_cast<std::size_t>(w.simd / 2)] - k.lds_queue, Stall::lds);
      break;
    case Unit::wait:
      if (pace.vm_limit >= 0) until(left(w.vm, pace.vm_limit), Stall::vmcnt);
      if (pace.lgkm_limit > 0) until(left(w.lgkm, pace.lgkm_limit), Stall::lgkmcnt);
      if (pace.lgkm_limit == 0 && !w.lgkm.empty())
        until(*std::max_element(w.lgkm.begin(), w.lgkm.end()), Stall::lgkmcnt);
      break;
    case Unit::barrier:
    case Unit::idle:
    case Unit::end: break;
  }
  return at;
}

void ComputeUnit::issue_memory(TimedBlock& block, TimedWave& w, const Pace& pace, double t) {
  Simd& simd = simds_[static_cast<std::size_t>(w.simd)];
  if (pace.unit == Unit::lds) {
    const std::size_t port = static_cast<std::size_t>(w.simd / 2);
    const double taken =
        launch_.lds_touched.empty() ? 8 : lds_time(launch_.clock, pace, launch_.lds_touched, pace.store);
    const double start = std::max(lds_free_[port], t);
    lds_free_[port] = start + taken;
    lds_busy += taken / 2;
    const double latency = pace.lds_bytes >= 12 ? launch_.clock.lds_latency_wide : launch_.clock.lds_latency_narrow;
    const double last = w.lgkm.empty() ? 0 : w.lgkm.back();
    w.lgkm.push_back(std::max(last, lds_free_[port] + latency - 4));
    simd.lds = t + k.issue;
    return;
  }
  if (pace.unit == Unit::smem) {
    simd.salu = t + k.issue;
    double done = t + k.scalar_hit;
    for (const Touch& touch : launch_.touched) {
      const std::uint64_t line = touch.address / static_cast<std::uint64_t>(k.scalar_line);
      const auto known = scalar_lines_.find(line);
      if (known == scalar_lines_.end())
        done = std::max(done, scalar_lines_[line] = launch_.memory.scalar(t, touch.address));
      else
        done = std::max(done, known->second);
    }
    w.lgkm.push_back(done);
    return;
  }
  std::uint64_t bytes = 0;
  for (const Touch& touch : launch_.touched) bytes += touch.bytes;
  if (!pace.store && !pace.atomic) launch_.loaded += bytes, block.loaded += bytes;
  const double start = std::max(ta_free_, t), lines = launch_.memory.traffic().l1;
  double done = launch_.memory.access(number_, start, launch_.touched,
                                      pace.store    ? Access::store
                                      : pace.atomic ? Access::atomic
                                                    : Access::load);
  const double taken = std::max({4.0, static_cast<double>(bytes) / k.vmem_data,  // or a line a clk
                                 (launch_.memory.traffic().l1 - lines) / k.line});
  ta_free_ = start + taken;
  vmem_busy += taken;
  done = std::max(done, ta_free_ + (launch_.touched.empty() ? 0 : k.l1_latency - 16));
  w.vm.push_back(std::max(w.vm.empty() ? 0 : w.vm.back(), done));
  simd.vmem = t + k.issue;
}

/// A wave that loads the same word again and again, and nothing else, waits for another to write it.
void ComputeUnit::note_poll(TimedWave& w, std::size_t pc, const Pace& pace) const {
  if (launch_.whole_chip || (pace.unit != Unit::vmem && pace.unit != Unit::smem) || launch_.touched.empty()) return;
  const std::uint64_t load = launch_.touched.front().address ^ pc << 48;
  w.polls = !pace.store && !pace.atomic && load == w.polled ? w.polls + 1 : 0;
  w.polled = load;
  if (w.polls > longest_poll) throw BlocksWait();
}

void ComputeUnit::trace_step(TimedWave& w, std::size_t pc, double attempt, double t) {
  const Pace& pace = launch_.paces[pc];
  const Op& op = launch_.context.object.program.ops[pc];
  w.traced->record({.attempt = attempt,
                    .stall = t - attempt,
                    .duration = t - attempt + pace.issue,
                    .op = static_cast<std::uint32_t>(pc),
                    .kind = trace_kind(pace, op, w.wave->pc != pc + 1),
                    .waits = pace.unit == Unit::wait || pace.unit == Unit::barrier},
                   pace);
}

void ComputeUnit::trace_end(TimedWave& w, double t) {
  slots_[static_cast<std::size_t>(w.simd)] &= ~(1u << w.slot);
  if (launch_.trace) launch_.trace->end(number_, w.simd, w.slot, t + k.issue);
}

void ComputeUnit::release_barrier(TimedBlock& block, double t) {
  int arrived = 0;
  for (const TimedWave& w : block.waves) arrived += w.wave->status == WaveStatus::at_barrier;
  if (arrived + block.ended < static_cast<int>(block.waves.size()) || arrived == 0) return;
  ++block.block.epoch;
  for (const auto& w : block.block.waves) w->published = w->arrived;
  for (TimedWave& w : block.waves) {
    if (w.wave->status != WaveStatus::at_barrier) continue;
    w.wave->status = WaveStatus::running;
    launch_.ops[w.wave->pc - 1].stall[static_cast<std::size_t>(Stall::barrier)] += std::max(0.0, t - w.ready);
    if (w.traced) {  // a barrier waits at itself
      TraceStep& step = w.traced->steps.back();
      const double waited = std::max(0.0, t + k.barrier - w.ready);
      step.stall += waited, step.duration += waited, w.traced->end += waited;
    }
    w.ready = order_[w.index].next = t + k.barrier;
  }
}

void ComputeUnit::issue(TimedBlock& block, TimedWave& w, double t) {
  Wave& wave = *w.wave;
  const std::size_t pc = wave.pc;
  const Pace& pace = launch_.paces[pc];
  const Op& op = launch_.context.object.program.ops[pc];
  Simd& simd = simds_[static_cast<std::size_t>(w.simd)];
  OpClock& profile = launch_.ops[pc];
  ++profile.hits;
  ++launch_.instructions;
  ++block.instructions;
  profile.issue += pace.issue;
  profile.stall[static_cast<std::size_t>(w.why)] += t - w.ready;
  const double attempt = w.ready;
  double then = t + pace.issue;
  const bool works =
      pace.unit == Unit::valu || pace.unit == Unit::matrix || pace.unit == Unit::vmem || pace.unit == Unit::lds;
  w.waiting = works ? 0 : w.waiting + 1;
  if (w.waiting > longest_wait && !launch_.whole_chip) throw BlocksWait();

  if (pace.unit == Unit::matrix) {
    ++wave.pc;  // the product itself is left out
    launch_.matrix_flops += pace.flops;
  } else {
    launch_.touched.clear();
    launch_.lds_touched.clear();
    launch_.context.memory.touched = &launch_.touched;
    block.block.lds_touched = pace.unit == Unit::lds ? &launch_.lds_touched : nullptr;
    launch_.context.step(wave);
    launch_.context.memory.touched = nullptr;
    note_poll(w, pc, pace);
  }
  switch (pace.unit) {
    case Unit::valu:
      simd.valu = t + pace.taken;
      valu_busy += pace.taken;
      if (pace.result && op.arg[0].is_vector()) w.vector_ready[op.arg[0].reg] = t + pace.result;
      if (pace.scalar_result && op.arg[0].kind == Kind::scalar) w.scalar_ready[op.arg[0].reg] = t + k.compare_to_scalar;
      break;
    case Unit::matrix:
      simd.valu = t + pace.issue;
      valu_busy += pace.issue;
      simd.matrix = t + pace.matrix;
      matrix_busy += pace.matrix;
      break;
    case Unit::salu:
      simd.salu = t + k.issue;
      w.scc_ready = t + k.scc_to_branch;
      break;
    case Unit::branch:
      simd.branch = t + k.issue;
      then = t + (wave.pc == pc + 1 ? k.branch_not : k.branch_taken);
      break;
    case Unit::smem:
    case Unit::vmem:
    case Unit::lds: issue_memory(block, w, pace, t); break;
    case Unit::wait:
      drop_done(w.vm, t);
      if (pace.lgkm_limit == 0)
        w.lgkm.clear();
      else
        drop_done(w.lgkm, t);
      break;
    case Unit::idle:
      if (op.text.starts_with("s_setprio") && w.priority != (op.simm16() & 3)) {
        w.priority = op.simm16() & 3;
        ordered_ = false;
      }
      break;
    case Unit::barrier:
    case Unit::end: break;
  }
  w.after_valu = pace.unit == Unit::valu;
  const std::size_t line = wave.pc / 8;
  if (line < fetched_.size() && !fetched_[line]) fetched_[line] = true, then += k.fetch_line;
  double& next = order_[w.index].next;
  w.ready = next = then;
  if (w.traced) trace_step(w, pc, attempt, t);
  if (wave.status == WaveStatus::ended) {
    next = never;
    ++block.ended;
    trace_end(w, t);
    release_barrier(block, t);
  } else if (wave.status == WaveStatus::at_barrier) {
    next = never;
    release_barrier(block, t);
  }
}

void ComputeUnit::number_turns() {
  for (std::size_t i = 0; i < order_.size(); ++i) order_[i].wave->index = i;
}

void ComputeUnit::step(double t, std::vector<std::unique_ptr<TimedBlock>>& finished) {
  if (!ordered_) {
    std::stable_sort(order_.begin(), order_.end(),
                     [](const Turn& a, const Turn& b) { return a.wave->priority > b.wave->priority; });
    number_turns();
    ordered_ = true;
  }
  bool ended = false;
  for (Turn& turn : order_) {
    if (turn.next > t) continue;
    const double at = earliest(*turn.wave, t);
    if (at > t) {
      turn.next = at;
      continue;
    }
    issue(*turn.block, *turn.wave, t);
    ended |= turn.block->ended == static_cast<int>(turn.block->waves.size());
  }
  if (ended) {
    for (auto& block : blocks_)
      if (block->ended == static_cast<int>(block->waves.size())) finished.push_back(std::move(block));
    std::erase_if(order_,
                  [](const Turn& turn) { return turn.block->ended == static_cast<int>(turn.block->waves.size()); });
    number_turns();
    std::erase(blocks_, nullptr);
  }
  next_ = never;
  for (const Turn& turn : order_) next_ = std::min(next_, turn.next);
  if (next_ <= t) next_ = t + 1;
}

}  // namespace tilewave::sim
