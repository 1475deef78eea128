// SPDX-License-Identifier: MIT
// Lanes, waves, the blocks that they form and the cluster of those: what each one waits for, and how a run that cannot
// continue is reported. One cluster (mostly of one block) runs on one thread, so nothing here is atomic.
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
inline constexpr int max_cluster_waves = 128;
using WaveSet = unsigned __int128;  // one bit for each wave
inline constexpr int max_cluster_blocks = 16;

/// The line of the kernel that called a primitive: as a defaulted last parameter it is the caller's line.
struct Where {
  const char* file;
  int line;
  constexpr Where(const char* in_file = __builtin_FILE(), int at_line = __builtin_LINE())
      : file(in_file), line(at_line) {}
  friend constexpr __attribute__((always_inline)) bool operator==(const Where&, const Where&) = default;

  const char* base_name() const {
    const char* slash = std::strrchr(file, '/');
    return slash != nullptr ? slash + 1 : file;
  }
};

enum class CollectiveKind : std::uint8_t {
  mma,
  shuffle,
  shuffle_xor,
  group_broadcast,
  reduce,
  any,
  load_matrices,
  load_transposed,
  mbarrier_arrive,
  mbarrier_expect,
  mbarrier_wait,
  store_matrices,
  store_matrices_straight,
  take_registers,
  give_registers,
  group_barrier,
  group_any,
  group_mma_wait,
};

constexpr const char* name_of(CollectiveKind kind) {
  switch (kind) {
    case CollectiveKind::mma: return "mma";
    case CollectiveKind::shuffle: return "shuffle";
    case CollectiveKind::shuffle_xor: return "shuffle_xor";
    case CollectiveKind::group_broadcast: return "group_broadcast";
    case CollectiveKind::reduce: return "reduce";
    case CollectiveKind::any: return "any";
    case CollectiveKind::load_matrices: return "load_matrices";
    case CollectiveKind::load_transposed: return "load_transposed";
    case CollectiveKind::mbarrier_arrive: return "mbarrier_arrive";
    case CollectiveKind::mbarrier_expect: return "mbarrier_expect";
    case CollectiveKind::mbarrier_wait: return "mbarrier_wait";
    case CollectiveKind::store_matrices: return "store_matrices";
    case CollectiveKind::store_matrices_straight: return "store_matrices_straight";
    case CollectiveKind::take_registers: return "take_registers";
    case CollectiveKind::give_registers: return "give_registers";
    case CollectiveKind::group_barrier: return "group_barrier";
    case CollectiveKind::group_any: return "group_any";
    case CollectiveKind::group_mma_wait: return "group_mma_wait";
  }
  return "unknown";
}

/// A call that a whole wave makes together. All lanes must make an equal one from the same line: two branches that each
/// call shuffle are two instructions, and each misses half of the lanes.
struct Collective {
  CollectiveKind kind;
  // the argument that is the same in every lane: xor mask, broadcast position, k of the atom, bytes, parity, ...
  int immediate;
  Where where;
  friend constexpr __attribute__((always_inline)) bool operator==(const Collective&, const Collective&) = default;
};

/// A statement that all lanes of a wave must make alike, checked without making them meet: the n-th statement of one
/// lane is compared with the n-th of the others as long as the wave remembers it.
struct Agreement {
  const char* what;
  std::int64_t value;
  Where where;
  friend constexpr __attribute__((always_inline)) bool operator==(const Agreement&, const Agreement&) = default;
};
inline constexpr int remembered_agreements = 32;

inline constexpr int remembered_rows = 16;
inline constexpr int max_lane_copies = 63;  // vmcnt counts to this number

struct Wave;
struct Block;
struct Cluster;
struct Mbarrier;
struct BulkCopy;
struct TensorStore;
struct Group;

/// What a lane of a kernel that waits for the one before itself may not do with device memory yet.
enum class Early : int { over, no_access, no_store };

struct alignas(64) Lane {
  LaneStack stack;
  Wave* wave = nullptr;
  Cluster* cluster = nullptr;
  int index = 0;                // index in the wave
  int awaited = 0;              // number of the cluster's barrier at which the lane arrived last
  std::int64_t agreements = 0;  // statements made in this block
  std::int64_t stores = 0;      // batches of tensor stores ended in this block
  Early early = Early::over;
  struct {
    // made in this block; batches that ended, and that were waited for
    std::int64_t calls = 0, batches = 0, awaited = 0;
    bool open = false;  // true between begin and end
  } group;
  struct {
    const std::byte* row[remembered_rows];
    int count = 0;
  } unseen;  // rows of store_matrices since the lane last called shared_written; if there are more, the first ones

  struct {
    struct {
      void* to;
      const void* from;
      int bytes;
    } list[max_lane_copies];
    int count = 0;
    // for rooms that count batches: ended ones, and copies since the last end
    int of_batch[max_lane_copies], batches = 0, open = 0;
  } copies;  // copies into LDS that are under way

  TILEWAVE_HOST_UNTRACKED std::uint64_t bit() const { return std::uint64_t{1} << index; }
};

struct alignas(64) Wave {
  std::uint64_t ready = 0;       // lanes that can run
  std::uint64_t at_barrier = 0;  // lanes waiting for the block or the cluster
  std::uint64_t returned = 0;    // lanes whose kernel has ended
  std::uint64_t all = 0;
  Block* block = nullptr;
  int index = 0;    // index in the block
  int slot = 0;     // index in the cluster
  int lanes = 0;    // lanes of this wave
  int arrived = 0;  // lanes waiting in `collective`
  // Parity of the next collective. A lane can be one collective ahead of a lane that has not taken its result yet, but
  // never two, so posted values are double-buffered.
  int parity = 0;
  Collective collective{};
  Where barrier{};
  bool of_cluster = false;  // true: the barrier is the cluster's
  struct {
    Lane* lane = nullptr;  // the last lane of a mbarrier_wait, which sleeps with the others; null when there is none
    Mbarrier* barrier = nullptr;
    int parity = 0;
    Where where{};
  } awaited;
  Lane* in_group = nullptr;  // the last lane of a call that the wave's group makes together, asleep like the others
  Lane* lane[max_wave_lanes] = {};
  std::uint64_t votes[2] = {};
  struct {
    std::int64_t number;  // number of the statement, from 1; 0: none yet
    Agreement said;
  } agreements[remembered_agreements] = {};
  char ordered[2] = {};  // addresses that name the collectives' happens-before edges
  std::uint32_t posted[2][max_wave_lanes];
  // Results of load_matrices, which the last lane to arrive writes, or the input of store_matrices.
  std::uint32_t dealt[max_wave_lanes][4];
  // Dense operands of an mma. One copy is enough: a lane overwrites only its own elements, after it has taken its own
  // result.
  alignas(64) float tile[5248];
};

/// Lanes that wait for each other at a barrier.
struct Meeting {
  int arrived = 0;       // lanes at the barrier
  int returned = 0;      // lanes whose kernel has ended
  int number = 0;        // number of the next barrier
  char ordered[2] = {};  // as in Wave
};

struct Block : Meeting {
  std::int64_t id = 0;
  int rank = 0;  // rank in the cluster
  std::byte* shared = nullptr;
  BulkCopy* copy = nullptr;      // [max_bulk_copies]
  int copies = 0;                // copies that nobody has waited for yet
  TensorStore* store = nullptr;  // [max_tensor_stores]
  int stores = 0;                // stores that nobody has waited for yet
  Group* group = nullptr;        // [waves / 4]
  int unseen = 0;                // unseen rows of all lanes
  bool waited = false;           // true once a lane has called wait_for_previous
};

/// A cluster that runs. `kernel` runs the body of one lane.
struct Cluster : Meeting {
  int blocks = 0, block_lanes = 0, block_waves = 0;
  int copies_in_flight = 0;  // bulk copies of all blocks
  bool failed = false;
  Options options;
  bool ascending = false;     // the schedule lets a wave's lanes run one after the other until none is ready
  Early early = Early::over;  // of lanes when they begin, and of this launch
  std::uint64_t random = 1;   // state of the generator, which is never 0
  WaveSet runnable = 0;       // waves with ready lanes
  Block block[max_cluster_blocks];
  Wave* wave[max_cluster_waves] = {};
  void (*kernel)(const void* args, void* shared) = nullptr;
  const void* args = nullptr;
  std::size_t shared_bytes = 0;  // shared memory of a block; those of the cluster follow one another
  Fiber main;                    // the thread that runs the clusters
  LaunchCounters counters;
  char started = 0, ended = 0;
  char error[480] = {};

  int lanes() const { return blocks * block_lanes; }
  int waves() const { return blocks * block_waves; }

  /// This is xorshift64 (Marsaglia 2003): cheap, and the same everywhere.
  TILEWAVE_HOST_UNTRACKED std::uint64_t draw() {
    random ^= random << 13;
    random ^= random >> 7;
    random ^= random << 17;
    return random >> 11;
  }
};

/// The lane that runs now; null outside a kernel.
inline thread_local constinit Lane* current_lane = nullptr;

/// Ends the cluster with an error. Its fibers are dropped where they are, and start anew with the next cluster.
[[noreturn]] __attribute__((format(printf, 2, 3))) TILEWAVE_HOST_UNTRACKED inline void fail(Lane& self,
                                                                                            const char* format, ...) {
  Cluster& cluster = *self.cluster;
  const std::string_view schedule = name_of(cluster.options.schedule);
  int length = std::snprintf(cluster.error, sizeof(cluster.error),
                             "block %lld wave %d lane %d: ", static_cast<long long>(self.wave->block->id),
                             self.wave->index, self.index);
  std::va_list list;
  va_start(list, format);
  length += std::vsnprintf(cluster.error + length, sizeof(cluster.error) - length, format, list);
  va_end(list);
  if (length < static_cast<int>(sizeof(cluster.error))) {
    std::snprintf(cluster.error + length, sizeof(cluster.error) - length, " (schedule %.*s, seed %llu)",
                  static_cast<int>(schedule.size()), schedule.data(),
                  static_cast<unsigned long long>(cluster.options.seed));
  }
  cluster.failed = true;
  switch_fiber(self.stack.fiber, cluster.main);
  __builtin_unreachable();
}

/// Fails a lane that reads or writes device memory while the kernel before may still write there.
TILEWAVE_HOST_UNTRACKED inline void must_have_waited(Lane& self, bool stores, Where where) {
  if (self.early == Early::over || (self.early == Early::no_store && !stores)) return;
  fail(self, "device memory is %s at %s:%d before wait_for_previous", stores ? "written" : "read", where.base_name(),
       where.line);
}

}  // namespace tilewave::host

#endif  // !TILEWAVE_ON_GPU_COMPILER
