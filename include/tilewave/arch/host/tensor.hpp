// SPDX-License-Identifier: MIT
// The engine that copies boxes of tensors (TensorBackend).
#pragma once

#include "tilewave/core/config.hpp"

#if !TILEWAVE_ON_GPU_COMPILER

#include <bit>
#include <cstdint>

#include "tilewave/arch/facts.hpp"
#include "tilewave/arch/host/operand.hpp"
#include "tilewave/arch/host/staged.hpp"

namespace tilewave::host {

namespace detail {

/// Checks the rules that the engine has for a box at either end.
TILEWAVE_HOST_UNTRACKED inline void check_box(Lane& self, const TensorBox& box, const void* shared, const char* what,
                                              Where where) {
  const auto map = reinterpret_cast<std::uintptr_t>(box.map);
  const Fiber& fiber = self.stack.fiber;
  if (map - reinterpret_cast<std::uintptr_t>(fiber.stack_begin) < fiber.stack_bytes) {
    fail(self, "%s at %s:%d: the tensor map is a lane's own, not among the kernel's arguments", what, where.base_name(),
         where.line);
  }
  if (map % alignof(TensorMap) != 0) bad_access(self, box.map, alignof(TensorMap), where);
  if (box.map->shape.box_rows == 0) {
    fail(self, "%s at %s:%d: make_tensor_map has not made this map", what, where.base_name(), where.line);
  }
  if (reinterpret_cast<std::uintptr_t>(box.map->shape.data) < 4096) bad_access(self, box.map->shape.data, 16, where);
  if (box.column < 0 || box.row < 0 || box.layer < 0) {
    fail(self, "%s at %s:%d of a box at column %d, row %d, layer %d, not all of them at least 0", what,
         where.base_name(), where.line, box.column, box.row, box.layer);
  }
  const TensorShape& shape = box.map->shape;
  if (shape.side_by_side > 0 && (box.row % 8 != 0 || box.column != 0)) {
    fail(self, "%s at %s:%d of boxes side by side from row %d and column %d, no multiple of 8 and 0", what,
         where.base_name(), where.line, box.row, box.column);
  }
  if (box.column * size_of(shape.type) % 16 != 0) {
    fail(self, "%s at %s:%d of a box at column %d, no multiple of 16 bytes", what, where.base_name(), where.line,
         box.column);
  }
  const int alignment = shape.straight ? 128 : 1024;
  if (reinterpret_cast<std::uintptr_t>(shared) % alignment != 0) {
    fail(self, "%s at %s:%d: a box in shared memory at %p, no multiple of %d bytes", what, where.base_name(),
         where.line, shared, alignment);
  }
  if (!in_shared(self, shared, box.bytes())) {
    fail(self, "%s at %s:%d: the box of %u bytes is not in shared memory", what, where.base_name(), where.line,
         box.bytes());
  }
}

/// Makes all checks of a copy except those of the barriers.
TILEWAVE_HOST_UNTRACKED inline void begin_copy(const TensorBox& box, const void* shared, std::uint32_t blocks,
                                               Where where) {
  Lane& self = *current_lane;
  check_box(self, box, shared, "copy_tensor", where);
  must_have_waited(self, false, where);
  if (blocks == 0 || blocks >> self.cluster->blocks != 0) {
    fail(self, "copy_tensor at %s:%d to blocks of mask 0x%x in a cluster of %d", where.base_name(), where.line, blocks,
         self.cluster->blocks);
  }
  self.cluster->counters.bulk_bytes += box.bytes();
}
TILEWAVE_HOST_UNTRACKED inline void queue_box(Block& block, const TensorBox& box, const void* shared, Mbarrier* barrier,
                                              Where where) {
  Lane& self = *current_lane;
  queue_copy(self, block,
             {.shared = block.shared + (static_cast<const std::byte*>(shared) - self.wave->block->shared),
              .global = nullptr,
              .bytes = box.bytes(),
              .barrier = barrier,
              .where = where,
              .box = box});
}
TILEWAVE_HOST_UNTRACKED inline void end_copy() {
  Lane& self = *current_lane;
  if (self.cluster->options.schedule == Schedule::random && self.cluster->draw() % 8 == 0) yield(self);
}

TILEWAVE_HOST_UNTRACKED inline void queue_store(const TensorBox& box, const void* shared, Where where) {
  Lane& self = *current_lane;
  Block& block = *self.wave->block;
  check_box(self, box, shared, "store_tensor", where);
  must_have_waited(self, true, where);
  const TensorShape& shape = box.map->shape;
  const std::int64_t row_bytes = shape.columns * size_of(shape.type);
  if (row_bytes % 16 != 0 && std::int64_t{box.column} * size_of(shape.type) + shape.box_bytes() > row_bytes) {
    fail(self, "store_tensor at %s:%d of a box beyond the end of rows of %lld bytes: the engine writes whole 16 bytes",
         where.base_name(), where.line, static_cast<long long>(row_bytes));
  }
  const auto* const first = static_cast<const std::byte*>(shared);
  check_seen(self, "store_tensor", "the box", where,
             [&](const std::byte* row) { return row >= first && row < first + box.bytes(); });
  if (block.stores == max_tensor_stores) {
    fail(self, "more than %d tensor stores that nobody has waited for at %s:%d", max_tensor_stores, where.base_name(),
         where.line);
  }
  TensorStore& store = block.store[block.stores++];
  store = {.lane = &self,
           .batch = self.stores,
           .box = box,
           .shared = first,
           .where = where,
           .read = false,
           .tsan = nullptr,
           .ordered = 0};
#if defined(TILEWAVE_HOST_TSAN)
  store.tsan = __tsan_create_fiber(0);
#endif
  if (self.cluster->options.schedule == Schedule::random && self.cluster->draw() % 2 == 0) perform_store(self, store);
}
TILEWAVE_HOST_UNTRACKED inline void end_stores() { ++current_lane->stores; }
TILEWAVE_HOST_UNTRACKED inline void wait_for_stores(int pending) {
  Lane& self = *current_lane;
  await_stores(self, self.stores - pending);
}

}  // namespace detail

/// Chips that have it; TensorBackend says what it does.
template <ArchId Id>
struct Tensors {};

template <ArchId Id>
requires(facts_of(Id).tensor_copies) struct Tensors<Id> {
  using TensorMap = host::TensorMap;

  /// It refuses what the driver refuses.
  static Status make_tensor_map(const TensorShape& s, TensorMap& map) {
    constexpr std::int64_t stride_end = std::int64_t{1} << 40, most = std::int64_t{1} << 32;
    if (reinterpret_cast<std::uintptr_t>(s.data) % 16 != 0) {
      return {StatusCode::misaligned, "a tensor copy needs 16-byte alignment"};
    }
    for (const std::int64_t stride : {s.row_stride, s.layer_stride}) {
      if (stride % 16 != 0 || stride < 0 || stride >= stride_end) {
        return {StatusCode::bad_stride, "a tensor copy needs strides that are multiples of 16 bytes, below 2^40"};
      }
    }
    for (const std::int64_t extent : {s.columns, s.rows, s.layers}) {
      if (extent < 1 || extent > most) return {StatusCode::bad_extent, "a tensor copy needs extents of 1 to 2^32"};
    }
    if (s.straight && size_of(s.type) != 1) return {StatusCode::unsupported_dtype, "a straight box is of bytes"};
    for (const int extent : {s.box_rows, s.box_layers}) {
      if (extent < 1 || extent > 256) return {StatusCode::bad_extent, "a box has 1 to 256 rows and layers"};
    }
    if (s.side_by_side > 0 && (s.straight || s.rows % 8 != 0 || s.box_rows % 8 != 0 || s.box_layers != 1 ||
                               s.columns * size_of(s.type) % 128 != 0)) {
      return {StatusCode::bad_extent, "boxes side by side have whole rows, and groups of eight, of tensors of such"};
    }
    map.shape = s;
    return {};
  }

  static void prefetch_map(const TensorMap&) {}  // this is only a hint
  /// Queues a copy for each block, which lands like one of copy_bulk.
  static void copy_tensor(void* shared, const TensorMap& map, int column, int row, int layer, Mbarrier* barrier,
                          Where where = {}) {
    copy_tensor(shared, map, column, row, layer, barrier, std::uint32_t{1} << current_lane->wave->block->rank, where);
  }
  static void copy_tensor_once(void* shared, const TensorMap& map, int column, int row, int layer, Mbarrier* barrier,
                               Where where = {}) {
    copy_tensor(shared, map, column, row, layer, barrier, where);
  }
  static void copy_side_by_side(void* shared, const TensorMap& map, int row, int layer, Mbarrier* barrier,
                                Where where = {}) {
    copy_tensor(shared, map, 0, row, layer, barrier, where);
  }
  /// Reads the barriers' marks where ThreadSanitizer sees it, as Staged does.
  static void copy_tensor(void* shared, const TensorMap& map, int column, int row, int layer, Mbarrier* barrier,
                          std::uint32_t blocks, Where where = {}) {
    const TensorBox box{&map, column, row, layer};
    detail::check_address(barrier, "copy_tensor", where);
    detail::begin_copy(box, shared, blocks, where);
    for (; blocks != 0; blocks &= blocks - 1) {
      Block& block = detail::block_at(*current_lane, std::countr_zero(blocks), "copy_tensor", where);
      Mbarrier* const there = detail::barrier_in(block, barrier);
      detail::check_mark(barrier, there->mark, "copy_tensor", where);
      detail::queue_box(block, box, shared, there, where);
    }
    detail::end_copy();
  }

  /// It reads shared memory and writes when the lane waits for it, or at once in the random schedule: too late or too
  /// early for a kernel that forgot to wait. A lane that returns before fails the launch, and so do rows of
  /// store_matrices without shared_written.
  static void store_tensor(const TensorMap& map, int column, int row, int layer, const void* shared, Where where = {}) {
    detail::queue_store({&map, column, row, layer}, shared, where);
  }
  /// Blocks of several threads take numbers of one word.
  static std::uint32_t take_number(std::uint32_t* word, std::uint32_t last, Where where = {}) {
    detail::account<sizeof(*word), detail::Access::store>(word, where);
    std::uint32_t number = __atomic_load_n(word, __ATOMIC_RELAXED);
    while (!__atomic_compare_exchange_n(word, &number, number >= last ? 0 : number + 1, false, __ATOMIC_RELAXED,
                                        __ATOMIC_RELAXED)) {
    }
    return number;
  }

  static void stores_end() { detail::end_stores(); }
  template <int pending>
  static void stores_read() {
    static_assert(pending >= 0, "a number of stores is not negative");
    detail::wait_for_stores(pending);
  }
};

}  // namespace tilewave::host

#endif  // !TILEWAVE_ON_GPU_COMPILER
