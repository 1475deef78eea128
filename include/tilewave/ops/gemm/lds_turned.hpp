// SPDX-License-Identifier: MIT
// Rows that are columns in memory ([K, M] or [K, N]) on their way into a slot of LDS. A lane loads eight neighbours of
// four k, turns the square in registers, two bytes at a time, and stores 8 bytes of k for each of the eight rows. From
// there on they are rows like others.
#pragma once

#include "tilewave/ops/gemm/lds_rows.hpp"

namespace tilewave {

template <class W, int rows>
struct GemmTurnedRows : GemmLdsSlot<W, W::spec.a, rows, true> {
  using Slot = GemmLdsSlot<W, W::spec.a, rows, true>;
  using B = typename W::Backend;
  using Slot::copies, Slot::row_units, Slot::permute;
  static constexpr int element = size_of(Slot::type), step_k = Slot::row_bytes / element;
  static_assert(element == 2 && copies == 4 && rows % 64 == 0 && W::policy.path == GemmPath::staged);

  const char* base;  // of the first row
  std::int64_t stride;
  std::int32_t k, width;         // elements; bytes of a k's rows that there are, whole 16
  int whole_bytes;               // of a step
  int to;                        // in a slot, of this lane's k of its first row; bytes
  std::uint32_t offset[copies];  // in a step's source, of this lane's k
  Chunk held[copies];

  template <class RowsOf>
  TILEWAVE_DEVICE GemmTurnedRows(const void* matrix, std::int64_t layer_offset, std::int64_t k_stride, const RowsOf& of,
                                 std::int32_t of_k, int wave_row)
      : Slot(of_k, wave_row),
        base(static_cast<const char*>(matrix) + (layer_offset + of.first) * element),
        stride(k_stride * element),
        k(of_k),
        width(align_up(max_of(min_of(of.left, rows), 0) * element, 16)) {
    whole_bytes = bytes_of(step_k);
    // A wave's lanes are 8 x 8: eight of them load a line of 128 bytes.
    constexpr int across = rows / 64;
    const int lane = B::lane_id(), wave = B::wave_id();
    const int eight = lane % 8 + 8 * (wave % across), four = lane / 8 + 8 * (wave / across);
    to = (8 * eight * row_units + (four / 2 ^ permute(8 * eight))) * 16 + four % 2 * 8;
    TILEWAVE_UNROLL
    for (int i = 0; i < copies; ++i)
      offset[i] =
          16 * eight < width ? static_cast<std::uint32_t>((4 * four + i) * stride + 16 * eight) : B::Source::nowhere;
  }

  template <int i, bool whole>
  TILEWAVE_DEVICE void load(std::int32_t step) {
    const std::int32_t left = whole ? step_k : min_of(k - step * step_k, step_k);
    const std::int64_t from = std::int64_t{left > 0 ? step : 0} * step_k * stride;
    const int bytes = whole ? whole_bytes : bytes_of(left);
    held[i] = typename B::Source{base + from, static_cast<std::uint32_t>(bytes)}.load(offset[i], 0);
  }
  /// All of them with the first: each store needs all.
  template <int i>
  TILEWAVE_DEVICE void put(Chunk* slot) const {
    if constexpr (i == 0) {
      static_for<row_units>([&](auto r) TILEWAVE_INLINE_LAMBDA {
        constexpr int word = r / 2, low = 2 * (r % 2), high = low + 4;
        const Vec<std::uint32_t, 2> of_k{
            {B::template pick_bytes<low, low + 1, high, high + 1>(held[0][word], held[1][word]),
             B::template pick_bytes<low, low + 1, high, high + 1>(held[2][word], held[3][word])}};
        // Row 8 eight + r of the slot: from r to r only these bits of its units' places change.
        constexpr int row_bytes = Slot::row_bytes * r, mask = 16 * (r >> Slot::shift);
        *reinterpret_cast<Vec<std::uint32_t, 2>*>(reinterpret_cast<char*>(slot) + (to ^ mask) + row_bytes) = of_k;
      });
    }
  }

 private:
  /// Of so many k, the same in all lanes as a source wants it; below 2^31, see check_gemm_reach.
  TILEWAVE_DEVICE int bytes_of(std::int32_t ks) const {
    return B::uniform(ks > 0 ? static_cast<int>((ks - 1) * stride) + width : 0);
  }
};

}  // namespace tilewave
