// SPDX-License-Identifier: MIT
// The options of a run in the host room, and the counts of a run.
#pragma once

#include "tilewave/core/config.hpp"

#if !TILEWAVE_ON_GPU_COMPILER

#include <array>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <mutex>
#include <string_view>

#include "tilewave/core/status.hpp"

namespace tilewave::host {

/// The order in which lanes get to run. Results of a correct kernel do not depend on it; each order exposes other bugs.
///   lockstep          waves advance together, one collective or barrier at a time, lanes ascending
///   reverse           the same with waves, lanes and blocks descending
///   first_wave_ahead  the lowest wave runs as far as it can before the others
///   last_wave_ahead   the highest wave does
///   random            every decision is drawn from `seed`; also switches at memory accesses and shuffles the blocks
///   one_wave_behind   wave `seed`, modulo those of the cluster, runs only when no other can and no copy that lands
///                     would let one
enum class Schedule : int { lockstep, reverse, first_wave_ahead, last_wave_ahead, random, one_wave_behind };

inline constexpr std::array all_schedules{Schedule::lockstep,        Schedule::reverse, Schedule::first_wave_ahead,
                                          Schedule::last_wave_ahead, Schedule::random,  Schedule::one_wave_behind};

constexpr std::string_view name_of(Schedule schedule) {
  switch (schedule) {
    case Schedule::lockstep: return "lockstep";
    case Schedule::reverse: return "reverse";
    case Schedule::first_wave_ahead: return "first_wave_ahead";
    case Schedule::last_wave_ahead: return "last_wave_ahead";
    case Schedule::random: return "random";
    case Schedule::one_wave_behind: return "one_wave_behind";
  }
  return "unknown";
}

struct Options {
  int threads = 0;  // threads that run blocks in parallel; 0 takes the number of cores
  Schedule schedule = Schedule::lockstep;
  std::uint64_t seed = 0;  // seed of Schedule::random and one_wave_behind

  friend constexpr bool operator==(const Options&, const Options&) = default;
};

/// The operations that the lanes of one launch asked for. The room sees only its primitives, not plain C++ accesses
/// (`shared.x[i]`).
struct LaunchCounters {
  std::int64_t blocks = 0;
  std::int64_t loads_bytes = 0, stores_bytes = 0;          // load and store to global memory
  std::int64_t stream_bytes = 0;                           // load_stream
  std::int64_t lds_loads_bytes = 0, lds_stores_bytes = 0;  // load and store to shared memory
  std::int64_t bulk_bytes = 0;                             // copy_bulk and copy_tensor, counted when queued
  std::int64_t mma = 0, shuffles = 0, votes = 0;           // per wave; shuffles include xor and group_broadcast
  std::int64_t group_mma = 0;                              // per group of four waves
  std::int64_t barriers = 0;                               // per block

  friend constexpr bool operator==(const LaunchCounters&, const LaunchCounters&) = default;

  void add(const LaunchCounters& other) {
    blocks += other.blocks;
    loads_bytes += other.loads_bytes;
    stores_bytes += other.stores_bytes;
    stream_bytes += other.stream_bytes;
    lds_loads_bytes += other.lds_loads_bytes;
    lds_stores_bytes += other.lds_stores_bytes;
    bulk_bytes += other.bulk_bytes;
    mma += other.mma;
    shuffles += other.shuffles;
    votes += other.votes;
    group_mma += other.group_mma;
    barriers += other.barriers;
  }
};

/// Reads the three words as TILEWAVE_HOST_THREADS, TILEWAVE_HOST_SCHEDULE and TILEWAVE_HOST_SEED give them; null keeps
/// the default. `out` is written only when the answer is ok.
inline Status parse_options(const char* threads, const char* schedule, const char* seed, Options& out) {
  const auto number = [](const char* text, unsigned long long limit, std::uint64_t& value) {
    if (*text < '0' || *text > '9') return false;
    char* end = nullptr;
    errno = 0;
    value = std::strtoull(text, &end, 0);
    return errno == 0 && *end == '\0' && value <= limit;
  };
  Options result;
  std::uint64_t value = 0;
  if (threads != nullptr) {
    if (!number(threads, 4096, value)) {
      return {StatusCode::bad_value, "TILEWAVE_HOST_THREADS is not a number from 0 to 4096"};
    }
    result.threads = static_cast<int>(value);
  }
  if (schedule != nullptr) {
    bool known = false;
    for (const Schedule s : all_schedules) {
      if (name_of(s) != schedule) continue;
      result.schedule = s;
      known = true;
    }
    if (!known) {
      return {StatusCode::bad_value,
              "TILEWAVE_HOST_SCHEDULE is none of lockstep, reverse, first_wave_ahead, "
              "last_wave_ahead, random, one_wave_behind"};
    }
  }
  if (seed != nullptr) {
    if (!number(seed, ~0ull, value)) return {StatusCode::bad_value, "TILEWAVE_HOST_SEED is not a number below 2^64"};
    result.seed = value;
  }
  out = result;
  return {};
}

namespace detail {
struct OptionsState {
  std::mutex mutex;
  Options options;
  Status status;  // status of the environment; a bad value fails every launch until set_options
};
inline OptionsState& options_state() {
  static OptionsState* const state = [] {
    auto* const fresh = new OptionsState;  // lives as long as the process: launches may run in static destructors
    fresh->status = parse_options(std::getenv("TILEWAVE_HOST_THREADS"), std::getenv("TILEWAVE_HOST_SCHEDULE"),
                                  std::getenv("TILEWAVE_HOST_SEED"), fresh->options);
    return fresh;
  }();
  return *state;
}
inline thread_local constinit LaunchCounters last_counters{};
}  // namespace detail

/// Returns the options of the next launch. They come from the environment, which is read once, until set_options
/// replaces them.
inline Options options() {
  detail::OptionsState& state = detail::options_state();
  const std::lock_guard lock(state.mutex);
  return state.options;
}
inline void set_options(const Options& options) {
  detail::OptionsState& state = detail::options_state();
  const std::lock_guard lock(state.mutex);
  state.options = options;
  state.status = {};
}

/// Returns the totals of the calling thread's last launch, over all blocks that ran.
inline const LaunchCounters& last_launch_counters() { return detail::last_counters; }

}  // namespace tilewave::host

#endif  // !TILEWAVE_ON_GPU_COMPILER
