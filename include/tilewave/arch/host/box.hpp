// SPDX-License-Identifier: MIT
// Boxes of tensors (TensorBackend): the contents of a map, the copies of a box into and out of shared memory, and the
// stores that nobody has waited for yet.
#pragma once

#include "tilewave/core/config.hpp"

#if !TILEWAVE_ON_GPU_COMPILER

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "tilewave/arch/backend.hpp"
#include "tilewave/arch/host/wave.hpp"

namespace tilewave::host {

/// It is plain data and 64-byte aligned, as on the chip. A map whose box has no rows was never made.
struct alignas(64) TensorMap {
  TensorShape shape{};
};

/// The box that begins at an element of the map's tensor.
struct TensorBox {
  const TensorMap* map = nullptr;
  int column = 0, row = 0, layer = 0;

  std::uint32_t bytes() const {
    const TensorShape& s = map->shape;
    return static_cast<std::uint32_t>(s.box_rows * s.box_layers * s.box_bytes() * std::max(s.side_by_side, 1));
  }
};

/// A store, from its call until its lane knows that it has read shared memory.
struct TensorStore {
  Lane* lane;
  std::int64_t batch;  // number of the lane's batch
  TensorBox box;
  const std::byte* shared;
  Where where;
  bool read;
  void* tsan;    // as in BulkCopy
  char ordered;  // names the happens-before edge from the read to the lane that waits
};
inline constexpr int max_tensor_stores = 1024;  // stores of a block that nobody has waited for yet

namespace detail {

/// Calls move(unit in shared memory, the same on the device, how many of its 16 bytes lie in the tensor) for each unit.
template <class F>
inline void each_unit(const TensorBox& box, std::byte* shared, F move) {
  const TensorShape& s = box.map->shape;
  const int parts = std::max(s.side_by_side, 1);
  for (int i = 0; i < s.box_rows * s.box_layers * parts; ++i) {
    const int r = i / parts, part = i % parts, eight = s.box_bytes() * 8;
    std::byte* const to = shared + (r / 8 * parts + part) * eight + r % 8 * s.box_bytes();
    const std::int64_t first = std::int64_t{box.column} * size_of(s.type) + part * s.box_bytes();
    const std::int64_t inside = std::clamp<std::int64_t>(s.columns * size_of(s.type) - first, 0, s.box_bytes());
    const std::int64_t row = std::int64_t{box.row} + r % s.box_rows, layer = std::int64_t{box.layer} + r / s.box_rows;
    const std::int64_t bytes = row < s.rows && layer < s.layers ? inside : 0;
    std::byte* const line =
        static_cast<std::byte*>(const_cast<void*>(s.data)) + layer * s.layer_stride + row * s.row_stride + first;
    for (int u = 0; u < s.box_bytes() / 16; ++u) {
      const auto count = static_cast<std::size_t>(std::clamp<std::int64_t>(bytes - 16 * u, 0, 16));
      move(to + 16 * (s.straight ? u : u ^ r % 8), line + 16 * u, count);
    }
  }
}
/// Copies at most 16 bytes where ThreadSanitizer sees it. g++ 12 does not instrument a memcpy of so few, so it must not
/// know the size.
#if defined(TILEWAVE_HOST_TSAN)
__attribute__((noinline))
#endif
inline void
move_some(void* to, const void* from, std::size_t bytes) {
  std::memcpy(to, from, bytes);
}
inline void fetch_box(const TensorBox& box, std::byte* shared) {
  each_unit(box, shared, [](std::byte* to, const std::byte* from, std::size_t count) {
    static constexpr Chunk zeros{};  // static, because the stack is the running lane's
    if (count < sizeof(zeros)) move_some(to, &zeros, sizeof(zeros));
    if (count != 0) move_some(to, from, count);
  });
}
inline void write_box(const TensorBox& box, const std::byte* shared) {
  each_unit(box, const_cast<std::byte*>(shared), [](std::byte* from, std::byte* to, std::size_t count) {
    if (count != 0) move_some(to, from, count);
  });
}

/// The store reads shared memory and writes its box. Nobody may read the box before the kernel has ended.
TILEWAVE_HOST_UNTRACKED inline void perform_store(Lane& self, TensorStore& store) {
  store.read = true;
#if defined(TILEWAVE_HOST_TSAN)
  void* const running = __tsan_get_current_fiber();
  __tsan_switch_to_fiber(store.tsan, __tsan_switch_to_fiber_no_sync);
#endif
  write_box(store.box, store.shared);
  order_release(&store.ordered);
  order_release(&self.cluster->ended);
#if defined(TILEWAVE_HOST_TSAN)
  __tsan_switch_to_fiber(running, __tsan_switch_to_fiber_no_sync);
  __tsan_destroy_fiber(store.tsan);
  store.tsan = nullptr;
#endif
}

/// This lane's stores of batches before number `end` have read shared memory, so they are dropped.
TILEWAVE_HOST_UNTRACKED inline void await_stores(Lane& self, std::int64_t end) {
  Block& block = *self.wave->block;
  int kept = 0;
  for (int i = 0; i < block.stores; ++i) {
    TensorStore& store = block.store[i];
    if (store.lane != &self || store.batch >= end) {
      if (kept != i) block.store[kept] = store;
      ++kept;
      continue;
    }
    if (!store.read) perform_store(self, store);
    order_acquire(&store.ordered);
  }
  block.stores = kept;
}

/// The lane returns. Its stores must have been awaited, because another block may get the shared memory that they read.
TILEWAVE_HOST_UNTRACKED inline void check_stores(Lane& self) {
  const Block& block = *self.wave->block;
  for (int i = 0; i < block.stores; ++i) {
    const TensorStore& store = block.store[i];
    if (store.lane != &self) continue;
    fail(self,
         "this lane returned while the store_tensor at %s:%d, which it has not waited for%s, may read shared memory",
         store.where.base_name(), store.where.line, store.batch == self.stores ? " nor ended" : "");
  }
}

/// Runs before a cluster, because a failed one may have left stores.
TILEWAVE_HOST_UNTRACKED inline void drop_stores([[maybe_unused]] Block& block) {
#if defined(TILEWAVE_HOST_TSAN)
  for (int i = 0; i < block.stores; ++i) {
    if (block.store[i].tsan != nullptr) __tsan_destroy_fiber(block.store[i].tsan);
  }
#endif
  block.stores = 0;
}

}  // namespace detail

}  // namespace tilewave::host

#endif  // !TILEWAVE_ON_GPU_COMPILER
