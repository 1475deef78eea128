// SPDX-License-Identifier: MIT
// Lane ids and exchanges between the lanes of a wave.
#pragma once

#include "tilewave/core/config.hpp"

#if !TILEWAVE_ON_GPU_COMPILER

#include <bit>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "tilewave/arch/atom.hpp"
#include "tilewave/arch/backend.hpp"
#include "tilewave/arch/facts.hpp"
#include "tilewave/arch/host/schedule.hpp"

namespace tilewave::host {

namespace detail {

[[noreturn]] __attribute__((noinline)) TILEWAVE_HOST_UNTRACKED inline void fail_source(Lane& self, int source,
                                                                                       const Collective& call) {
  fail(self, "%s at %s:%d reads lane %d of a wave of %d", name_of(call.kind), call.where.base_name(), call.where.line,
       source, self.wave->lanes);
}

/// Posts a value, waits for the wave, and returns the value that lane `source` has posted.
TILEWAVE_HOST_UNTRACKED inline std::uint32_t exchange(std::uint32_t value, int source, const Collective& call) {
  Lane& self = *current_lane;
  Wave& wave = *self.wave;
  if (source < 0 || source >= wave.lanes) fail_source(self, source, call);
  std::uint32_t* const posted = wave.posted[wave.parity];
  posted[self.index] = value;
  if (meet(self, call)) {
    ++self.cluster->counters.shuffles;
    complete(self);
  }
  return posted[source];
}

/// Calls f(index, value) with the value that every lane of the wave has posted.
template <class F>
TILEWAVE_HOST_UNTRACKED void each_posted(std::uint32_t value, const Collective& call, const F& f) {
  Lane& self = *current_lane;
  Wave& wave = *self.wave;
  std::uint32_t* const posted = wave.posted[wave.parity];
  posted[self.index] = value;
  if (meet(self, call)) {
    ++self.cluster->counters.shuffles;
    complete(self);
  }
  for (int lane = 0; lane < wave.lanes; ++lane) f(lane, posted[lane]);
}

/// Copies words between a wave's values and an array of the same size. ThreadSanitizer would see a call of memcpy.
template <class To, class From>
TILEWAVE_HOST_UNTRACKED void copy_words(To* to, const From* from, int count) {
  static_assert(sizeof(To) == sizeof(From));
  if constexpr (under_tsan) {
    for (int i = 0; i < count; ++i) {
      const From word = const_cast<const volatile From*>(from)[i];
      const_cast<volatile To*>(to)[i] = std::bit_cast<To>(word);
    }
  } else {
    std::memcpy(to, from, count * sizeof(To));
  }
}

/// Combines the values of each aligned group of `lanes` lanes, in the steps of a butterfly: op(own, other).
template <class Op>
TILEWAVE_HOST_UNTRACKED void butterfly(float& value, int lanes, const Op& op, const Collective& call) {
  Lane& self = *current_lane;
  Wave& wave = *self.wave;
  std::uint32_t* const posted = wave.posted[wave.parity];
  asm("" : "+m"(value));  // a product contracted into the addition would differ from lane to lane
  posted[self.index] = std::bit_cast<std::uint32_t>(value);
  if (meet(self, call)) {
    float own[max_wave_lanes], combined[max_wave_lanes];
    copy_words(own, posted, wave.lanes);
    for (int mask = 1; mask < lanes; mask *= 2) {
      for (int lane = 0; lane < wave.lanes; ++lane) combined[lane] = op(own[lane], own[lane ^ mask]);
      copy_words(own, combined, wave.lanes);
      ++self.cluster->counters.shuffles;
    }
    copy_words(posted, own, wave.lanes);
    complete(self);
  }
  value = std::bit_cast<float>(posted[self.index]);
}

TILEWAVE_HOST_UNTRACKED inline bool vote_any(bool predicate, Where where) {
  Lane& self = *current_lane;
  Wave& wave = *self.wave;
  std::uint64_t& votes = wave.votes[wave.parity];
  if (wave.arrived == 0) votes = 0;
  if (predicate) votes |= self.bit();
  if (meet(self, {CollectiveKind::any, 0, where})) {
    ++self.cluster->counters.votes;
    complete(self);
  }
  return votes != 0;
}

}  // namespace detail

template <ArchId Id>
struct Lanes {
  static int lane_id() { return current_lane->index; }
  static bool elected() { return current_lane->index == 0; }
  static int block_lane_id() { return current_lane->wave->index * current_lane->wave->lanes + current_lane->index; }
  /// sm90 asks the wave's first lane, so all lanes must call it; other rooms do not need that.
  static int wave_id(Where where = {}) {
    const int wave = current_lane->wave->index;
    if constexpr (Id == ArchId::sm90) agree(*current_lane, {"wave_id", wave, where});
    return wave;
  }
  static int block_id() { return static_cast<int>(current_lane->wave->block->id); }
  static int cluster_rank() { return current_lane->wave->block->rank; }
  /// Returns the object that stands at `shared` in the shared memory of the cluster's block `rank`.
  template <class T>
  static T* remote(T* shared, int rank) {
    const Cluster& cluster = *current_lane->cluster;
    if (rank < 0 || rank >= cluster.blocks) {
      fail(*current_lane, "remote shared memory of block %d in a cluster of %d", rank, cluster.blocks);
    }
    auto* const bytes = reinterpret_cast<std::byte*>(shared);
    const std::ptrdiff_t blocks_on = rank - cluster_rank();
    return reinterpret_cast<T*>(bytes + blocks_on * static_cast<std::ptrdiff_t>(cluster.shared_bytes));
  }

  /// Posts a value, or four, to block `rank`, whose mailbox counts them.
  template <class T>
  static void post(Mailbox& box, T* shared, int rank, const T& value) {
    *remote(shared, rank) = value;
    constexpr int count = sizeof(T) / sizeof(float);
    // lanes of several blocks may post at the same time
    __atomic_fetch_add(&remote(&box, rank)->state, count, __ATOMIC_RELAXED);
  }

  /// Returns the value of `lane`, which may differ from lane to lane and must exist.
  template <class T>
  static T shuffle(T value, int lane, Where where = {}) {
    return exchanged(value, lane, {CollectiveKind::shuffle, 0, where});
  }
  /// Returns the value of lane_id ^ mask; the whole wave uses one mask.
  template <class T>
  static T shuffle_xor(T value, int mask, Where where = {}) {
    return exchanged(value, current_lane->index ^ mask, {CollectiveKind::shuffle_xor, mask, where});
  }
  /// Returns the value of the lane at position I of this lane's atom group.
  template <int I, class T>
  static T group_broadcast(T value, Where where = {}) {
    constexpr AtomFacts atom = atom_of(Id);
    static_assert(I >= 0 && I < atom.lanes / AtomFacts::groups, "the position is one of a lane group of the atom");
    const int source = atom.lane_of(I, atom.group(current_lane->index));
    return exchanged(value, source, {CollectiveKind::group_broadcast, I, where});
  }
  /// Applies op over the aligned group of `lanes` lanes, as a butterfly. The wave meets once: its last lane takes all
  /// steps for all lanes.
  template <int lanes, class Op>
  static float reduce(float value, Op op, Where where = {}) {
    static_assert(lanes >= 1 && lanes <= facts_of(Id).wave_lanes && std::has_single_bit(unsigned{lanes}),
                  "a butterfly is over a power of two of lanes within a wave");
    static_assert(std::is_empty_v<Op>, "one lane's op serves them all, so it holds nothing");
    if constexpr (lanes > 1) detail::butterfly(value, lanes, op, {CollectiveKind::reduce, lanes, where});
    return value;
  }
  static void order(std::uint64_t& a, std::uint64_t& b) {
    const std::uint64_t low = a < b ? a : b;
    a = larger(a, b);
    b = low;
  }
  /// Integers that CDNA would not compare as doubles fail the launch.
  static std::uint64_t larger(std::uint64_t a, std::uint64_t b, Where where = {}) {
    if ((a | b) >> 62 != 0) {
      fail(*current_lane, "larger or order of 2^62 or more at %s:%d", where.base_name(), where.line);
    }
    return a < b ? b : a;
  }
  static void order(std::uint32_t& a, std::uint32_t& b) {
    const std::uint32_t low = a < b ? a : b;
    a = larger(a, b);
    b = low;
  }
  static std::uint32_t larger(std::uint32_t a, std::uint32_t b) { return a < b ? b : a; }
  /// A lane for which nothing is promised gets 0.
  template <int m, class T>
  static T other_half(T value, Where where = {}) {
    const T other = exchanged(value, current_lane->index ^ m, {CollectiveKind::shuffle_xor, m, where});
    return m < 16 || (current_lane->index & m) != 0 ? other : T{};
  }
  /// A key with more bits than promised fails the launch, since rooms look at no others.
  template <int bits>
  static Peers peers(std::uint32_t key, Where where = {}) {
    if (key >> bits != 0) fail(*current_lane, "peers<%d> of %u at %s:%d", bits, key, where.base_name(), where.line);
    Peers found{0, 0};
    detail::each_posted(key, {CollectiveKind::shuffle, 0, where}, [&](int lane, std::uint32_t other) {
      found.before += other == key && lane < current_lane->index;
      found.count += other == key;
    });
    return found;
  }
  static int sum_up_to(int value, Where where = {}) {
    std::uint32_t sum = 0;
    detail::each_posted(static_cast<std::uint32_t>(value), {CollectiveKind::shuffle, 0, where},
                        [&](int lane, std::uint32_t other) { sum += lane <= current_lane->index ? other : 0u; });
    return static_cast<int>(sum);
  }
  static std::uint32_t total(std::uint32_t word, Where where = {}) {
    std::uint32_t sum = 0;
    detail::each_posted(word, {CollectiveKind::reduce, 0, where}, [&](int, std::uint32_t other) { sum += other; });
    return sum;
  }
  static std::uint32_t highest(std::uint32_t word, Where where = {}) {
    std::uint32_t high = 0;
    detail::each_posted(word, {CollectiveKind::reduce, 1, where},
                        [&](int, std::uint32_t other) { high = larger(high, other); });
    return high;
  }
  static int divergent(int value) { return value; }
  /// Returns the value itself. A lane whose value differs from the others' fails the launch, as far as that is found
  /// without making the wave meet (see Agreement).
  static int uniform(int value, Where where = {}) {
    agree(*current_lane, {"uniform", value, where});
    return value;
  }
  template <class T>
  static T opaque(T value) {
    return value;
  }
  /// The lanes of a block alternate on one thread, so this needs no atomic.
  static void add_shared(std::uint32_t* shared, std::uint32_t n) { *shared += n; }
  /// True if the predicate holds in any lane of the wave.
  static bool any(bool predicate, Where where = {}) { return detail::vote_any(predicate, where); }

 private:
  template <class T>
  static T exchanged(T value, int source, const Collective& call) {
    static_assert(std::is_trivially_copyable_v<T> && sizeof(T) == 4, "a lane exchanges one register");
    return std::bit_cast<T>(detail::exchange(std::bit_cast<std::uint32_t>(value), source, call));
  }
};

}  // namespace tilewave::host

#endif  // !TILEWAVE_ON_GPU_COMPILER
