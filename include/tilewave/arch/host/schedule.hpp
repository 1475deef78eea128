// SPDX-License-Identifier: MIT
// Chooses the lane that runs next, and implements the ways in which a lane stops: a collective of its wave (a wait at
// an mbarrier is one), a barrier of its block or cluster, its return.
#pragma once

#include "tilewave/arch/host/mbarrier.hpp"
#include "tilewave/arch/host/product.hpp"

#if !TILEWAVE_ON_GPU_COMPILER

#include <bit>

// A step between lanes: every frame less that a waiting lane leaves on its stack is memory less to bring back.
#if defined(TILEWAVE_HOST_TSAN)
#define TILEWAVE_HOST_STEP TILEWAVE_HOST_UNTRACKED inline
#else
#define TILEWAVE_HOST_STEP __attribute__((always_inline)) inline
#endif

namespace tilewave::host {

namespace detail {

/// These return the lowest and the highest set bit of `mask`, which is not 0.
TILEWAVE_HOST_UNTRACKED inline int lowest(WaveSet mask) {
  const auto low = static_cast<std::uint64_t>(mask);
  return low != 0 ? std::countr_zero(low) : 64 + std::countr_zero(static_cast<std::uint64_t>(mask >> 64));
}
TILEWAVE_HOST_UNTRACKED inline int highest(WaveSet mask) {
  const auto high = static_cast<std::uint64_t>(mask >> 64);
  return high != 0 ? 127 - std::countl_zero(high) : 63 - std::countl_zero(static_cast<std::uint64_t>(mask));
}
/// Returns a set bit of `mask` (not 0): the next above `after`, cyclically.
TILEWAVE_HOST_UNTRACKED inline int next_above(WaveSet mask, int after) {
  const WaveSet above = mask & (~WaveSet{1} << after);
  return lowest(above != 0 ? above : mask);
}
TILEWAVE_HOST_UNTRACKED inline int next_below(WaveSet mask, int before) {
  const WaveSet below = mask & ((WaveSet{1} << before) - 1);
  return highest(below != 0 ? below : mask);
}
TILEWAVE_HOST_UNTRACKED inline int any_of(WaveSet mask, std::uint64_t random) {
  const int count =
      std::popcount(static_cast<std::uint64_t>(mask)) + std::popcount(static_cast<std::uint64_t>(mask >> 64));
  for (std::uint64_t skip = random % static_cast<std::uint64_t>(count); skip > 0; --skip) mask &= mask - 1;
  return lowest(mask);
}

/// Returns the slot of the wave that one_wave_behind keeps back, or -1 with the other schedules.
TILEWAVE_HOST_UNTRACKED inline int kept_back(const Cluster& cluster) {
  if (cluster.options.schedule != Schedule::one_wave_behind) return -1;
  return static_cast<int>(cluster.options.seed % static_cast<std::uint64_t>(cluster.waves()));
}

/// Returns the wave to continue with among the runnable ones (at least one), after `from` has done all it can.
TILEWAVE_HOST_UNTRACKED inline Wave& next_wave(Cluster& cluster, int from) {
  switch (cluster.options.schedule) {
    case Schedule::lockstep: return *cluster.wave[next_above(cluster.runnable, from)];
    case Schedule::reverse: return *cluster.wave[next_below(cluster.runnable, from)];
    case Schedule::first_wave_ahead: return *cluster.wave[lowest(cluster.runnable)];
    case Schedule::last_wave_ahead: return *cluster.wave[highest(cluster.runnable)];
    case Schedule::one_wave_behind: {
      const WaveSet behind = WaveSet{1} << kept_back(cluster);
      if ((cluster.runnable & ~behind) == 0 && cluster.copies_in_flight != 0) land_awaited(*current_lane, behind);
      const WaveSet others = cluster.runnable & ~behind;
      return *cluster.wave[next_above(others != 0 ? others : cluster.runnable, from)];
    }
    case Schedule::random: break;
  }
  return *cluster.wave[any_of(cluster.runnable, cluster.draw())];
}

/// Returns the lane to continue with among the ready ones of `wave` (at least one). `from` is the lane before; -1 or 64
/// is the wave's beginning.
TILEWAVE_HOST_UNTRACKED inline Lane& next_lane(Cluster& cluster, Wave& wave, int from) {
  if (cluster.options.schedule == Schedule::random) return *wave.lane[any_of(wave.ready, cluster.draw())];
  if (cluster.options.schedule == Schedule::reverse) return *wave.lane[next_below(wave.ready, from)];
  return *wave.lane[next_above(wave.ready, from)];
}

/// Returns the first lane of the wave that the schedule chooses; `from` is the wave that ran last.
TILEWAVE_HOST_UNTRACKED inline Lane& first_lane(Cluster& cluster, int from) {
  Wave& wave = next_wave(cluster, from);
  return next_lane(cluster, wave, cluster.options.schedule == Schedule::reverse ? 0 : 63);
}

TILEWAVE_HOST_UNTRACKED inline void go(Lane& self, Lane& next) {
  if (&next == &self) return;
  current_lane = &next;
  switch_fiber(self.stack.fiber, next.stack.fiber);
}

/// Lets the schedule choose again; `self` stays ready.
TILEWAVE_HOST_UNTRACKED inline void yield(Lane& self) {
  Cluster& cluster = *self.cluster;
  const bool random = cluster.options.schedule == Schedule::random;
  if (random && cluster.copies_in_flight != 0 && cluster.draw() % 2 == 0) land_any(self);
  go(self, first_lane(cluster, self.wave->slot));
}

/// `self` cannot run for now, and the next lane of its wave is not simply the one that follows. When nobody can run,
/// bulk copies land. When that helps nobody, the cluster is stuck: only lanes at a barrier that others never reached
/// are left, since collectives fail where they diverge.
TILEWAVE_HOST_UNTRACKED inline void stop_wave(Lane& self) {
  Cluster& cluster = *self.cluster;
  Wave& wave = *self.wave;
  if (wave.ready == 0) cluster.runnable &= ~(WaveSet{1} << wave.slot);
  if (cluster.runnable == 0) land_awaited(self);
  if (cluster.runnable == 0) {
    report_awaited(self);
    report_groups(self);
    const Wave* waiting = &wave;
    for (int w = 0; w < cluster.waves(); ++w) {
      if (cluster.wave[w]->at_barrier != 0) waiting = cluster.wave[w];
    }
    const Meeting& meeting = waiting->of_cluster ? static_cast<const Meeting&>(cluster) : *waiting->block;
    fail(self, "barrier divergence: only %d of %d lanes arrived at %s:%d, the other %d returned", meeting.arrived,
         waiting->of_cluster ? cluster.lanes() : cluster.block_lanes, waiting->barrier.base_name(),
         waiting->barrier.line, meeting.returned);
  }
  const bool stay = wave.ready != 0 && cluster.options.schedule != Schedule::random && wave.slot != kept_back(cluster);
  go(self, stay ? next_lane(cluster, wave, self.index) : first_lane(cluster, wave.slot));
}

/// `self` cannot run for now. Most switches of an emulated kernel are this one, to the next lane of the wave.
TILEWAVE_HOST_STEP void stop(Lane& self) {
  Wave& wave = *self.wave;
  const std::uint64_t ready = wave.ready & ~(std::uint64_t{1} << self.index);
  wave.ready = ready;
  if (ready == 0 || !self.cluster->ascending) return stop_wave(self);
  const std::uint64_t above = ready & (~std::uint64_t{0} << self.index << 1);
  Lane& next = *wave.lane[__builtin_ctzll(above != 0 ? above : ready)];
  // The stack of the one after it is on its way meanwhile. Waves have 32 or 64 lanes.
  __builtin_prefetch(wave.lane[(next.index + 1) & (wave.lanes - 1)]->stack.fiber.context);
  current_lane = &next;
  switch_fiber(self.stack.fiber, next.stack.fiber);
}

/// The lane's call is not the one in which others of its wave wait, or comes when some of them are elsewhere.
[[noreturn]] __attribute__((noinline)) TILEWAVE_HOST_UNTRACKED inline void fail_collective(Lane& self,
                                                                                           const Collective& call) {
  const Wave& wave = *self.wave;
  const Collective& other = wave.collective;
  if (wave.arrived != 0 && !(other == call)) {
    fail(self, "wave divergence: this lane calls %s (%d) at %s:%d while %d of %d lanes wait in %s (%d) at %s:%d",
         name_of(call.kind), call.immediate, call.where.base_name(), call.where.line, wave.arrived, wave.lanes,
         name_of(other.kind), other.immediate, other.where.base_name(), other.where.line);
  }
  fail(self, "wave divergence: this lane calls %s at %s:%d, but of %d lanes %d wait at a barrier and %d returned",
       name_of(call.kind), call.where.base_name(), call.where.line, wave.lanes, std::popcount(wave.at_barrier),
       std::popcount(wave.returned));
}

}  // namespace detail

/// Every lane of a wave calls it after it has posted its operands under the wave's parity. It returns true for the last
/// one, which carries out the operation for all and then calls `complete`, and false for the others, afterwards.
TILEWAVE_HOST_UNTRACKED inline bool meet(Lane& self, const Collective& call) {
  Wave& wave = *self.wave;
  if (wave.arrived == 0) wave.collective = call;
  if (!(wave.collective == call) || (wave.at_barrier | wave.returned) != 0) detail::fail_collective(self, call);
  char* const ordered = &wave.ordered[wave.parity];
  order_release(ordered);
  if (++wave.arrived == wave.lanes) return true;
  detail::stop(self);
  order_acquire(ordered);
  return false;
}

/// The last lane of a collective calls it: the results are there, and everybody goes on.
TILEWAVE_HOST_UNTRACKED inline void complete(Lane& self) {
  Cluster& cluster = *self.cluster;
  Wave& wave = *self.wave;
  char* const ordered = &wave.ordered[wave.parity];
  wave.arrived = 0;
  wave.parity ^= 1;
  wave.ready = wave.all;
  cluster.runnable |= WaveSet{1} << wave.slot;
  switch (cluster.options.schedule) {
    case Schedule::first_wave_ahead:
    case Schedule::last_wave_ahead: break;
    case Schedule::lockstep:
    case Schedule::reverse:
    case Schedule::one_wave_behind:
      if (cluster.waves() > 1) detail::yield(self);
      break;
    case Schedule::random: detail::yield(self); break;
  }
  order_acquire(ordered);
}

/// Fails the cluster when another lane of the wave has made another n-th statement.
TILEWAVE_HOST_UNTRACKED inline void agree(Lane& self, const Agreement& said) {
  const std::int64_t number = ++self.agreements;
  auto& remembered = self.wave->agreements[static_cast<std::uint64_t>(number) % remembered_agreements];
  if (remembered.number < number) {
    remembered.number = number;
    remembered.said = said;
  } else if (remembered.number == number && !(remembered.said == said)) {
    const Agreement& other = remembered.said;
    fail(self, "wave divergence: this lane says %s %lld at %s:%d, another lane of the wave %s %lld at %s:%d", said.what,
         static_cast<long long>(said.value), said.where.base_name(), said.where.line, other.what,
         static_cast<long long>(other.value), other.where.base_name(), other.where.line);
  }
}

namespace detail {

TILEWAVE_HOST_STEP Meeting& meeting_of(Lane& self, bool of_cluster) {
  return of_cluster ? static_cast<Meeting&>(*self.cluster) : *self.wave->block;
}

/// Arrives at the next barrier of the block or the cluster and returns its number. The last lane to arrive opens it.
TILEWAVE_HOST_UNTRACKED inline int arrive(Lane& self, bool of_cluster) {
  Cluster& cluster = *self.cluster;
  Wave& wave = *self.wave;
  Meeting& meeting = meeting_of(self, of_cluster);
  const int number = meeting.number;
  // There are two addresses that alternate: a lane that already arrived at the next barrier must not order one that
  // still leaves this one.
  order_release(&meeting.ordered[number % 2]);
  if (++meeting.arrived < (of_cluster ? cluster.lanes() : cluster.block_lanes)) return number;
  meeting.arrived = 0;
  ++meeting.number;
  ++cluster.counters.barriers;
  const int first = of_cluster ? 0 : wave.block->rank * cluster.block_waves;
  const int end = of_cluster ? cluster.waves() : first + cluster.block_waves;
  for (int w = first; w < end; ++w) {
    Wave& waiting = *cluster.wave[w];
    if (waiting.at_barrier == 0 || waiting.of_cluster != of_cluster) continue;
    waiting.ready |= waiting.at_barrier;
    waiting.at_barrier = 0;
    cluster.runnable |= WaveSet{1} << w;
  }
  return number;
}

/// Lanes of this lane's wave wait in a collective, or at another barrier.
[[noreturn]] __attribute__((noinline)) TILEWAVE_HOST_UNTRACKED inline void fail_barrier(Lane& self, Where where) {
  const Wave& wave = *self.wave;
  if (wave.arrived != 0) {
    const Collective& other = wave.collective;
    fail(self, "wave divergence: this lane is at the barrier at %s:%d while %d of %d lanes wait in %s at %s:%d",
         where.base_name(), where.line, wave.arrived, wave.lanes, name_of(other.kind), other.where.base_name(),
         other.where.line);
  }
  fail(self, "barrier divergence: this lane is at the barrier at %s:%d while %d of %d lanes wait at %s:%d",
       where.base_name(), where.line, std::popcount(wave.at_barrier), wave.lanes, wave.barrier.base_name(),
       wave.barrier.line);
}

/// Fails unless the lanes of this lane's wave that wait at a barrier do so on this line.
TILEWAVE_HOST_STEP void join(Lane& self, bool of_cluster, Where where) {
  Wave& wave = *self.wave;
  if (wave.arrived != 0) fail_barrier(self, where);
  if (wave.at_barrier == 0) {
    wave.barrier = where;
    wave.of_cluster = of_cluster;
  } else if (!(wave.barrier == where)) {
    fail_barrier(self, where);
  }
}

/// Returns when barrier `number` is open.
TILEWAVE_HOST_STEP void wait(Lane& self, bool of_cluster, int number) {
  Meeting& meeting = meeting_of(self, of_cluster);
  if (meeting.number == number) {
    self.wave->at_barrier |= self.bit();
    stop(self);
  } else {
    yield(self);
  }
  order_acquire(&meeting.ordered[number % 2]);
}

}  // namespace detail

/// Waits until all lanes of the block have called it.
TILEWAVE_HOST_UNTRACKED inline void block_barrier(Lane& self, Where where) {
  detail::join(self, false, where);
  detail::wait(self, false, detail::arrive(self, false));
}
/// These are the two halves of a barrier for all lanes of the cluster. A barrier that is open needs no company.
TILEWAVE_HOST_UNTRACKED inline void arrive_in_cluster(Lane& self) { self.awaited = detail::arrive(self, true); }
TILEWAVE_HOST_UNTRACKED inline void wait_for_cluster(Lane& self, Where where) {
  if (self.cluster->number == self.awaited) detail::join(self, true, where);
  detail::wait(self, true, self.awaited);
}

/// The lane's kernel has ended. It returns when the fiber gets a lane of a later cluster.
TILEWAVE_HOST_UNTRACKED inline void lane_returned(Lane& self) {
  Cluster& cluster = *self.cluster;
  Wave& wave = *self.wave;
  if (wave.arrived != 0) {
    const Collective& other = wave.collective;
    fail(self, "wave divergence: this lane returned while %d of %d lanes wait in %s at %s:%d", wave.arrived, wave.lanes,
         name_of(other.kind), other.where.base_name(), other.where.line);
  }
  detail::check_batches(self);
  detail::check_stores(self);
  if (self.copies.count != 0) fail(self, "%d copies into LDS are under way at the end", self.copies.count);
  order_release(&cluster.ended);
  wave.returned |= self.bit();
  if (++wave.block->returned == cluster.block_lanes) {
    detail::check_copies(self);
    if (cluster.early != Early::over && !wave.block->waited)
      fail(self, "the block ends, and no lane of it has called wait_for_previous");
  }
  if (++cluster.returned == cluster.lanes()) {
    switch_fiber(self.stack.fiber, cluster.main);
  } else {
    detail::stop(self);
  }
}

}  // namespace tilewave::host

#undef TILEWAVE_HOST_STEP

#endif  // !TILEWAVE_ON_GPU_COMPILER
