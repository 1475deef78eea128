// SPDX-License-Identifier: MIT
// Loads, stores and async copies of the host room: plain memory accesses, checked and counted.
#pragma once

#include "tilewave/core/config.hpp"

#if !TILEWAVE_ON_GPU_COMPILER

#include <bit>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "tilewave/arch/facts.hpp"
#include "tilewave/arch/host/schedule.hpp"
#include "tilewave/arch/window.hpp"
#include "tilewave/core/vec.hpp"

namespace tilewave::host {

namespace detail {

enum class Access { load, store, stream };

[[noreturn]] TILEWAVE_HOST_UNTRACKED inline void bad_access(Lane& self, const void* address, int bytes, Where where) {
  const bool null = reinterpret_cast<std::uintptr_t>(address) < 4096;
  fail(self, "%s access of %d bytes at address %p at %s:%d", null ? "null" : "misaligned", bytes, address,
       where.base_name(), where.line);
}

/// Checks and counts one access of the running lane.
template <int Bytes, Access Kind>
TILEWAVE_HOST_UNTRACKED inline void account(const void* pointer, Where where) {
  Lane& self = *current_lane;
  Cluster& cluster = *self.cluster;
  const auto address = reinterpret_cast<std::uintptr_t>(pointer);
  if (address % Bytes != 0 || address < 4096) bad_access(self, pointer, Bytes, where);
  LaunchCounters& counters = cluster.counters;
  const auto shared = reinterpret_cast<std::uintptr_t>(cluster.block[0].shared);
  const bool in_shared = address - shared < cluster.blocks * cluster.shared_bytes;
  if constexpr (Kind == Access::stream) {
    counters.stream_bytes += Bytes;
  } else if constexpr (Kind == Access::load) {
    (in_shared ? counters.lds_loads_bytes : counters.loads_bytes) += Bytes;
  } else {
    (in_shared ? counters.lds_stores_bytes : counters.stores_bytes) += Bytes;
  }
  if (cluster.options.schedule == Schedule::random && cluster.draw() % 8 == 0) yield(self);
}

TILEWAVE_HOST_UNTRACKED inline void queue_copy(Lane& self, void* shared, const void* global, bool lane_linear,
                                               Where where) {
  Cluster& cluster = *self.cluster;
  const auto to = reinterpret_cast<std::uintptr_t>(shared), from = reinterpret_cast<std::uintptr_t>(global);
  const auto begin = reinterpret_cast<std::uintptr_t>(self.wave->block->shared);
  if (to % async_copy_bytes != 0 || to < 4096) bad_access(self, shared, async_copy_bytes, where);
  if (from % async_copy_bytes != 0 || from < 4096) bad_access(self, global, async_copy_bytes, where);
  if (to < begin || to + async_copy_bytes > begin + cluster.shared_bytes) {
    fail(self, "the target of copy_async is not in shared memory at %s:%d", where.base_name(), where.line);
  }
  if (lane_linear) {
    agree(self, {"copy_async to the wave's offset",
                 static_cast<std::int64_t>(to - begin) - async_copy_bytes * self.index, where});
  }
  AsyncQueue& queue = self.queue;
  if (queue.end - queue.first == AsyncQueue::capacity) {
    fail(self, "more than %u async copies in flight in one lane at %s:%d", AsyncQueue::capacity, where.base_name(),
         where.line);
  }
  queue.copies[queue.end++ % AsyncQueue::capacity] = {shared, global, queue.committed};
  cluster.counters.async_bytes += async_copy_bytes;
}

/// The number of groups to perform so that at most `pending` closed ones stay. Each of those must hold at least
/// `copies`: hardware that counts single copies would return too early for a smaller one.
TILEWAVE_HOST_UNTRACKED inline std::uint32_t groups_to_perform(Lane& self, std::uint32_t pending, std::uint32_t copies,
                                                               Where where) {
  const AsyncQueue& queue = self.queue;
  const std::uint32_t groups = queue.committed > pending ? queue.committed - pending : 0;
  std::uint32_t at = queue.first;
  const auto group_at = [&](std::uint32_t i) { return queue.copies[i % AsyncQueue::capacity].group; };
  while (at != queue.end && group_at(at) < groups) ++at;
  for (std::uint32_t group = groups; group < queue.committed; ++group) {
    std::uint32_t held = 0;
    for (; at != queue.end && group_at(at) == group; ++at) ++held;
    if (held < copies) {
      fail(self, "wait<%u, %u> at %s:%d: a commit it leaves open holds only %u copies", pending, copies,
           where.base_name(), where.line, held);
    }
  }
  return groups;
}

/// Takes the oldest queued copy off the queue if its group is among the first `groups`; a null target otherwise.
TILEWAVE_HOST_UNTRACKED inline AsyncCopy take_copy(Lane& self, std::uint32_t groups) {
  AsyncQueue& queue = self.queue;
  if (queue.first == queue.end) return {};
  const AsyncCopy copy = queue.copies[queue.first % AsyncQueue::capacity];
  if (copy.group >= groups) return {};
  ++queue.first;
  return copy;
}

TILEWAVE_HOST_UNTRACKED inline void close_group(Lane& self) { ++self.queue.committed; }

}  // namespace detail

template <ArchId Id>
struct Memory {
  /// One access of sizeof(T) <= 16 bytes. An address that is not a multiple of the size fails the launch.
  template <class T>
  static T load(const T* p, Where where = {}) {
    return read<detail::Access::load>(p, where);
  }
  /// The same for data that no lane reads again.
  template <class T>
  static T load_stream(const T* p, Where where = {}) {
    return read<detail::Access::stream>(p, where);
  }
  template <class T>
  static void store(T* p, const std::type_identity_t<T>& value, Where where = {}) {
    check_type<T>();
    detail::account<sizeof(T), detail::Access::store>(p, where);
    std::memcpy(p, &value, sizeof(T));
  }
  /// A store of data that no lane reads soon.
  static void store_stream(Chunk* p, const Chunk& value, Where where = {}) { store(p, value, where); }

  /// A uniform window whose base or bytes differ between the lanes of a wave fails the launch.
  template <bool uniform>
  struct Window : CheckedWindow<Memory> {
    Window(const void* base, std::uint32_t bytes, Where where = {}) : CheckedWindow<Memory>{base, bytes} {
      if constexpr (uniform) {
        agree(*current_lane,
              {"base of a window", static_cast<std::int64_t>(reinterpret_cast<std::intptr_t>(base)), where});
        agree(*current_lane, {"bytes of a window", bytes, where});
      }
    }
  };

  /// Queues a copy of 16 bytes into shared memory; where facts.copies_lane_linear, lane l's target is 16 * l behind
  /// lane 0's. It is performed by the `wait` that needs it and not before: a missing wait leaves what was there, the
  /// poison. Copies still queued when the lane returns are dropped and counted (LaunchCounters::async_dropped_bytes)
  /// but no error, as hardware lets a wave end with loads in flight.
  static void copy_async(Chunk* shared, const Chunk* global, Where where = {}) {
    detail::queue_copy(*current_lane, shared, global, facts_of(Id).copies_lane_linear, where);
  }
  /// Closes the group of the copies since the last commit.
  static void commit() { detail::close_group(*current_lane); }
  /// Performs this lane's oldest groups until at most `pending` closed ones are left. Chips that count copies instead
  /// of groups need each of those to hold `copies_per_commit` copies or more.
  template <int pending, int copies_per_commit = 1>
  static void wait(Where where = {}) {
    static_assert(pending >= 0 && copies_per_commit >= 0);
    Lane& self = *current_lane;
    constexpr int least = facts_of(Id).copies_lane_linear ? copies_per_commit : 0;  // the same chips, gfx9
    const std::uint32_t groups = detail::groups_to_perform(self, pending, least, where);
    for (AsyncCopy copy = detail::take_copy(self, groups); copy.shared != nullptr;
         copy = detail::take_copy(self, groups)) {
      std::memcpy(copy.shared, copy.global, async_copy_bytes);
    }
  }

 private:
  template <class T>
  static constexpr void check_type() {
    static_assert(std::is_trivially_copyable_v<T> && sizeof(T) <= 16 && std::has_single_bit(sizeof(T)),
                  "one access moves 1, 2, 4, 8 or 16 bytes");
  }
  template <detail::Access Kind, class T>
  static T read(const T* p, Where where) {
    check_type<T>();
    detail::account<sizeof(T), Kind>(p, where);
    std::remove_const_t<T> value;
    std::memcpy(&value, p, sizeof(T));  // not *p: callers view bf16 or fp8 storage as chunks
    return value;
  }
};

}  // namespace tilewave::host

#endif  // !TILEWAVE_ON_GPU_COMPILER
