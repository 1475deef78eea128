// SPDX-License-Identifier: MIT
// Mbarriers and the copies that complete them, of bytes and of boxes: what a barrier counts, when a copy lands, and
// what ends a phase.
#pragma once

#include "tilewave/arch/host/box.hpp"

#if !TILEWAVE_ON_GPU_COMPILER

namespace tilewave::host {

/// 8 bytes of shared memory, as on the chip, so that a kernel that overwrites them breaks the barrier.
struct alignas(8) Mbarrier {
  static constexpr std::uint16_t initialised = 0x4d62;              // anything but the poison
  static constexpr int max_waves = 255, max_bytes = (1 << 20) - 1;  // the latter is the PTX ISA's range of tx-count

  std::uint16_t mark;
  std::uint8_t waves;        // arrivals that end a phase
  std::uint8_t pending;      // of those, missing in this one
  std::uint32_t parity : 1;  // of this phase
  std::int32_t bytes : 31;   // expected less landed; below 0 while a copy lands before it is expected

  /// Names the happens-before edges of the phases with that parity.
  TILEWAVE_HOST_UNTRACKED void* ordered(int of_parity) { return reinterpret_cast<char*>(this) + of_parity; }
};
static_assert(sizeof(Mbarrier) == 8, "a barrier takes as many bytes of shared memory as on the chip");

/// A copy from its call until a wait has seen its phase end: hardware promises nothing about one that nobody waits for.
struct BulkCopy {
  void*
      shared;  // this and the barrier are of the block that holds the copy, which another of its cluster may have made
  const void* global;
  std::uint32_t bytes;
  Mbarrier* barrier;
  Where where;
  TensorBox box{};       // without a map: bytes from `global`
  int landed = -1;       // parity of the phase it landed in; -1 in flight
  void* tsan = nullptr;  // a thread of its own: ordered after the lane that asked, before who waits

  const char* name() const { return box.map != nullptr ? "copy_tensor" : "copy_bulk"; }
};
inline constexpr int max_bulk_copies = 1 << 15;  // of a block that nobody has waited for yet

namespace detail {

TILEWAVE_HOST_UNTRACKED inline bool in_shared(const Lane& self, const void* p, std::size_t bytes) {
  const std::size_t offset =
      reinterpret_cast<std::uintptr_t>(p) - reinterpret_cast<std::uintptr_t>(self.wave->block->shared);
  return offset <= self.cluster->shared_bytes && bytes <= self.cluster->shared_bytes - offset;
}
/// Byte of its block's shared memory: what reports call a barrier.
TILEWAVE_HOST_UNTRACKED inline int shared_offset(const Block& block, const Mbarrier* barrier) {
  return static_cast<int>(reinterpret_cast<const std::byte*>(barrier) - block.shared);
}

/// The barrier's current phase is over if nothing is missing: the next one begins, and those who wait get to run.
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

/// Seen by ThreadSanitizer, unlike the functions around it.
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

/// Lets a random copy in flight land; there is one.
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

/// Nobody can run, but those `behind`: the copies that another wave waits for land, one barrier's after the other until
/// somebody can.
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

/// Nobody can run, ever: says so if a wave waits for an mbarrier.
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

/// The copies that landed in the phases which a wait has just seen end are nobody's concern any more.
TILEWAVE_HOST_UNTRACKED inline void forget_copies(Block& block, const Mbarrier* barrier, int parity) {
  int kept = 0;
  for (int i = 0; i < block.copies; ++i) {
    const BulkCopy& copy = block.copy[i];
    if (copy.barrier != barrier || copy.landed != parity) block.copy[kept++] = copy;
  }
  block.copies = kept;
}

/// The block's last lane returns.
TILEWAVE_HOST_UNTRACKED inline void check_copies(Lane& self) {
  const Block& block = *self.wave->block;
  if (block.copies == 0) return;
  const BulkCopy& copy = block.copy[0];
  fail(self, "the block ends with %d bulk copies in flight that nobody waited for, the first of %u bytes at %s:%d",
       block.copies, copy.bytes, copy.where.base_name(), copy.where.line);
}

/// Before a cluster: a failed one may have left some.
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
