// SPDX-License-Identifier: MIT
// Mbarriers and the copies that complete them, of bytes and of boxes: the counts of a barrier, the time at which a copy
// lands, and the end of a phase.
#pragma once

#include "tilewave/arch/host/box.hpp"

#if !TILEWAVE_ON_GPU_COMPILER

namespace tilewave::host {

/// It takes 8 bytes of shared memory, as on the chip, so that a kernel that overwrites them breaks the barrier.
struct alignas(8) Mbarrier {
  static constexpr std::uint16_t initialised = 0x4d62;              // any value except the poison
  static constexpr int max_waves = 255, max_bytes = (1 << 20) - 1;  // max_bytes is the range of tx-count in the PTX ISA

  std::uint16_t mark;
  std::uint8_t waves;        // arrivals that end a phase
  std::uint8_t pending;      // arrivals that are missing in this phase
  std::uint32_t parity : 1;  // parity of this phase
  std::int32_t bytes : 31;   // expected less landed bytes; negative while a copy lands before it is expected

  /// Names the happens-before edges of the phases with that parity.
  TILEWAVE_HOST_UNTRACKED void* ordered(int of_parity) { return reinterpret_cast<char*>(this) + of_parity; }
};
static_assert(sizeof(Mbarrier) == 8, "a barrier takes as many bytes of shared memory as on the chip");

/// A copy, from its call until a wait has seen its phase end: hardware promises nothing about a copy that nobody waits
/// for.
struct BulkCopy {
  // The target and the barrier are those of the block that holds the copy; another block of its cluster may have
  // issued it.
  void* shared;
  const void* global;
  std::uint32_t bytes;
  Mbarrier* barrier;
  Where where;
  TensorBox box{};       // without a map the copy is of bytes from `global`
  int landed = -1;       // parity of the phase in which it landed; -1 while in flight
  void* tsan = nullptr;  // a thread of its own: ordered after the lane that issued it and before the lane that waits

  const char* name() const { return box.map != nullptr ? "copy_tensor" : "copy_bulk"; }
};
inline constexpr int max_bulk_copies = 1 << 15;  // copies of a block that nobody has waited for yet

namespace detail {

TILEWAVE_HOST_UNTRACKED inline bool in_shared(const Lane& self, const void* p, std::size_t bytes) {
  const std::size_t offset =
      reinterpret_cast<std::uintptr_t>(p) - reinterpret_cast<std::uintptr_t>(self.wave->block->shared);
  return offset <= self.cluster->shared_bytes && bytes <= self.cluster->shared_bytes - offset;
}
/// Returns the byte in its block's shared memory, by which reports name a barrier.
TILEWAVE_HOST_UNTRACKED inline int shared_offset(const Block& block, const Mbarrier* barrier) {
  return static_cast<int>(reinterpret_cast<const std::byte*>(barrier) - block.shared);
}

/// Ends the barrier's current phase if nothing is missing. The next one begins, and waiting waves can run.
TILEWAVE_HOST_UNTRACKED inline void end_phase(Lane& self, Block& block, Mbarrier& barrier, const char* what,
                                              Where where) {
  if (barrier.pending != 0 || barrier.bytes > 0) return;
  // A copy that is still in flight could as well have landed before those that ended the phase.
  std::int64_t surplus = -barrier.bytes;
  for (int i = 0; i < block.copies; ++i) {
    const BulkCopy& copy = block.copy[i];
    if (copy.barrier == &barrier && copy.landed < 0) surplus += copy.bytes;
  }
  if (surplus != 0) {
    fail(self, "%s at %s:%d ends a phase of the mbarrier at byte %d with %lld bytes more than expected", what,
         where.base_name(), where.line, shared_offset(block, &barrier), static_cast<long long>(surplus));
  }
  barrier.parity ^= 1;
  barrier.pending = barrier.waves;
  for (int w = block.rank * self.cluster->block_waves; w < (block.rank + 1) * self.cluster->block_waves; ++w) {
    Wave& wave = *self.cluster->wave[w];
    if (wave.awaited.lane == nullptr || wave.awaited.barrier != &barrier) continue;
    wave.ready |= wave.awaited.lane->bit();
    self.cluster->runnable |= WaveSet{1} << w;
  }
}

/// ThreadSanitizer sees this function, unlike those around it.
inline void move_bytes(void* to, const void* from, std::size_t bytes) { std::memcpy(to, from, bytes); }

TILEWAVE_HOST_UNTRACKED inline void land(Lane& self, Block& block, BulkCopy& copy) {
  Mbarrier& barrier = *copy.barrier;
  copy.landed = barrier.parity;
  --self.cluster->copies_in_flight;
#if defined(TILEWAVE_HOST_TSAN)
  void* const running = __tsan_get_current_fiber();
  __tsan_switch_to_fiber(copy.tsan, __tsan_switch_to_fiber_no_sync);
#endif
  if (copy.box.map != nullptr) {
    fetch_box(copy.box, static_cast<std::byte*>(copy.shared));
  } else {
    move_bytes(copy.shared, copy.global, copy.bytes);
  }
  order_release(barrier.ordered(copy.landed));
#if defined(TILEWAVE_HOST_TSAN)
  __tsan_switch_to_fiber(running, __tsan_switch_to_fiber_no_sync);
  __tsan_destroy_fiber(copy.tsan);
  copy.tsan = nullptr;
#endif
  if (barrier.mark != Mbarrier::initialised) {
    fail(self, "%s at %s:%d: the mbarrier at byte %d was overwritten, maybe by the copy", copy.name(),
         copy.where.base_name(), copy.where.line, shared_offset(block, &barrier));
  }
  barrier.bytes -= static_cast<std::int32_t>(copy.bytes);
  end_phase(self, block, barrier, copy.name(), copy.where);
}

/// Lands a random copy in flight; there must be one.
TILEWAVE_HOST_UNTRACKED inline void land_any(Lane& self) {
  Cluster& cluster = *self.cluster;
  std::uint64_t skip = cluster.draw() % static_cast<std::uint64_t>(cluster.copies_in_flight);
  for (int b = 0; b < cluster.blocks; ++b) {
    Block& block = cluster.block[b];
    for (int i = 0; i < block.copies; ++i) {
      if (block.copy[i].landed >= 0 || skip-- != 0) continue;
      land(self, block, block.copy[i]);
      return;
    }
  }
}

/// Nobody can run, except those `behind`. The copies that another wave waits for land, one barrier's after the other,
/// until somebody can run.
TILEWAVE_HOST_UNTRACKED inline void land_awaited(Lane& self, WaveSet behind = 0) {
  Cluster& cluster = *self.cluster;
  const bool descending =
      cluster.options.schedule == Schedule::reverse || cluster.options.schedule == Schedule::last_wave_ahead;
  for (int n = 0; n < cluster.waves() && (cluster.runnable & ~behind) == 0; ++n) {
    const Wave& wave = *cluster.wave[descending ? cluster.waves() - 1 - n : n];
    if (wave.awaited.lane == nullptr || (behind >> wave.slot & 1) != 0) continue;
    Block& block = *wave.block;
    for (int i = 0; i < block.copies; ++i) {
      if (block.copy[i].barrier == wave.awaited.barrier && block.copy[i].landed < 0) land(self, block, block.copy[i]);
    }
  }
}

/// Nobody can ever run: reports it if a wave waits for an mbarrier.
TILEWAVE_HOST_UNTRACKED inline void report_awaited(Lane& self) {
  for (int w = 0; w < self.cluster->waves(); ++w) {
    const Wave& wave = *self.cluster->wave[w];
    if (wave.awaited.lane == nullptr) continue;
    const Mbarrier& barrier = *wave.awaited.barrier;
    fail(self,
         "nobody can go on: block %lld wave %d waits at %s:%d for parity %d of the mbarrier at byte %d, which lacks %d "
         "of %d arrivals and %d bytes",
         static_cast<long long>(wave.block->id), wave.index, wave.awaited.where.base_name(), wave.awaited.where.line,
         wave.awaited.parity, shared_offset(*wave.block, &barrier), int{barrier.pending}, int{barrier.waves},
         int{barrier.bytes});
  }
}

/// Drops the copies that landed in the phases whose end a wait has just seen.
TILEWAVE_HOST_UNTRACKED inline void forget_copies(Block& block, const Mbarrier* barrier, int parity) {
  int kept = 0;
  for (int i = 0; i < block.copies; ++i) {
    const BulkCopy& copy = block.copy[i];
    if (copy.barrier != barrier || copy.landed != parity) block.copy[kept++] = copy;
  }
  block.copies = kept;
}

/// Runs when the block's last lane returns.
TILEWAVE_HOST_UNTRACKED inline void check_copies(Lane& self) {
  const Block& block = *self.wave->block;
  if (block.copies == 0) return;
  const BulkCopy& copy = block.copy[0];
  fail(self, "the block ends with %d bulk copies in flight that nobody waited for, the first of %u bytes at %s:%d",
       block.copies, copy.bytes, copy.where.base_name(), copy.where.line);
}

/// Runs before a cluster, because a failed one may have left copies.
TILEWAVE_HOST_UNTRACKED inline void drop_copies([[maybe_unused]] Block& block) {
#if defined(TILEWAVE_HOST_TSAN)
  for (int i = 0; i < block.copies; ++i) {
    if (block.copy[i].tsan != nullptr) __tsan_destroy_fiber(block.copy[i].tsan);
  }
#endif
  block.copies = 0;
}

}  // namespace detail

}  // namespace tilewave::host

#endif  // !TILEWAVE_ON_GPU_COMPILER
