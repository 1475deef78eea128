// SPDX-License-Identifier: MIT
// The parts of a ring of stages in shared memory (StagedBackend): mbarriers, bulk copies and matrix fragments.
#pragma once

#include "tilewave/core/config.hpp"

#if !TILEWAVE_ON_GPU_COMPILER

#include <bit>
#include <cstdint>

#include "tilewave/arch/facts.hpp"
#include "tilewave/arch/host/lds.hpp"
#include "tilewave/arch/host/memory.hpp"
#include "tilewave/arch/host/schedule.hpp"
#include "tilewave/core/vec.hpp"

namespace tilewave::host {

namespace detail {

TILEWAVE_HOST_UNTRACKED inline void check_address(const Mbarrier* barrier, const char* what, Where where) {
  Lane& self = *current_lane;
  if (reinterpret_cast<std::uintptr_t>(barrier) % alignof(Mbarrier) != 0 ||
      !in_shared(self, barrier, sizeof(Mbarrier))) {
    fail(self, "%s at %s:%d: no mbarrier can be at %p, only at multiples of 8 bytes of the block's shared memory", what,
         where.base_name(), where.line, static_cast<const void*>(barrier));
  }
}

TILEWAVE_HOST_UNTRACKED inline void check_mark(const Mbarrier* barrier, std::uint16_t mark, const char* what,
                                               Where where) {
  if (mark == Mbarrier::initialised) return;
  Lane& self = *current_lane;
  fail(self, "%s at %s:%d: the mbarrier at byte %d was never initialised, or was overwritten", what, where.base_name(),
       where.line, shared_offset(*self.wave->block, barrier));
}

TILEWAVE_HOST_UNTRACKED inline void check_init(const Mbarrier* barrier, int waves, Where where) {
  Lane& self = *current_lane;
  if (waves < 1 || waves > Mbarrier::max_waves) {
    fail(self, "mbarrier_init at %s:%d for %d waves, outside [1, %d]", where.base_name(), where.line, waves,
         Mbarrier::max_waves);
  }
  if (barrier->mark == Mbarrier::initialised) {
    fail(self, "mbarrier_init at %s:%d: the mbarrier at byte %d is initialised already", where.base_name(), where.line,
         shared_offset(*self.wave->block, barrier));
  }
}

/// Returns block `rank` of this one's cluster, which must still run.
TILEWAVE_HOST_UNTRACKED inline Block& block_at(Lane& self, int rank, const char* what, Where where) {
  Cluster& cluster = *self.cluster;
  if (rank < 0 || rank >= cluster.blocks) {
    fail(self, "%s at %s:%d to block %d in a cluster of %d", what, where.base_name(), where.line, rank, cluster.blocks);
  }
  Block& block = cluster.block[rank];
  if (block.returned == cluster.block_lanes) {
    fail(self, "%s at %s:%d to block %d of the cluster, which has ended", what, where.base_name(), where.line, rank);
  }
  return block;
}
/// Returns the address in `block` of a barrier of this block.
TILEWAVE_HOST_UNTRACKED inline Mbarrier* barrier_in(const Block& block, const Mbarrier* barrier) {
  return reinterpret_cast<Mbarrier*>(block.shared + shared_offset(*current_lane->wave->block, barrier));
}

/// The wave arrives at a barrier of `block` and expects `bytes` more.
TILEWAVE_HOST_UNTRACKED inline void arrive_at(Block& block, Mbarrier& barrier, CollectiveKind kind, std::uint32_t bytes,
                                              Where where) {
  Lane& self = *current_lane;
  Wave& wave = *self.wave;
  agree(self, {name_of(kind), shared_offset(*self.cluster->block, &barrier), where});
  const bool expects = kind == CollectiveKind::mbarrier_expect;
  if (expects && self.index == 0) order_release(barrier.ordered(barrier.parity));  // on the chip only lane 0 arrives
  if (!meet(self, {kind, static_cast<int>(bytes), where})) return;
  if (!expects) {
    order_acquire(&wave.ordered[wave.parity]);
    order_release(barrier.ordered(barrier.parity));
  }
  if (barrier.pending == 0) {
    fail(self, "%s at %s:%d: more than the %d arrivals of a phase at the mbarrier at byte %d", name_of(kind),
         where.base_name(), where.line, int{barrier.waves}, shared_offset(block, &barrier));
  }
  if (std::int64_t{barrier.bytes} + bytes > Mbarrier::max_bytes) {
    fail(self, "%s at %s:%d: the mbarrier at byte %d cannot expect 2^20 bytes", name_of(kind), where.base_name(),
         where.line, shared_offset(block, &barrier));
  }
  --barrier.pending;
  barrier.bytes += static_cast<std::int32_t>(bytes);
  end_phase(self, block, barrier, name_of(kind), where);
  complete(self);
}

TILEWAVE_HOST_UNTRACKED inline void wait_at(Mbarrier& barrier, int parity, Where where) {
  Lane& self = *current_lane;
  Wave& wave = *self.wave;
  if (parity != 0 && parity != 1) {
    fail(self, "mbarrier_wait at %s:%d for parity %d, neither 0 nor 1", where.base_name(), where.line, parity);
  }
  agree(self, {name_of(CollectiveKind::mbarrier_wait), shared_offset(*wave.block, &barrier), where});
  if (meet(self, {CollectiveKind::mbarrier_wait, parity, where})) {
    while (static_cast<int>(barrier.parity) == parity) {
      wave.awaited = {&self, &barrier, parity, where};
      stop(self);
    }
    wave.awaited.lane = nullptr;
    forget_copies(*wave.block, &barrier, parity);
    complete(self);
  }
  order_acquire(barrier.ordered(parity));
}
TILEWAVE_HOST_UNTRACKED inline bool has_passed(const Mbarrier& barrier, int parity) {
  return static_cast<int>(barrier.parity) != parity;
}

/// `block` has the copy's target and barrier.
TILEWAVE_HOST_UNTRACKED inline void queue_copy(Lane& self, Block& block, BulkCopy copy) {
  if (block.copies == max_bulk_copies) {
    fail(self, "more than %d bulk copies that nobody has waited for at %s:%d", max_bulk_copies, copy.where.base_name(),
         copy.where.line);
  }
#if defined(TILEWAVE_HOST_TSAN)
  copy.tsan = __tsan_create_fiber(0);
#endif
  block.copy[block.copies++] = copy;
  ++self.cluster->copies_in_flight;
}

TILEWAVE_HOST_UNTRACKED inline void queue_bulk_copy(void* shared, const void* global, std::uint32_t bytes,
                                                    Mbarrier* barrier, Where where) {
  Lane& self = *current_lane;
  Cluster& cluster = *self.cluster;
  const auto to = reinterpret_cast<std::uintptr_t>(shared), from = reinterpret_cast<std::uintptr_t>(global);
  if (to % 16 != 0 || to < 4096) bad_access(self, shared, 16, where);
  if (from % 16 != 0 || from < 4096) bad_access(self, global, 16, where);
  if (bytes == 0 || bytes % 16 != 0) {
    fail(self, "copy_bulk at %s:%d of %u bytes, no positive multiple of 16", where.base_name(), where.line, bytes);
  }
  if (!in_shared(self, shared, bytes)) {
    fail(self, "the target of copy_bulk is not in shared memory at %s:%d", where.base_name(), where.line);
  }
  must_have_waited(self, false, where);
  queue_copy(self, *self.wave->block,
             {.shared = shared, .global = global, .bytes = bytes, .barrier = barrier, .where = where});
  cluster.counters.bulk_bytes += bytes;
  if (cluster.options.schedule == Schedule::random && cluster.draw() % 8 == 0) yield(self);
}

TILEWAVE_HOST_UNTRACKED inline bool post_row(const Chunk* row, Where where) {
  Lane& self = *current_lane;
  Wave& wave = *self.wave;
  if (reinterpret_cast<std::uintptr_t>(row) % 16 != 0) bad_access(self, row, 16, where);
  if (!in_shared(self, row, 16)) {
    fail(self, "a row of load_matrices is not in shared memory at %s:%d", where.base_name(), where.line);
  }
  wave.posted[wave.parity][self.index] =
      static_cast<std::uint32_t>(reinterpret_cast<const std::byte*>(row) - wave.block->shared);
  if (!meet(self, {CollectiveKind::load_matrices, 0, where})) return false;
  order_acquire(&wave.ordered[wave.parity]);
  self.cluster->counters.lds_loads_bytes += 16 * wave.lanes;
  return true;
}
TILEWAVE_HOST_UNTRACKED inline std::byte* posted_row(int lane) {
  const Wave& wave = *current_lane->wave;
  return wave.block->shared + wave.posted[wave.parity][lane];
}
TILEWAVE_HOST_UNTRACKED inline void deal_word(int lane, int matrix, std::uint32_t word) {
  current_lane->wave->dealt[lane][matrix] = word;
}
TILEWAVE_HOST_UNTRACKED inline void finish_matrices() {
  Lane& self = *current_lane;
  order_release(&self.wave->ordered[self.wave->parity]);  // the reads are before anything that a lane does next
  complete(self);
}
TILEWAVE_HOST_UNTRACKED inline Chunk dealt_words() {
  const std::uint32_t(&words)[4] = current_lane->wave->dealt[current_lane->index];
  return {{words[0], words[1], words[2], words[3]}};
}

/// Returns row r of matrix m as the lanes' words give it, or column r.
TILEWAVE_HOST_UNTRACKED inline Vec<std::uint16_t, 8> dealt_row(bool straight, int m, int r) {
  Vec<std::uint16_t, 8> row;
  for (int i = 0; i < 8; ++i) {
    const int lane = straight ? 4 * r + i / 2 : 4 * i + r / 2, half = straight ? i % 2 : r % 2;
    row.data[i] = static_cast<std::uint16_t>(current_lane->wave->dealt[lane][m] >> 16 * half);
  }
  return row;
}

}  // namespace detail

/// Chips that have these primitives; StagedBackend says what they do.
template <ArchId Id>
struct Staged {};

template <ArchId Id>
requires(facts_of(Id).tensor_copies) struct Staged<Id> {
  using Mbarrier = host::Mbarrier;

  static void mbarrier_init(Mbarrier* barrier, int waves, Where where = {}) {
    detail::check_address(barrier, "mbarrier_init", where);
    detail::check_init(barrier, waves, where);
    const auto count = static_cast<std::uint8_t>(waves);
    *barrier = {Mbarrier::initialised, count, count, 0, 0};
  }
  /// Initialisations are visible like any store.
  static void mbarrier_ready() {}
  static void mbarrier_arrive(Mbarrier* barrier, Where where = {}) {
    check(barrier, "mbarrier_arrive", where);
    detail::arrive_at(*current_lane->wave->block, *barrier, CollectiveKind::mbarrier_arrive, 0, where);
  }
  static void mbarrier_arrive(Mbarrier* barrier, int rank, Where where = {}) {
    detail::check_address(barrier, "mbarrier_arrive", where);
    Block& block = detail::block_at(*current_lane, rank, "mbarrier_arrive", where);
    Mbarrier* const there = detail::barrier_in(block, barrier);
    detail::check_mark(barrier, there->mark, "mbarrier_arrive", where);
    detail::arrive_at(block, *there, CollectiveKind::mbarrier_arrive, 0, where);
  }
  static void mbarrier_expect(Mbarrier* barrier, std::uint32_t bytes, Where where = {}) {
    check(barrier, "mbarrier_expect", where);
    detail::arrive_at(*current_lane->wave->block, *barrier, CollectiveKind::mbarrier_expect, bytes, where);
  }
  /// When nobody can ever end the phase, the launch fails and reports what is missing.
  static void mbarrier_wait(Mbarrier* barrier, int parity, Where where = {}) {
    check(barrier, "mbarrier_wait", where);
    detail::wait_at(*barrier, parity, where);
  }
  static bool mbarrier_test(Mbarrier* barrier, int parity, Where where = {}) {
    check(barrier, "mbarrier_test", where);
    return detail::has_passed(*barrier, parity);
  }

  static void pass_turn(Mbarrier* turn, int, Where where = {}) { mbarrier_arrive(turn, where); }
  static void await_turn(Mbarrier* turn, int, int parity, Where where = {}) { mbarrier_wait(turn, parity, where); }

  /// Queues a copy. It lands when a wave waits for its barrier and nobody else can run, so a missing wait leaves the
  /// poison. In the random schedule it lands at any moment. A block that ends before somebody waited for it fails the
  /// launch.
  static void copy_bulk(void* shared, const void* global, std::uint32_t bytes, Mbarrier* barrier, Where where = {}) {
    check(barrier, "copy_bulk", where);
    detail::queue_bulk_copy(shared, global, bytes, barrier, where);
  }

  /// The copy lands as late as possible, or at once, as the schedule says.
  template <class T>
  static void copy_lane(T* shared, const T* global, Where where = {}) {
    static_assert(sizeof(T) == 4 || sizeof(T) == 16, "a lane copies 4 or 16 bytes");
    if (reinterpret_cast<std::uintptr_t>(global) % sizeof(T) != 0)
      detail::bad_access(*current_lane, global, sizeof(T), where);
    detail::queue_copy(shared, global, sizeof(T), where);
    ++current_lane->copies.open;
  }
  static void lane_copies_end(Where where = {}) {
    auto& copies = current_lane->copies;
    if (copies.batches == max_lane_copies) {
      fail(*current_lane, "more than %d batches of copies that nobody has waited for at %s:%d", max_lane_copies,
           where.base_name(), where.line);
    }
    copies.of_batch[copies.batches++] = copies.open;
    copies.open = 0;
  }
  /// Here copies land at once: the arrival is that of the wave.
  static constexpr int copies_arrivals = 1;
  static void lane_copies_arrive(Mbarrier* barrier, Where where = {}) {
    detail::land_copies(*current_lane, 0);
    current_lane->copies.open = current_lane->copies.batches = 0;
    mbarrier_arrive(barrier, where);
  }
  template <int pending>
  static void lane_copies_wait() {
    detail::land_batches(*current_lane, pending);
  }

  static Chunk load_matrices(const Chunk* row, Where where = {}) {
    if (detail::post_row(row, where)) {
      // The last lane reads for all, as the instruction does: another lane may overwrite its row right afterwards.
      for (int lane = 0; lane < facts_of(Id).wave_lanes; ++lane) {
        for (int matrix = 0; matrix < 4; ++matrix) {
          std::uint32_t word;
          std::memcpy(&word, detail::posted_row(8 * matrix + lane / 4) + 4 * (lane % 4), sizeof(word));
          detail::deal_word(lane, matrix, word);
        }
      }
      detail::finish_matrices();
    }
    return detail::dealt_words();
  }

  static Chunk load_matrices_transposed(const Chunk* row, Where where = {}) {
    if (detail::post_row(row, where)) {
      for (int lane = 0; lane < facts_of(Id).wave_lanes; ++lane) {
        for (int matrix = 0; matrix < 4; ++matrix) {
          std::uint16_t half[2];
          for (int i = 0; i < 2; ++i)
            std::memcpy(&half[i], detail::posted_row(8 * matrix + 2 * (lane % 4) + i) + 2 * (lane / 4),
                        sizeof(half[i]));
          detail::deal_word(lane, matrix, half[0] | std::uint32_t{half[1]} << 16);
        }
      }
      detail::finish_matrices();
    }
    return detail::dealt_words();
  }

  /// This is only a hint, so nothing is done here.
  static void prefetch(const void* p, Where where = {}) {
    if (p == nullptr) detail::bad_access(*current_lane, p, 1, where);
  }
  static void prefetch(const void* p, std::uint32_t bytes, Where where = {}) {
    if (p == nullptr || reinterpret_cast<std::uintptr_t>(p) % 16 != 0 || bytes % 16 != 0 || bytes == 0)
      detail::bad_access(*current_lane, p, 16, where);
  }
  /// Time does not pass in this room.
  static std::uint64_t nanoseconds() { return 0; }
  static void pause_until(std::uint64_t) {}

 private:
  /// Reads the mark where ThreadSanitizer sees it: an initialisation that no barrier orders before this is a race.
  static void check(const Mbarrier* barrier, const char* what, Where where) {
    detail::check_address(barrier, what, where);
    detail::check_mark(barrier, barrier->mark, what, where);
  }
};

}  // namespace tilewave::host

#endif  // !TILEWAVE_ON_GPU_COMPILER
