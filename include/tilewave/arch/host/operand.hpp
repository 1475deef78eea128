// SPDX-License-Identifier: MIT
// Operands of group products in shared memory: the addresses of their 16-byte units, and the faults of one.
#pragma once

#include "tilewave/core/config.hpp"

#if !TILEWAVE_ON_GPU_COMPILER

#include <cstdint>

#include "tilewave/arch/backend.hpp"
#include "tilewave/arch/host/mbarrier.hpp"

namespace tilewave::host {

namespace detail {

/// The operand types that products of wave groups take, and the columns of a narrow product.
template <ArchId Id, DType type>
inline constexpr bool group_type = type == DType::bf16 || type == DType::f16 || type == facts_of(Id).fp8;
template <int columns>
inline constexpr bool narrow_columns = columns == 8 || columns == 16 || columns == 32 || columns == 64;

}  // namespace detail

/// Any kind of operand. The 16-byte unit p (0 or 1) of row r lies at k_unit(r, p). In a transposed operand, rows 8 e to
/// 8 e + 7 at k lie at of_k(e, k).
struct SharedOperand {
  const std::byte* at = nullptr;
  int offset = 0;  // offset of the first row
  int eight_rows = 0, next_unit = 0;
  bool swizzled = false;
  int unit = 0;  // swizzled: number of unit 0 among the row's 8 units of 16 bytes
  int box = 0;   // transposed: bytes of 64 rows; else 0; eight_rows is of eight k then

  constexpr SharedOperand() = default;
  SharedOperand(const GroupOperand& o)
      : at(static_cast<const std::byte*>(o.at)), offset(o.offset), eight_rows(o.eight_rows), next_unit(o.next_unit) {}
  SharedOperand(const SwizzledOperand& o)
      : at(static_cast<const std::byte*>(o.at)),
        offset(o.row / 8 * o.eight_rows + o.row % 8 * 128),
        eight_rows(o.eight_rows),
        swizzled(true),
        unit(2 * o.k_slice) {}
  SharedOperand(const TransposedOperand& o)
      : at(static_cast<const std::byte*>(o.at)),
        offset(o.row / 64 * 128 * o.box_k + 2 * o.eight_k * o.k_slice),
        eight_rows(o.eight_k),
        swizzled(true),
        box(128 * o.box_k) {}
  friend constexpr bool operator==(const SharedOperand&, const SharedOperand&) = default;

  bool transposed() const { return box > 0; }
  TILEWAVE_HOST_UNTRACKED const std::byte* of_k(int eight, int k) const {
    return at + offset + eight / 8 * box + k / 8 * eight_rows + 128 * (k % 8) + 16 * (eight % 8 ^ k % 8);
  }
  /// Returns the i-th of the 2 `rows` units of 16 bytes, in any order.
  TILEWAVE_HOST_UNTRACKED const std::byte* unit_at(int i) const {
    return transposed() ? of_k(i / 16, i % 16) : k_unit(i / 2, i % 2);
  }
  TILEWAVE_HOST_UNTRACKED const std::byte* k_unit(int row, int p) const {
    if (swizzled) return at + offset + row / 8 * eight_rows + 128 * (row % 8) + 16 * ((unit + p) ^ row % 8);
    return at + offset + row / 8 * eight_rows + row % 8 * 16 + p * next_unit;
  }
  /// True if one of the first `rows` rows has a unit at p.
  TILEWAVE_HOST_UNTRACKED bool has_unit(int rows, const std::byte* p) const {
    if (swizzled && !transposed()) {
      const std::ptrdiff_t from_first = p - (at + offset);
      if (from_first < 0 || from_first >= rows / 8 * std::ptrdiff_t{eight_rows}) return false;
      const int row = static_cast<int>(from_first / eight_rows * 8 + from_first % eight_rows / 128);
      if (from_first % eight_rows >= 1024) return false;
      return k_unit(row, 0) == p || k_unit(row, 1) == p;
    }
    for (int i = 0; i < 2 * rows; ++i) {
      if (unit_at(i) == p) return true;
    }
    return false;
  }
};

namespace detail {

/// An operand as text.
struct DescribedOperand {
  char text[60];
};
TILEWAVE_HOST_UNTRACKED inline DescribedOperand describe(const Lane& self, const SharedOperand& operand) {
  DescribedOperand d;
  const int byte = static_cast<int>(operand.at - self.wave->block->shared) + operand.offset;
  if (operand.swizzled) {
    std::snprintf(d.text, sizeof(d.text), "at byte %d, k_slice %d", byte, operand.unit / 2);
  } else {
    std::snprintf(d.text, sizeof(d.text), "at byte %d + (%d, %d)", byte, operand.eight_rows, operand.next_unit);
  }
  return d;
}

TILEWAVE_HOST_UNTRACKED inline void check_operand(Lane& self, const SharedOperand& operand, const char* what,
                                                  const char* name, int rows, Where where) {
  constexpr int stride_end = 1 << 18;  // 14 bits of 16 bytes (PTX ISA, "matrix descriptor format")
  const auto good = [](int bytes) { return bytes >= 0 && bytes < stride_end && bytes % 16 == 0; };
  const auto at = reinterpret_cast<std::uintptr_t>(operand.at);
  std::int64_t bytes;
  if (operand.transposed()) {
    if (at % 1024 != 0 || operand.offset < 0 || operand.box % 1024 != 0 || operand.box >= stride_end) {
      fail(self, "%s at %s:%d: operand %s at %p + %d, boxes of %d bytes, no multiples of 1024", what, where.base_name(),
           where.line, name, static_cast<const void*>(operand.at), operand.offset, operand.box);
    }
    bytes = std::int64_t{operand.offset} + (rows / 64 - 1) * std::int64_t{operand.box} + operand.eight_rows + 1024;
  } else if (operand.swizzled) {
    if (at % 1024 != 0 || operand.offset < 0 || operand.offset % 1024 != 0 || operand.unit < 0 || operand.unit > 6) {
      fail(self,
           "%s at %s:%d: operand %s at %p from row %d and k_slice %d, no multiple of 1024 bytes, no multiple of 8, or "
           "none of 4 slices of k",
           what, where.base_name(), where.line, name, static_cast<const void*>(operand.at), operand.offset / 128,
           operand.unit / 2);
    }
    bytes = std::int64_t{operand.offset} + (rows / 8 - 1) * std::int64_t{operand.eight_rows} + 1024;
  } else {
    if (at % 16 != 0 || !good(operand.eight_rows) || !good(operand.next_unit) || !good(operand.offset)) {
      fail(self, "%s at %s:%d: operand %s at %p + %d with strides of %d and %d bytes, no multiples of 16 in [0, 2^18)",
           what, where.base_name(), where.line, name, static_cast<const void*>(operand.at), operand.offset,
           operand.eight_rows, operand.next_unit);
    }
    bytes =
        std::int64_t{operand.offset} + (rows / 8 - 1) * std::int64_t{operand.eight_rows} + operand.next_unit + 8 * 16;
  }
  if (!in_shared(self, operand.at, static_cast<std::size_t>(bytes))) {
    fail(self, "%s at %s:%d: operand %s is not in shared memory", what, where.base_name(), where.line, name);
  }
}

/// Fails if a lane has stored a row for which `reads` is true, without making it visible to the unit that reads it.
template <class F>
TILEWAVE_HOST_UNTRACKED inline void check_seen(Lane& self, const char* what, const char* of, Where where, F reads) {
  const Block& block = *self.wave->block;
  if (block.unseen == 0) return;
  for (int id = 0; id < self.cluster->block_lanes; ++id) {
    const Wave& wave = *self.cluster->wave[block.rank * self.cluster->block_waves + id / self.wave->lanes];
    const Lane& lane = *wave.lane[id % wave.lanes];
    for (int i = 0; i < lane.unseen.count; ++i) {
      if (!reads(lane.unseen.row[i])) continue;
      fail(self,
           "%s at %s:%d: wave %d lane %d has stored byte %d of shared memory, of %s, but not called shared_written "
           "since",
           what, where.base_name(), where.line, wave.index, lane.index,
           static_cast<int>(lane.unseen.row[i] - block.shared), of);
    }
  }
}

/// Reads this lane's part of an operand where ThreadSanitizer sees it. Each wave reads all of it.
inline void touch([[maybe_unused]] const SharedOperand& operand, [[maybe_unused]] int rows) {
#if defined(TILEWAVE_HOST_TSAN)
  const Lane& self = *current_lane;
  for (int i = self.index; i < 2 * rows; i += self.wave->lanes) {
    const auto* const words = reinterpret_cast<const volatile std::uint64_t*>(operand.unit_at(i));
    (void)words[0];
    (void)words[1];
  }
#endif
}

}  // namespace detail

}  // namespace tilewave::host

#endif  // !TILEWAVE_ON_GPU_COMPILER
