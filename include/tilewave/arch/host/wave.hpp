// SPDX-License-Identifier: MIT
// Lanes, waves and the block they form: what each is waiting for, and how a run that can go no further is reported.
// One block runs on one thread, so nothing here is atomic.
#pragma once

#include "tilewave/core/config.hpp"

#if !TILEWAVE_ON_GPU_COMPILER

#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <string_view>

#include "tilewave/arch/host/fiber.hpp"
#include "tilewave/arch/host/options.hpp"

namespace tilewave::host {

inline constexpr int max_wave_lanes = 64;
inline constexpr int max_block_lanes = 1024;
inline constexpr int max_block_waves = max_block_lanes / 32;

/// Where in the kernel a primitive was called: as a defaulted last parameter it is the caller's line.
struct Where {
  const char* file;
  int line;
  constexpr Where(const char* in_file = __builtin_FILE(), int at_line = __builtin_LINE())
      : file(in_file), line(at_line) {}
  friend constexpr bool operator==(const Where&, const Where&) = default;

  const char* base_name() const {
    const char* slash = std::strrchr(file, '/');
    return slash != nullptr ? slash + 1 : file;
  }
};

enum class CollectiveKind : std::uint8_t { mma, shuffle, shuffle_xor, group_broadcast, reduce, any };

constexpr const char* name_of(CollectiveKind kind) {
  switch (kind) {
    case CollectiveKind::mma: return "mma";
    case CollectiveKind::shuffle: return "shuffle";
    case CollectiveKind::shuffle_xor: return "shuffle_xor";
    case CollectiveKind::group_broadcast: return "group_broadcast";
    case CollectiveKind::reduce: return "reduce";
    case CollectiveKind::any: return "any";
  }
  return "unknown";
}

/// A call that a whole wave makes together. All lanes must give an equal one: the same line, too, because two branches
/// that each call shuffle are two instructions, each with half of the lanes missing.
struct Collective {
  CollectiveKind kind;
  int immediate;  // xor mask, broadcast position or k of the atom: what the instruction encodes
  Where where;
  friend constexpr bool operator==(const Collective&, const Collective&) = default;
};

/// Something all lanes of a wave must say alike, checked without making them meet: the n-th statement of one lane is
/// held against the n-th of the others as long as the wave remembers it.
struct Agreement {
  const char* what;
  std::int64_t value;
  Where where;
  friend constexpr bool operator==(const Agreement&, const Agreement&) = default;
};
inline constexpr int remembered_agreements = 32;

struct AsyncCopy {
  void* shared;
  const void* global;
  std::uint32_t group;  // number of the commit that closes it
};
inline constexpr int async_copy_bytes = 16;

/// The copies one lane has queued, oldest first. Hardware counts fewer in flight (63 on gfx9).
struct AsyncQueue {
  static constexpr std::uint32_t capacity = 256;
  AsyncCopy copies[capacity];
  std::uint32_t first = 0, end = 0;  // running numbers, modulo capacity
  std::uint32_t committed = 0;       // groups
};

struct Wave;
struct Block;

struct alignas(64) Lane {
  LaneStack stack;
  Wave* wave = nullptr;
  Block* block = nullptr;
  int index = 0;                // in the wave
  std::int64_t agreements = 0;  // statements made in this block
  AsyncQueue queue;

  TILEWAVE_HOST_UNTRACKED std::uint64_t bit() const { return std::uint64_t{1} << index; }
};

struct alignas(64) Wave {
  std::uint64_t ready = 0;       // lanes that can run
  std::uint64_t at_barrier = 0;  // lanes waiting for the block
  std::uint64_t returned = 0;    // lanes whose kernel is over
  std::uint64_t all = 0;
  int index = 0;    // in the block
  int lanes = 0;    // of this wave
  int arrived = 0;  // lanes waiting in `collective`
  // Parity of the next collective. A lane can be one collective ahead of a lane that has not taken its result yet,
  // never two, so what lanes post is double-buffered.
  int parity = 0;
  Collective collective{};
  Where barrier{};
  Lane* lane[max_wave_lanes] = {};
  std::uint64_t votes[2] = {};
  struct {
    std::int64_t number;  // of the statement, from 1; 0 is none yet
    Agreement said;
  } agreements[remembered_agreements] = {};
  char ordered[2] = {};  // addresses that name the collectives' happens-before edges
  std::uint32_t posted[2][max_wave_lanes];
  // Dense operands of an mma. Single: a lane overwrites only its own elements, after it has taken its own result.
  alignas(64) float tile[2048];
};

/// A block in the making. `kernel` runs the body of one lane.
struct Block {
  std::int64_t id = 0;
  int lanes = 0, waves = 0;
  int arrived = 0;   // lanes at the barrier
  int returned = 0;  // lanes whose kernel is over
  int parity = 0;    // of the next barrier
  bool failed = false;
  Options options;
  std::uint64_t random = 1;    // state of the generator, never 0
  std::uint64_t runnable = 0;  // waves with ready lanes
  Wave* wave[max_block_waves] = {};
  void (*kernel)(const void* args, void* shared) = nullptr;
  const void* args = nullptr;
  std::byte* shared = nullptr;
  std::size_t shared_bytes = 0;
  Fiber main;  // the thread that runs the blocks
  LaunchCounters counters;
  char ordered[2] = {};  // as in Wave, for barriers
  char started = 0, ended = 0;
  char error[320] = {};

  /// xorshift64 (Marsaglia 2003): cheap, and the same everywhere.
  TILEWAVE_HOST_UNTRACKED std::uint64_t draw() {
    random ^= random << 13;
    random ^= random >> 7;
    random ^= random << 17;
    return random >> 11;
  }
};

/// The lane that runs now; null outside a kernel.
inline thread_local constinit Lane* current_lane = nullptr;

/// Ends the block with an error. Its fibers are dropped where they stand, and start anew with the next block.
[[noreturn]] __attribute__((format(printf, 2, 3))) TILEWAVE_HOST_UNTRACKED inline void fail(Lane& self,
                                                                                            const char* format, ...) {
  Block& block = *self.block;
  const std::string_view schedule = name_of(block.options.schedule);
  int length =
      std::snprintf(block.error, sizeof(block.error), "block %lld wave %d lane %d: ", static_cast<long long>(block.id),
                    self.wave->index, self.index);
  std::va_list list;
  va_start(list, format);
  length += std::vsnprintf(block.error + length, sizeof(block.error) - length, format, list);
  va_end(list);
  if (length < static_cast<int>(sizeof(block.error))) {
    std::snprintf(block.error + length, sizeof(block.error) - length, " (schedule %.*s, seed %llu)",
                  static_cast<int>(schedule.size()), schedule.data(),
                  static_cast<unsigned long long>(block.options.seed));
  }
  block.failed = true;
  switch_fiber(self.stack.fiber, block.main);
  __builtin_unreachable();
}

}  // namespace tilewave::host

#endif  // !TILEWAVE_ON_GPU_COMPILER
